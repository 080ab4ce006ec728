// Package olm makes the bundle by which the Operator Lifecycle Manager (OLM) installs the operator,
// from the manifests for OpenShift, and the files of what OLM does not install. Each object of the
// manifests is in one of them.
//
// The bundle has the format registry+v1. Of it OLM installs the ClusterServiceVersion's Deployment,
// ServiceAccount and rights, and objects of some kinds, all in the one namespace of the operator,
// whatever namespace an object names. So these are not in it:
//
//   - kinds that it does not support: ValidatingAdmissionPolicies, SecurityContextConstraints,
//     the ClusterOperator, the Namespace itself;
//   - Roles and RoleBindings of other namespaces;
//   - NetworkPolicies, which OLM supports since September 2025 only: an older one rejects the bundle;
//   - the configuration, a ConfigMap, which an upgrade by OLM would overwrite.
package olm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/manifests/install"
)

// Names of the files beside the bundle.
const (
	PrerequisitesFile = "olm-prerequisites.yaml"
	ConfigFile        = "olm-config.yaml"
)

// packageName is the operator's in a catalog, and the name of its objects.
const packageName = install.ServiceAccount

// Options is what a release adds to the manifests.
type Options struct {
	Version            string // semantic, without v
	Created            time.Time
	Operator, Reporter string // images, by digest
	Architectures      []string
}

// Bundle is what a release has for OLM.
type Bundle struct {
	Files         map[string][]byte // of the bundle, with bundle.Dockerfile beside its folder
	Prerequisites []byte            // what OLM does not install, to be applied before each version
	Config        []byte            // the configuration, to be applied once
}

// Make makes the bundle of the objects of manifests/openshift.
func Make(objects []*unstructured.Unstructured, o Options) (*Bundle, error) {
	p := divide(objects)
	csv, err := o.serviceVersion(p)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Files: map[string][]byte{
		"bundle.Dockerfile":                []byte(o.dockerfile()),
		"bundle/metadata/annotations.yaml": marshal(map[string]any{"annotations": o.annotations()}),
		"bundle/manifests/" + packageName + ".clusterserviceversion.yaml": marshal(csv),
	}}
	for _, object := range p.carried {
		object = object.DeepCopy()
		object.SetNamespace("") // OLM uses that of the operator
		b.Files["bundle/manifests/"+object.GetName()+"_"+strings.ToLower(object.GetKind())+".yaml"] = marshal(object.Object)
	}
	about := "for kms-health-operator " + o.Version
	b.Prerequisites = documents("# What OLM does not install, "+about+". Apply it before you install or upgrade the operator.\n", p.before)
	b.Config = documents("# The configuration, "+about+". Apply it once: applied again, it overwrites your changes.\n", p.config)
	return b, nil
}

func documents(comment string, objects []*unstructured.Unstructured) []byte {
	all := []byte(comment)
	for _, object := range objects {
		all = append(append(all, "---\n"...), marshal(object.Object)...)
	}
	return all
}

// parts are the objects by who installs them.
type parts struct {
	deployment         *unstructured.Unstructured
	clusterRole, role  *unstructured.Unstructured   // rights of the operator's ServiceAccount
	accountAndBindings []*unstructured.Unstructured // of these rights: OLM makes them anew
	carried            []*unstructured.Unstructured
	before             []*unstructured.Unstructured
	config             []*unstructured.Unstructured
	namespace          *unstructured.Unstructured // also one of before
}

// carriedKinds are those of objects that every supported OLM installs beside the Deployment.
var carriedKinds = []string{"PodDisruptionBudget", "PrometheusRule", "Role", "RoleBinding", "Service", "ServiceMonitor"}

func divide(objects []*unstructured.Unstructured) parts {
	var p parts
	for _, o := range objects {
		kind, own := o.GetKind(), o.GetNamespace() == install.Namespace(install.OpenShift)
		operators := o.GetName() == packageName && (own || o.GetNamespace() == "")
		switch {
		case operators && kind == "Deployment":
			p.deployment = o
		case operators && kind == "ClusterRole":
			p.clusterRole = o
		case operators && kind == "Role":
			p.role = o
		case operators && slices.Contains([]string{"ServiceAccount", "ClusterRoleBinding", "RoleBinding"}, kind):
			p.accountAndBindings = append(p.accountAndBindings, o)
		case own && slices.Contains(carriedKinds, kind):
			p.carried = append(p.carried, o)
		case own && kind == "ConfigMap":
			p.config = append(p.config, o)
		default:
			if kind == "Namespace" {
				p.namespace = o
			}
			p.before = append(p.before, o)
		}
	}
	return p
}

func (o Options) channel() string {
	if strings.HasPrefix(o.Version, "0.") || strings.Contains(o.Version, "-") {
		return "candidate"
	}
	return "stable"
}

// annotations are those of the bundle, which are also its image's labels.
func (o Options) annotations() map[string]string {
	const prefix = "operators.operatorframework.io.bundle."
	return map[string]string{
		prefix + "mediatype.v1":         "registry+v1",
		prefix + "manifests.v1":         "manifests/",
		prefix + "metadata.v1":          "metadata/",
		prefix + "package.v1":           packageName,
		prefix + "channels.v1":          o.channel(),
		prefix + "channel.default.v1":   o.channel(),
		"com.redhat.openshift.versions": "v4.17",
	}
}

func (o Options) dockerfile() string {
	var b strings.Builder
	b.WriteString("# docker build -f bundle.Dockerfile .\nFROM scratch\n")
	labels := o.annotations()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "LABEL %s=%q\n", name, labels[name])
	}
	b.WriteString("COPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\n")
	return b.String()
}

// marshal writes an object, whose keys are sorted.
func marshal(object any) []byte {
	raw, err := yaml.Marshal(object)
	if err != nil {
		panic(err) // it comes from YAML
	}
	return bytes.TrimLeft(raw, "\n")
}
