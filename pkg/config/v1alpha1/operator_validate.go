package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// MaxAPIServers is far more API servers than a cluster has.
	MaxAPIServers = 16
	// maxAPIServerName leaves room in the names of 63 characters made from it.
	maxAPIServerName = 40
)

func validateOperator(c *OperatorConfiguration) field.ErrorList {
	errs := oneOf(field.NewPath("managementState"), c.ManagementState, Managed, Unmanaged, Removed)
	errs = append(errs, word(field.NewPath("image"), c.Image, imageRules, "")...)
	errs = append(errs, validateProbe(field.NewPath("probe"), &c.Probe)...)
	return append(errs, validateAPIServers(field.NewPath("apiServers"), c)...)
}

// UseImage sets the reporter's image where the file has none. It is an error where
// neither has one, or the one that is set is not a valid image reference.
func (c *OperatorConfiguration) UseImage(image string) error {
	switch {
	case c.Image != "":
		return nil
	case image == "":
		return field.Required(field.NewPath("image"),
			"the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE")
	}
	c.Image = image
	return word(field.NewPath("--image"), image, imageRules, "").ToAggregate()
}

// imageRules rejects what is no image's reference at sight. The node that pulls it checks the rest.
func imageRules(image string) []string {
	if strings.Contains(image, "://") || strings.ContainsFunc(image, unicode.IsSpace) {
		return []string{"must be the reference of an image, as in registry.example.com/kms-health-reporter:v1"}
	}
	return nil
}

func validateAPIServers(path *field.Path, c *OperatorConfiguration) field.ErrorList {
	if c.APIServers == nil {
		return field.ErrorList{field.Required(path, "use an empty list, [], for no API server")}
	}
	if len(c.APIServers) > MaxAPIServers {
		return field.ErrorList{field.TooMany(path, len(c.APIServers), MaxAPIServers)}
	}
	var errs field.ErrorList
	names, resources := map[string]bool{}, map[Resource]bool{}
	for i := range c.APIServers {
		t, at := &c.APIServers[i], path.Index(i)
		errs = append(errs, validateAPIServer(at, t, c)...)
		if names[t.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), t.Name))
		}
		// Two reporters of a node would overwrite each other's entry.
		if resources[t.Resource] && t.Resource != "" && !t.Resource.PerAPIServer() {
			errs = append(errs, field.Duplicate(at.Child("resource"), t.Resource))
		}
		names[t.Name], resources[t.Resource] = true, true
	}
	return errs
}

func validateAPIServer(at *field.Path, t *APIServer, c *OperatorConfiguration) field.ErrorList {
	resources := append(contract.ResourceNames(), contract.KMSHealthsPlural)
	errs := oneOf(at.Child("resource"), string(t.Resource), resources...)
	if len(errs) == 0 { // it has the defaults of the following
		errs = append(errs, validateName(at.Child("name"), t)...)
		errs = append(errs, word(at.Child("namespace"), t.Namespace, validation.IsDNS1123Label,
			"the namespace of the API server's pods")...)
		if len(t.PodSelector) == 0 {
			errs = append(errs, field.Required(at.Child("podSelector"), "the labels of the API server's pods"))
		}
	}
	errs = append(errs, validateLabels(at.Child("podSelector"), t.PodSelector)...)
	errs = append(errs, validateLabels(at.Child("nodeSelector"), t.NodeSelector)...)
	errs = append(errs, word(at.Child("container"), t.Container, validation.IsDNS1123Label, "")...)
	errs = append(errs, validatePluginSource(at, t, c.Probe.Interval.Duration)...)
	errs = append(errs, validateMode(at, t)...)
	errs = append(errs, validateConnection(at.Child("connection"), &t.Connection)...)
	if t.Serving != nil {
		path := at.Child("serving")
		errs = append(errs, validateAddress(path.Child("address"), t.Serving.Address, t.Serving.Secret != "", "secret")...)
		errs = append(errs, word(path.Child("secret"), t.Serving.Secret, validation.IsDNS1123Subdomain, "")...)
		if t.Serving.Secret != "" && t.Mode.InOwnersPods() {
			errs = append(errs, field.Invalid(path.Child("secret"), short(t.Serving.Secret),
				fmt.Sprintf("must not be set with mode %s, whose pods do not mount it", t.Mode)))
		}
	}
	return errs
}

func validateLabels(at *field.Path, labels map[string]string) (errs field.ErrorList) {
	if len(labels) > maxElements {
		return field.ErrorList{field.TooMany(at, len(labels), maxElements)}
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		errs = append(errs, word(at.Key(name), name, validation.IsQualifiedName, "the name of a label")...)
		errs = append(errs, word(at.Key(name), labels[name], validation.IsValidLabelValue, "")...)
	}
	return errs
}

// validatePluginSource checks the plugins, or the Secret that they are read from.
func validatePluginSource(at *field.Path, t *APIServer, interval time.Duration) field.ErrorList {
	if t.Plugins == nil {
		return validateEncryptionConfig(at.Child("encryptionConfig"), &t.EncryptionConfig)
	}
	plugins := at.Child("plugins")
	errs := validatePlugins(plugins, t.Plugins, interval)
	if e := t.EncryptionConfig; e.Secret != "" || e.Key != "" || len(e.KeyIDs) > 0 {
		text := fmt.Sprintf("must not be set together with %s", plugins)
		errs = append(errs, field.Forbidden(at.Child("encryptionConfig"), text))
	}
	for i, p := range t.Plugins {
		if address, err := SocketAddress(p.Endpoint); err == nil && HasParentFolder(address) {
			errs = append(errs, field.Invalid(plugins.Index(i).Child("endpoint"), short(p.Endpoint), ParentFolderRule))
		}
	}
	return errs
}

// validateName checks that an API server of OpenShift has the name of its resource's row:
// the name is in labels, metrics and commands, also of those that do not read the file.
func validateName(at *field.Path, t *APIServer) field.ErrorList {
	row := contract.ResourceOf(string(t.Resource)).APIServer
	switch {
	case t.Name == "":
		return field.ErrorList{field.Required(at, "a DNS label")}
	case row.Name != "" && t.Name != row.Name:
		return field.ErrorList{field.Invalid(at, short(t.Name),
			fmt.Sprintf("must be %s, the API server of %s: remove the field", row.Name, t.Resource))}
	case len(t.Name) > maxAPIServerName:
		return field.ErrorList{field.TooLong(at, "", maxAPIServerName)}
	}
	return word(at, t.Name, validation.IsDNS1123Label, "")
}

func validateEncryptionConfig(at *field.Path, e *EncryptionConfig) field.ErrorList {
	errs := word(at.Child("secret"), e.Secret, validation.IsDNS1123Subdomain,
		"the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig")
	errs = append(errs, word(at.Child("key"), e.Key, validation.IsConfigMapKey, "")...)
	if n := len(e.KeyIDs); n > maxElements {
		return append(errs, field.TooMany(at.Child("keyIDs"), n, maxElements))
	}
	for _, endpoint := range slices.Sorted(maps.Keys(e.KeyIDs)) {
		at := at.Child("keyIDs").Key(endpoint)
		errs = append(errs, word(at, endpoint, socketRules, "an endpoint")...)
		errs = append(errs, word(at, e.KeyIDs[endpoint], keyIDRules, "the key ID of the endpoint")...)
	}
	return errs
}

// validateConnection validates the addresses of the API server. All of them become a
// reporter's servers.
func validateConnection(at *field.Path, a *Connection) field.ErrorList {
	errs := validateServer(at, "server", a.Server, a.TLSServerName)
	if most := MaxServers - 1; len(a.Fallbacks) > most {
		errs = append(errs, field.TooMany(at.Child("fallbacks"), len(a.Fallbacks), most))
	}
	return append(errs, validateServers(at.Child("fallbacks"), a.Fallbacks, a.Server)...)
}

func validateMode(at *field.Path, t *APIServer) field.ErrorList {
	errs := oneOf(at.Child("mode"), t.Mode, Modes...)
	if t.Deployment != "" && !t.Mode.InOwnersPods() {
		errs = append(errs, field.Invalid(at.Child("deployment"), short(t.Deployment), "is for mode Sidecar only"))
	}
	errs = append(errs, word(at.Child("deployment"), t.Deployment, validation.IsDNS1123Subdomain, "")...)
	errs = append(errs, oneOf(at.Child("configSource"), t.ConfigSource, ConfigSourceConfigMap, ConfigSourceAnnotation)...)
	if t.ConfigSource == ConfigSourceAnnotation && t.Mode.InOwnersPods() {
		errs = append(errs, field.Invalid(at.Child("configSource"), t.ConfigSource,
			fmt.Sprintf("cannot serve mode %s: its pods mount the ConfigMap", t.Mode)))
	}
	return errs
}
