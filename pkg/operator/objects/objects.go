// Package objects makes the objects that the operator applies, from bindata/ and values. Each
// mode is one function: CompanionPod, DaemonSet, Sidecar, over one container. For the first
// two, it finds the folders of a node that hold the sockets of an API server's pod.
//
// It is pure: the controller and the render command call the same functions, so both give
// the same bytes.
package objects

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

//go:generate go test . -run TestObjectsOfEachMode -update

// Input is what the objects of one target are made of.
type Input struct {
	Config    *v1alpha1.OperatorConfiguration // with an image
	Namespace string                          // of the reporters that are pods of their own
	Target    *v1alpha1.APIServer
	OpenShift bool
	TLS       v1alpha1.ServingTLS // what the cluster's TLS profile decides of it
	CA        []byte              // the API server's, PEM. A static pod may have it as CAFile beside its credentials
	// HostFolder is the folder of the node with the files of a static pod, which can refer to
	// no object of the API. Empty: the API server's pod is no static pod, or gets no sidecar.
	HostFolder string
	// ClusterServer is the URL by which the nodes reach any API server of the cluster, if it is known.
	ClusterServer string
	// Requested is the round trip that is requested of the target's reporters; empty: none. It reaches
	// running pods, and is in nothing that a change would replace them for.
	Requested string
	Owner     *Owner // once it has a UID
}

// Owner is a target's ClusterRole.
type Owner struct{ Name, UID string }

// APIServerPod is one running API server pod.
type APIServerPod struct {
	Node, UID string // the UID is the pod's on its node: see PodUID
	Folders   []Folder
	User      contract.User // of its API server's container
}

// PolicyName is that of the reporters' admission policy, and of its binding.
const PolicyName = "kms-health-reporter"

// Policies are the names of the admission policies of an installation on OpenShift, and of
// their bindings. Components add others.
var Policies = []string{
	PolicyName, "kms-health-reporter-rights", "kms-health-pods",
	"kms-health-operator-configmaps", "kms-health-operator-roles", "kms-health-operator-status",
}

// Policy bounds what the reporters' identities may write. It is the same for all
// targets, and is installed with the operator.
func Policy() []*unstructured.Unstructured { return decode(install.ReporterPolicy) }

// Identity is the target's ServiceAccount, where its reporters run, with its one right.
func (in *Input) Identity() []*unstructured.Unstructured {
	return decode(bindata.Render("identity.yaml", in))
}

// ConfigMapsEncrypted is the problem of pods that mount their ConfigMap where that is encrypted.
const ConfigMapsEncrypted = "kube-apiserver encrypts configmaps with KMS, so a reporter's pod that mounts its " +
	"ConfigMap does not start while the plugin is unhealthy: set configSource: Annotation"

// ReportsTo is the object that has the target's reports.
func (in *Input) ReportsTo() contract.Resource {
	return contract.ResourceFor(string(in.Target.Resource), in.Target.Name)
}

// Destination is the object that gets the reports, where the operator creates it; else nil.
func (in *Input) Destination() *unstructured.Unstructured {
	if !in.ReportsTo().PerAPIServer() {
		return nil
	}
	return object("kmshealth.yaml", in)
}

// ReportersNamespace is where the reporters run.
func (in *Input) ReportersNamespace() string {
	if in.Target.Mode.InOwnersPods() {
		return in.Target.Namespace
	}
	return in.Namespace
}

// ReporterName is that of the target's identity and DaemonSet.
func (in *Input) ReporterName() string { return contract.ReporterName(in.Target.Name) }

// SecretRole lets the operator read the encryption configs of these revisions,
// and the live one.
func (in *Input) SecretRole(revisions []string) *unstructured.Unstructured {
	var names []string
	for _, revision := range revisions {
		names = append(names, in.Target.EncryptionConfig.Secret+"-"+revision)
	}
	return object("secret-role.yaml", struct {
		*Input
		Name       string
		Revisioned []string
	}{in, SecretRoleName(in.Target.Name), names})
}

// reporter is what the templates see of one reporter: the Input, and what is made of it.
type reporter struct {
	*Input
	APIServerPod
	Name             string // of the object
	ConfigHash       string
	ConfigMap        string // that the pod mounts; empty: it has the files in annotations
	File, Kubeconfig string // the content of the files
	PodHash          string
	APIServerUser    *contract.User       // nil: not known
	RunAs            *contract.User       // the reporter's own user; nil: the pod's, or the image's
	Mounts           []corev1.VolumeMount // read-only: name, mountPath and subPath count
}

func (in *Input) reporter(name string, plugins []v1alpha1.Plugin) *reporter {
	r := &reporter{Input: in, Name: name, ConfigHash: v1alpha1.PluginSetHash(plugins), File: string(in.File(plugins))}
	if !in.Target.OwnerInjects() {
		r.Kubeconfig = string(in.Kubeconfig())
	}
	return r
}

// ConfigMap is the target's file for one plugin set. Where pods have it in annotations, it has no request: a
// ConfigMap that KMS encrypts cannot be written while the plugin is unhealthy.
func (in *Input) ConfigMap(name string, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	if in.Target.ConfigSource == v1alpha1.ConfigSourceAnnotation && !in.Target.Mode.InOwnersPods() {
		in = in.withoutRequest()
	}
	return object("configmap.yaml", in.reporter(name, plugins))
}

func (in *Input) withoutRequest() *Input {
	without := *in
	without.Requested = ""
	return &without
}

// ownPod is the reporter in a pod of its own, with the folders of a server's sockets.
func (in *Input) ownPod(server APIServerPod, plugins []v1alpha1.Plugin, configMap string) *reporter {
	r := in.reporter(in.ReporterName(), plugins)
	r.APIServerPod, r.APIServerUser, r.RunAs = server, &server.User, &server.User
	if in.Target.ConfigSource == v1alpha1.ConfigSourceConfigMap {
		r.ConfigMap = configMap
	}
	r.Mounts = []corev1.VolumeMount{
		{Name: "config", MountPath: ConfigFolder}, {Name: "credentials", MountPath: CredentialsFolder},
	}
	if s := in.Target.Serving; s != nil && s.Secret != "" {
		r.Mounts = append(r.Mounts, corev1.VolumeMount{Name: "serving", MountPath: servingFolder})
	}
	for i, f := range server.Folders {
		r.Mounts = append(r.Mounts, corev1.VolumeMount{
			Name: fmt.Sprintf("sockets-%d", i), MountPath: f.MountPath, SubPath: f.SubPath,
		})
	}
	return r
}

// CompanionPod is the reporter's pod for one API server pod.
func (in *Input) CompanionPod(server APIServerPod, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	r := in.ownPod(server, plugins, CompanionConfigMapName(in.Target.Name, plugins))
	// What a pod is replaced for is all but what reaches it live.
	unowned := *in
	unowned.Owner = nil
	fixed := *r
	fixed.Input, fixed.Name, fixed.File, fixed.Kubeconfig = &unowned, "", "", ""
	r.PodHash = shortHash(string(bindata.Render("companion.yaml", fixed)))
	r.Name = "kms-health-" + in.Target.Name + "-" + shortHash(server.Node, server.UID, r.PodHash)
	return object("companion.yaml", r)
}

// DaemonSet is the agent on each node whose host folders hold the sockets. Its template has no request.
func (in *Input) DaemonSet(folders []Folder, user contract.User, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	server, configMap := APIServerPod{Folders: folders, User: user}, ConfigMapName(in.Target.Name, plugins)
	return object("daemonset.yaml", in.withoutRequest().ownPod(server, plugins, configMap))
}

// ConfigMapName is that of an API server's file for one plugin set. It changes with the set,
// since a pod's file must name no socket that the pod does not have.
func ConfigMapName(apiServer string, plugins []v1alpha1.Plugin) string {
	const digits = 10
	return contract.ReporterName(apiServer) + "-" + v1alpha1.PluginSetHash(plugins)[:digits]
}

// CompanionConfigMapName is that of the file of companions. The name changes also with the
// roles: while the write key changes, two API servers have the same sockets with other ones.
func CompanionConfigMapName(target string, plugins []v1alpha1.Plugin) string {
	roles := make([]string, len(plugins))
	for i, p := range plugins {
		roles[i] = p.KeyID + "\x00" + string(p.Role)
	}
	slices.Sort(roles)
	return ConfigMapName(target+"-"+shortHash(roles...), plugins)
}

// TokenName is that of the Secret with the token of a target's reporters.
func TokenName(target string) string { return contract.ReporterName(target) + "-token" }

// CredentialsName is that of the Secret that the pods' owner brings: a kubeconfig, and the
// files that it names. The operator neither reads nor writes it.
func CredentialsName(target string) string { return contract.ReporterName(target) + "-credentials" }

// SecretRoleName is that of the role by which the operator reads a target's
// encryption config.
func SecretRoleName(target string) string { return "kms-health-operator-" + target }

func shortHash(parts ...string) string {
	return contract.FileHash([]byte(strings.Join(parts, "\x00")))[:10]
}

// object is the one object of a template.
func object(name string, values any) *unstructured.Unstructured {
	return decode(bindata.Render(name, values))[0]
}

// decode returns the objects of a YAML stream that is in the program, or made by a template.
func decode(raw []byte) (all []*unstructured.Unstructured) {
	for document := range strings.SplitSeq(string(raw), "\n---") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			panic(err)
		}
		if len(content) > 0 {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	return all
}
