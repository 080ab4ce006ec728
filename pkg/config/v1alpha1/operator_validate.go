package v1alpha1

import (
	"cmp"
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

// maxAPIServerName leaves room in the names of 63 characters made from it.
const maxAPIServerName = 40

func validateOperator(c *OperatorConfiguration) field.ErrorList {
	var errs field.ErrorList
	probe := field.NewPath("probe")
	if c.Probe.Checks.RoundTrip.Requested != "" {
		errs = append(errs, field.Forbidden(probe.Child("checks", "roundTrip", "requested"), "the operator sets it, "+
			"from the annotation "+contract.ProbeRequestedAnnotation+" of the operator resource or KMSHealth"))
	}
	return slices.Concat(errs,
		oneOf(field.NewPath("managementState"), c.ManagementState, Managed, Unmanaged, Removed),
		validateImage(c.Image),
		validateProbe(probe, &c.Probe),
		validateUnchangedEvery(field.NewPath("unchangedEvery"), c.UnchangedEvery),
		validateAPIServers(field.NewPath("apiServers"), c))
}

// UseImage sets the reporter's image if the file has none. It returns an error if neither has
// one, or if it cannot be an image.
func (c *OperatorConfiguration) UseImage(image string) error {
	c.Image = cmp.Or(c.Image, image)
	if c.Image == "" {
		return field.Required(field.NewPath("image"),
			"the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE")
	}
	return validateImage(c.Image).ToAggregate()
}

// validateImage rejects what no container runtime accepts as an image: white space, a URL, a tag alone.
func validateImage(image string) field.ErrorList {
	return word(field.NewPath("image"), image, func(string) []string {
		return unless(!strings.ContainsAny(image[:1], ":/@") && !strings.Contains(image, "://") &&
			!strings.ContainsFunc(image, unicode.IsSpace), "must be an image, as registry.example.com/kms-health-reporter:v1")
	}, "")
}

func validateAPIServers(path *field.Path, c *OperatorConfiguration) field.ErrorList {
	if c.APIServers == nil {
		return field.ErrorList{field.Required(path, "use an empty list, [], for no API server")}
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
		if resources[t.Resource] && t.Resource != "" && t.Resource != ResourceKMSHealths {
			errs = append(errs, field.Duplicate(at.Child("resource"), t.Resource))
		}
		names[t.Name], resources[t.Resource] = true, true
	}
	return errs
}

func validateAPIServer(at *field.Path, t *APIServer, c *OperatorConfiguration) field.ErrorList {
	resources := append(contract.ResourceNames(), contract.KMSHealthsPlural)
	errs := oneOf(at.Child("resource"), string(t.Resource), resources...)
	if len(errs) == 0 { // otherwise these fields have no defaults
		errs = append(errs, validateName(at.Child("name"), t)...)
		errs = append(errs, word(at.Child("namespace"), t.Namespace, validation.IsDNS1123Label,
			"the namespace of the API server's pods")...)
		if len(t.PodSelector) == 0 {
			errs = append(errs, field.Required(at.Child("podSelector"), "the labels of the API server's pods"))
		}
	}
	errs = slices.Concat(errs,
		validateLabels(at.Child("podSelector"), t.PodSelector),
		validateLabels(at.Child("nodeSelector"), t.NodeSelector),
		word(at.Child("container"), t.Container, validation.IsDNS1123Label, ""),
		validatePluginSource(at, t, c.Probe.Interval.Duration),
		validateMode(at, t),
		validateServer(at.Child("connection"), "server", t.Connection.Server, t.Connection.TLSServerName),
		validateServers(at.Child("connection", "fallbacks"), t.Connection.Fallbacks, MaxServers-1))
	if t.Serving != nil {
		path := at.Child("serving")
		errs = append(errs, validateAddress(path.Child("address"), t.Serving.Address, t.Serving.Secret != "", "secret")...)
		errs = append(errs, word(path.Child("secret"), t.Serving.Secret, validation.IsDNS1123Subdomain, "")...)
		if s := t.Serving.TLS; s != nil {
			errs = append(errs, validateTLS(path.Child("tls"), s.MinVersion, s.CipherSuites)...)
			if t.Serving.Secret == "" {
				errs = append(errs, field.Forbidden(path.Child("tls"), "must not be set without secret"))
			}
		}
		if t.Serving.Secret != "" && t.Mode.InOwnersPods() {
			errs = append(errs, field.Invalid(path.Child("secret"), short(t.Serving.Secret),
				fmt.Sprintf("must not be set with mode %s, whose pods do not mount it", t.Mode)))
		}
	}
	return errs
}

func validateLabels(at *field.Path, labels map[string]string) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		errs = append(errs, word(at.Key(shownKey(name)), name, validation.IsQualifiedName, "the name of a label")...)
		errs = append(errs, word(at.Key(shownKey(name)), labels[name], validation.IsValidLabelValue, "")...)
	}
	return errs
}

// validatePluginSource checks the plugins, or the Secret that they are read from.
func validatePluginSource(at *field.Path, t *APIServer, interval time.Duration) field.ErrorList {
	if t.Plugins == nil {
		return validateEncryptionConfig(at.Child("encryptionConfig"), &t.EncryptionConfig)
	}
	errs := validatePlugins(at.Child("plugins"), t.Plugins, interval)
	for i, p := range t.Plugins {
		if err := CheckSocketFolder(SocketFolder(p.Endpoint)); err != nil && !t.Mode.InOwnersPods() {
			errs = append(errs, field.Invalid(at.Child("plugins").Index(i).Child("endpoint"), short(p.Endpoint), err.Error()))
		}
	}
	if e := t.EncryptionConfig; e.Secret != "" || e.Key != "" || len(e.KeyIDs) > 0 {
		errs = append(errs, field.Forbidden(at.Child("encryptionConfig"), "must not be set together with plugins"))
	}
	return errs
}

// validateName checks that an API server of OpenShift has the name of its resource's row. Programs
// that do not read the file use that name in labels, metrics and commands.
func validateName(at *field.Path, t *APIServer) field.ErrorList {
	row := contract.ResourceOf(string(t.Resource)).APIServer
	if row.Name != "" && t.Name != row.Name {
		return field.ErrorList{field.Invalid(at, short(t.Name),
			fmt.Sprintf("must be %s, the API server of %s: remove the field", row.Name, t.Resource))}
	}
	if len(t.Name) > maxAPIServerName {
		return field.ErrorList{field.TooLong(at, "", maxAPIServerName)}
	}
	return word(at, t.Name, validation.IsDNS1123Label, "a DNS label")
}

func validateEncryptionConfig(at *field.Path, e *EncryptionConfig) field.ErrorList {
	errs := word(at.Child("secret"), e.Secret, validation.IsDNS1123Subdomain,
		"the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig")
	errs = append(errs, word(at.Child("key"), e.Key, validation.IsConfigMapKey, "")...)
	sockets := map[string]bool{}
	for _, endpoint := range slices.Sorted(maps.Keys(e.KeyIDs)) {
		at := at.Child("keyIDs").Key(shownKey(endpoint))
		if sockets[Plain(endpoint)] {
			errs = append(errs, field.Duplicate(at, short(endpoint)))
		}
		sockets[Plain(endpoint)] = true
		errs = slices.Concat(errs, word(at, endpoint, socketRules, "an endpoint"),
			word(at, e.KeyIDs[endpoint], keyIDRules, "the key ID of the endpoint"))
	}
	return errs
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
