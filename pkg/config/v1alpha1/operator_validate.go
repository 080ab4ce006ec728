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
	probe := field.NewPath("probe")
	return slices.Concat(
		when(c.Probe.Checks.RoundTrip.Requested != "", field.Forbidden(probe.Child("checks", "roundTrip", "requested"),
			"the operator sets it, from the annotation "+contract.ProbeRequestedAnnotation+
				" of the operator resource or KMSHealth")),
		oneOf(field.NewPath("managementState"), c.ManagementState, Managed, Unmanaged, Removed),
		validateImage(c.Image),
		validateProbe(probe, &c.Probe),
		between(field.NewPath("unchangedEvery"), c.UnchangedEvery, minUnchanged, maxUnchanged),
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
	errs := when(c.APIServers == nil, field.Required(path, "use an empty list, [], for no API server"))
	names, resources := seen{}, seen{}
	for i := range c.APIServers {
		t, at := &c.APIServers[i], path.Index(i)
		errs = slices.Concat(errs, validateAPIServer(at, t, c), names.again(at.Child("name"), t.Name, t.Name))
		if t.Resource != ResourceKMSHealths { // two reporters of a node would overwrite each other's entry
			errs = append(errs, resources.again(at.Child("resource"), string(t.Resource), string(t.Resource))...)
		}
	}
	return errs
}

func validateAPIServer(at *field.Path, t *APIServer, c *OperatorConfiguration) field.ErrorList {
	errs := validateResource(at.Child("resource"), t.Resource)
	if len(errs) == 0 { // otherwise these fields have no defaults
		errs = slices.Concat(validateName(at.Child("name"), t),
			word(at.Child("namespace"), t.Namespace, validation.IsDNS1123Label, "the namespace of the API server's pods"),
			when(len(t.PodSelector) == 0, field.Required(at.Child("podSelector"), "the labels of the API server's pods")))
	}
	return slices.Concat(errs,
		validateLabels(at.Child("podSelector"), t.PodSelector),
		validateLabels(at.Child("nodeSelector"), t.NodeSelector),
		word(at.Child("container"), t.Container, validation.IsDNS1123Label, ""),
		validatePluginSource(at, t, c.Probe.Interval.Duration),
		validateMode(at, t),
		validateServer(at.Child("connection"), "server", t.Connection.Server, t.Connection.TLSServerName),
		validateServers(at.Child("connection", "fallbacks"), t.Connection.Fallbacks, MaxServers-1),
		validateAPIServerServing(at.Child("serving"), t.Serving, t.Mode))
}

func validateAPIServerServing(path *field.Path, s *APIServerServing, mode Mode) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := slices.Concat(validateAddress(path.Child("address"), s.Address, s.Secret != "", "secret"),
		word(path.Child("secret"), s.Secret, validation.IsDNS1123Subdomain, ""),
		when(s.Secret != "" && mode.InOwnersPods(), field.Invalid(path.Child("secret"), short(s.Secret),
			fmt.Sprintf("must not be set with mode %s, whose pods do not mount it", mode))),
		when(s.TLS != nil && s.Secret == "", field.Forbidden(path.Child("tls"), "must not be set without secret")))
	if s.TLS != nil {
		errs = append(errs, validateTLS(path.Child("tls"), s.TLS.MinVersion, s.TLS.CipherSuites)...)
	}
	return errs
}

func validateLabels(path *field.Path, labels map[string]string) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		at := path.Key(shownKey(name))
		errs = slices.Concat(errs, word(at, name, validation.IsQualifiedName, "the name of a label"),
			word(at, labels[name], validation.IsValidLabelValue, ""))
	}
	return errs
}

// validatePluginSource checks the plugins, or the Secret that they are read from.
func validatePluginSource(at *field.Path, t *APIServer, interval time.Duration) field.ErrorList {
	if t.Plugins == nil {
		return validateEncryptionConfig(at.Child("encryptionConfig"), &t.EncryptionConfig)
	}
	path, e := at.Child("plugins"), t.EncryptionConfig
	errs := slices.Concat(validatePlugins(path, t.Plugins, interval),
		when(e != EncryptionConfig{},
			field.Forbidden(at.Child("encryptionConfig"), "must not be set together with plugins")))
	for i, p := range t.Plugins {
		err := CheckSocketFolder(SocketFolder(p.Endpoint))
		errs = append(errs, when(err != nil && !t.Mode.InOwnersPods(),
			field.Invalid(path.Index(i).Child("endpoint"), short(p.Endpoint), fmt.Sprint(err)))...)
	}
	return errs
}

// validateName checks that an API server of OpenShift has the name of its resource's row. Programs
// that do not read the file use that name in labels, metrics and commands.
func validateName(at *field.Path, t *APIServer) field.ErrorList {
	row := contract.ResourceOf(string(t.Resource)).APIServer
	switch {
	case row.Name != "" && t.Name != row.Name:
		return field.ErrorList{field.Invalid(at, short(t.Name),
			fmt.Sprintf("must be %s, the API server of %s: remove the field", row.Name, t.Resource))}
	case len(t.Name) > maxAPIServerName:
		return field.ErrorList{field.TooLong(at, "", maxAPIServerName)}
	}
	return word(at, t.Name, validation.IsDNS1123Label, "a DNS label")
}

func validateEncryptionConfig(path *field.Path, e *EncryptionConfig) field.ErrorList {
	return slices.Concat(word(path.Child("secret"), e.Secret, validation.IsDNS1123Subdomain,
		"the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig"),
		word(path.Child("key"), e.Key, validation.IsConfigMapKey, ""))
}

func validateMode(at *field.Path, t *APIServer) field.ErrorList {
	return slices.Concat(
		oneOf(at.Child("mode"), t.Mode, Modes...),
		when(t.Deployment != "" && !t.Mode.InOwnersPods(),
			field.Invalid(at.Child("deployment"), short(t.Deployment), "is for mode Sidecar only")),
		word(at.Child("deployment"), t.Deployment, validation.IsDNS1123Subdomain, ""),
		oneOf(at.Child("configSource"), t.ConfigSource, ConfigSourceConfigMap, ConfigSourceAnnotation),
		when(t.ConfigSource == ConfigSourceAnnotation && t.Mode.InOwnersPods(),
			field.Invalid(at.Child("configSource"), t.ConfigSource,
				fmt.Sprintf("cannot serve mode %s: its pods mount the ConfigMap", t.Mode))))
}
