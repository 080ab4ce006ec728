package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxTargets is far more API servers than a cluster has.
	MaxTargets = 16
	// maxTargetName leaves room in the names of 63 characters made from it.
	maxTargetName = 40
)

func validateOperator(c *OperatorConfiguration) field.ErrorList {
	errs := oneOf(field.NewPath("managementState"), c.ManagementState, Managed, Unmanaged, Removed)
	errs = append(errs, validateImage(field.NewPath("image"), c.Image)...)
	errs = append(errs, validateProbe(field.NewPath("probe"), &c.Probe)...)
	errs = append(errs, oneOf(field.NewPath("format"), c.Format, FormatCondition, FormatHealthReports, FormatBoth)...)
	errs = append(errs, validateTypedInterval(c.Format, c.Probe.Interval.Duration)...)
	errs = append(errs, oneOf(field.NewPath("rollout"), c.Rollout, RolloutNeeded, RolloutAlways)...)
	errs = append(errs, validateRollups(field.NewPath("rollups"), c.Rollups)...)
	return append(errs, validateTargets(field.NewPath("targets"), c)...)
}

// UseImage sets the reporter's image where the file has none. It is an error where
// neither has one, or the one that is set is not a valid image reference.
func (c *OperatorConfiguration) UseImage(image string) error {
	switch {
	case c.Image != "":
		return nil
	case image == "":
		return field.Required(field.NewPath("image"), "the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE")
	}
	c.Image = image
	return validateImage(field.NewPath("--image"), image).ToAggregate()
}

func validateRollups(path *field.Path, rollups []Rollup) field.ErrorList {
	var errs field.ErrorList
	seen := map[Rollup]bool{}
	for i, r := range rollups {
		errs = append(errs, oneOf(path.Index(i), r, RollupDegraded, RollupAvailable, RollupProgressing)...)
		if seen[r] {
			errs = append(errs, field.Duplicate(path.Index(i), r))
		}
		seen[r] = true
	}
	if !seen[RollupDegraded] {
		errs = append(errs, field.Required(path, "must contain Degraded, which reports an unhealthy plugin"))
	}
	return errs
}

func validateTargets(path *field.Path, c *OperatorConfiguration) field.ErrorList {
	if c.Targets == nil {
		return field.ErrorList{field.Required(path, "use an empty list, [], for no target")}
	}
	if len(c.Targets) > MaxTargets {
		return field.ErrorList{field.TooMany(path, len(c.Targets), MaxTargets)}
	}
	var errs field.ErrorList
	names, resources := map[string]bool{}, map[Resource]bool{}
	for i := range c.Targets {
		t, at := &c.Targets[i], path.Index(i)
		errs = append(errs, validateTarget(at, t, c)...)
		if names[t.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), t.Name))
		}
		// Two reporters of a node would overwrite each other's entry.
		if resources[t.Resource] && t.Resource != "" && !t.Resource.PerTarget() {
			errs = append(errs, field.Duplicate(at.Child("resource"), t.Resource))
		}
		names[t.Name], resources[t.Resource] = true, true
	}
	return errs
}

func validateTarget(at *field.Path, t *Target, c *OperatorConfiguration) field.ErrorList {
	var errs field.ErrorList
	if t.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "a DNS label"))
	} else if errs = append(errs, dnsLabel(at.Child("name"), t.Name)...); len(t.Name) > maxTargetName {
		errs = append(errs, field.TooLong(at.Child("name"), "", maxTargetName))
	}
	switch targetResources := slices.Concat(openShiftResources, []Resource{ResourceKMSHealths}); {
	case t.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), "one of kubeapiservers, openshiftapiservers, authentications, kmshealths"))
	case t.Resource.PerTarget() && (c.Format == FormatHealthReports || c.Format == FormatBoth):
		errs = append(errs, field.Invalid(at.Child("resource"), t.Resource, fmt.Sprintf("has no healthReports, which format %s writes", c.Format)))
	default:
		errs = append(errs, oneOf(at.Child("resource"), t.Resource, targetResources...)...)
	}
	if t.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), "the namespace of the API server's pods"))
	} else {
		errs = append(errs, dnsLabel(at.Child("namespace"), t.Namespace)...)
	}
	if len(t.PodSelector) == 0 {
		errs = append(errs, field.Required(at.Child("podSelector"), "the labels of the API server's pods"))
	}
	errs = append(errs, labels(at.Child("podSelector"), t.PodSelector)...)
	errs = append(errs, labels(at.Child("nodeSelector"), t.NodeSelector)...)
	if t.Container != "" {
		errs = append(errs, dnsLabel(at.Child("container"), t.Container)...)
	}
	if t.Plugins == nil {
		errs = append(errs, validateEncryptionConfig(at.Child("encryptionConfig"), &t.EncryptionConfig)...)
	} else {
		if e := t.EncryptionConfig; e.Secret != "" || e.Key != "" || len(e.KeyIDs) > 0 {
			errs = append(errs, field.Forbidden(at.Child("encryptionConfig"), fmt.Sprintf("must be left out where %s gives the plugins", at.Child("plugins"))))
		}
		errs = append(errs, validatePlugins(at.Child("plugins"), t.Plugins, c.Probe.Interval.Duration)...)
		for i, p := range t.Plugins {
			if address, err := SocketAddress(p.Endpoint); err == nil && HasParentFolder(address) {
				errs = append(errs, field.Invalid(at.Child("plugins").Index(i).Child("endpoint"), short(p.Endpoint), ParentFolderRule))
			}
		}
	}
	errs = append(errs, validateDelivery(at, t)...)
	errs = append(errs, validateAPIServer(at.Child("apiServer"), &t.APIServer)...)
	if t.Serving != nil {
		errs = append(errs, validateTargetServing(at.Child("serving"), t.Serving)...)
		if t.Serving.Secret != "" && t.Delivery.InOwnersPods() {
			errs = append(errs, field.Invalid(at.Child("serving", "secret"), short(t.Serving.Secret), fmt.Sprintf("must be left out with delivery %s, whose pods do not mount it", t.Delivery)))
		}
	}
	return errs
}

func validateEncryptionConfig(at *field.Path, e *EncryptionConfig) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(e.Secret) {
		errs = append(errs, field.Invalid(at.Child("secret"), short(e.Secret), why))
	}
	for _, why := range validation.IsConfigMapKey(e.Key) {
		errs = append(errs, field.Invalid(at.Child("key"), short(e.Key), why))
	}
	for endpoint, keyID := range e.KeyIDs {
		at := at.Child("keyIDs").Key(endpoint)
		if _, err := SocketAddress(endpoint); err != nil {
			errs = append(errs, field.Invalid(at, short(endpoint), err.Error()))
		}
		if !ValidKeyID(keyID) {
			errs = append(errs, field.Invalid(at, short(keyID), keyIDRule))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) }) // map iteration has no order
	return errs
}

// validateAPIServer validates the addresses of the API server. All of them become a
// reporter's servers.
func validateAPIServer(at *field.Path, a *APIServer) field.ErrorList {
	errs := validateServer(at, "server", a.Server, a.TLSServerName)
	if most := MaxServers - 1; len(a.Fallbacks) > most {
		errs = append(errs, field.TooMany(at.Child("fallbacks"), len(a.Fallbacks), most))
	}
	return append(errs, validateServers(at.Child("fallbacks"), a.Fallbacks, a.Server)...)
}

func validateDelivery(at *field.Path, t *Target) field.ErrorList {
	errs := oneOf(at.Child("delivery"), t.Delivery, DeliveryAuto, DeliveryCompanion, DeliveryDaemonSet, DeliveryDeployment, DeliveryExternal)
	switch {
	case t.Delivery == DeliveryDeployment && t.Deployment == "":
		errs = append(errs, field.Required(at.Child("deployment"), "the Deployment to patch, with delivery Deployment"))
	case t.Delivery != DeliveryDeployment && t.Deployment != "":
		errs = append(errs, field.Invalid(at.Child("deployment"), short(t.Deployment), "must be left out unless delivery is Deployment"))
	}
	for _, why := range validation.IsDNS1123Subdomain(t.Deployment) {
		if t.Deployment != "" {
			errs = append(errs, field.Invalid(at.Child("deployment"), short(t.Deployment), why))
		}
	}
	errs = append(errs, oneOf(at.Child("configSource"), t.ConfigSource, ConfigSourceAuto, ConfigSourceConfigMap, ConfigSourceAnnotation)...)
	if t.ConfigSource == ConfigSourceAnnotation && t.Delivery.InOwnersPods() {
		errs = append(errs, field.Invalid(at.Child("configSource"), t.ConfigSource, fmt.Sprintf("cannot serve delivery %s: its pods mount the ConfigMap", t.Delivery)))
	}
	credentials := at.Child("credentials")
	known := oneOf(credentials, t.Credentials, CredentialsBoundToken, CredentialsMintedToken, CredentialsClientCertificate, CredentialsLegacyToken)
	switch own := t.Credentials == CredentialsBoundToken; {
	case len(known) > 0:
		errs = append(errs, known...)
	case own && t.Delivery.InOwnersPods():
		errs = append(errs, field.Invalid(credentials, t.Credentials, fmt.Sprintf("cannot serve delivery %s: the kubelet issues tokens of the pods' own ServiceAccount only", t.Delivery)))
	case !own && !t.Delivery.InOwnersPods():
		errs = append(errs, field.Invalid(credentials, t.Credentials, fmt.Sprintf("must be BoundToken with delivery %s: a pod that mounts a Secret cannot start while the plugin is unhealthy", t.Delivery)))
	}
	return errs
}

func validateTargetServing(at *field.Path, s *TargetServing) field.ErrorList {
	var tls *ServingTLS
	if s.Secret != "" {
		tls = &ServingTLS{CertFile: "/tls.crt", KeyFile: "/tls.key", MinVersion: TLS12}
	}
	var errs field.ErrorList
	for _, e := range validateServing(at, &Serving{Address: s.Address, TLS: tls}) {
		e.Detail = strings.ReplaceAll(e.Detail, "serving.tls", "secret")
		errs = append(errs, e)
	}
	if s.Secret != "" {
		for _, why := range validation.IsDNS1123Subdomain(s.Secret) {
			errs = append(errs, field.Invalid(at.Child("secret"), short(s.Secret), why))
		}
	}
	return errs
}

func dnsLabel(at *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(at, short(name), why))
	}
	return errs
}

func labels(at *field.Path, selector map[string]string) field.ErrorList {
	return metav1validation.ValidateLabels(selector, at)
}
