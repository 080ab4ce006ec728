// Package objects builds the objects that the operator applies, from bindata/ and values. Each mode has one function:
// CompanionPod, DaemonSet, Sidecar. All three contain the same container. For the first two, the package also finds
// the folders of a node that hold the sockets of an API server's pod.
//
// It is pure: the controller and the render command call the same functions, so both give the same bytes.
package objects

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

//go:generate go test . -run TestObjectsOfEachMode -update

// Input has the values for the objects of one target.
type Input struct {
	Config    *v1alpha1.OperatorConfiguration // with an image
	Namespace string                          // of the reporters that are pods of their own
	Target    *v1alpha1.APIServer
	OpenShift bool
	TLS       v1alpha1.ServingTLS // from the cluster's TLS profile
	CA        []byte              // the API server's, PEM; empty: a static pod has it as CAFile
	// HostFolder is the folder of the node with the files of a static pod, which can refer to no object of the API.
	// Empty: the API server's pod is not static, or gets no sidecar.
	HostFolder string
	// ClusterServer is the URL by which reporters reach any API server of the cluster, if it is known.
	ClusterServer string
	// Requested is the round trip that is requested of the target's reporters; empty: none. It reaches running pods. It
	// is in no field whose change replaces pods.
	Requested string
	OwnerUID  string // of the target's ClusterRole; empty: it is not known
}

// APIServerPod is one running API server pod.
type APIServerPod struct {
	Node, UID string // the UID is the pod's on its node: see PodUID
	Folders   []Folder
	User      contract.User // of its API server's container
}

// PolicyName is the name of the reporters' admission policy, and of its binding.
const PolicyName = "kms-health-reporter"

// Policies are the names of the admission policies of an installation on OpenShift, and of their bindings. Components
// add others.
var Policies = []string{
	PolicyName, "kms-health-reporter-rights", "kms-health-pods",
	"kms-health-operator-configmaps", "kms-health-operator-roles", "kms-health-operator-status",
}

// ControlPlaneLabel is the label of the nodes that agents serve by default, as bindata/daemonset.yaml selects them.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Policy bounds what the reporters' identities may write. It is the same for all targets, and is in the manifests.
func Policy() []*unstructured.Unstructured { return decode(install.ReporterPolicy) }

// Identity returns the ServiceAccount of the target's reporters, in their namespace, with its rights.
func (in *Input) Identity() []*unstructured.Unstructured {
	to := in.Target.ReportsTo()
	return objects("identity.yaml", values{
		"NAME": contract.ReporterName(in.Target.Name), "NAMESPACE": in.ReportersNamespace(), "API_SERVER": in.Target.Name,
		"GROUP": to.Group, "STATUS": to.Plural + "/status", "OBJECT": to.Name,
		"OPENSHIFT": when(in.OpenShift, true), "OWNER_INJECTS": when(in.Target.OwnerInjects(), true),
	})
}

// ConfigMapsEncrypted is the problem of pods that mount a ConfigMap that is encrypted.
const ConfigMapsEncrypted = "kube-apiserver encrypts configmaps with KMS, so a reporter's pod that mounts its " +
	"ConfigMap does not start while the plugin is unhealthy: set configSource: Annotation"

// Destination returns the object that gets the reports, if the operator creates it; else nil.
func (in *Input) Destination() *unstructured.Unstructured {
	if !in.Target.ReportsTo().PerAPIServer() {
		return nil
	}
	return object("kmshealth.yaml", values{"API_SERVER": in.Target.Name})
}

// ReportersNamespace is where the reporters run.
func (in *Input) ReportersNamespace() string {
	if in.Target.Mode.InOwnersPods() {
		return in.Target.Namespace
	}
	return in.Namespace
}

// EncryptionSecret is the name of the Secret with the encryption config of a revision; empty: the live one.
func (in *Input) EncryptionSecret(revision string) string {
	return strings.TrimSuffix(in.Target.EncryptionConfig.Secret+"-"+revision, "-")
}

// SecretRole lets the operator read the encryption configs of these revisions, and the live one.
func (in *Input) SecretRole(revisions []string) *unstructured.Unstructured {
	names := []string{in.EncryptionSecret("")}
	for _, revision := range revisions {
		names = append(names, in.EncryptionSecret(revision))
	}
	return object("secret-role.yaml", values{
		"NAME": SecretRoleName(in.Target.Name), "NAMESPACE": in.Target.Namespace, "API_SERVER": in.Target.Name,
		"SECRETS": names,
	})
}

// MountsConfigMap reports whether reporters mount their files. Else their pods have them in annotations.
func (in *Input) MountsConfigMap() bool {
	return in.Target.Mode.InOwnersPods() || in.Target.ConfigSource == v1alpha1.ConfigSourceConfigMap
}

// ConfigMap has the target's file for one plugin set.
func (in *Input) ConfigMap(name string, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	return object("configmap.yaml", values{
		"NAME": name, "NAMESPACE": in.ReportersNamespace(), "API_SERVER": in.Target.Name, "CONFIG": string(in.File(plugins)),
		"KUBECONFIG": when(!in.Target.OwnerInjects(), string(in.Kubeconfig())),
	})
}

// ownPod returns the values of a reporter in its own pod, with the folders of a server's sockets. Those of only one
// mode, companions or agents, are not set.
func (in *Input) ownPod(server APIServerPod, plugins []v1alpha1.Plugin) values {
	mounts := []corev1.VolumeMount{
		{Name: "config", MountPath: ConfigFolder}, {Name: "credentials", MountPath: CredentialsFolder},
	}
	secret := cmp.Or(in.Target.Serving, &v1alpha1.APIServerServing{}).Secret
	if secret != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: "serving", MountPath: servingFolder})
	}
	var sockets []any
	for i, f := range server.Folders {
		name := fmt.Sprintf("sockets-%d", i)
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: f.MountPath, SubPath: f.SubPath})
		sockets = append(sockets, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: f.HostPath, Type: new(corev1.HostPathDirectory)}}})
	}
	groups, mounted := server.User.Supplementary(), in.MountsConfigMap()
	return values{
		"API_SERVER": in.Target.Name, "SERVICE_ACCOUNT": contract.ReporterName(in.Target.Name),
		"CONFIG": when(!mounted, string(in.File(plugins))), "KUBECONFIG": when(!mounted, string(in.Kubeconfig())),
		"CONFIG_MAP":  when(mounted, ConfigMapName(in.Target.Name, plugins)),
		"CONFIG_HASH": v1alpha1.PluginSetHash(plugins),
		"LOCAL":       when(in.Local(), true), "GROUPS": when(len(groups) > 0, groups), "SCC": when(in.OpenShift, PolicyName),
		"CONTAINER":      in.container(&server.User, &server.User, mounts),
		"SERVING_SECRET": when(secret != "", secret), "SOCKETS": sockets,
	}
}

// container returns the reporter's container with read-only mounts, of which only name, path and subPath are used.
// apiServer is the API server's user; nil if it is not known. runAs is the reporter's own user; nil: the pod's or the
// image's.
func (in *Input) container(apiServer, runAs *contract.User, mounts []corev1.VolumeMount) map[string]any {
	var readOnly []any
	for _, m := range mounts {
		readOnly = append(readOnly,
			corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, SubPath: m.SubPath, ReadOnly: true})
	}
	v := values{"IMAGE": in.Config.Image, "MOUNTS": readOnly}
	if !in.Target.Mode.InOwnersPods() { // another pod's emptyDir is labelled for that pod alone
		v["ANY_SOCKET"] = when(in.OpenShift || !in.Target.Mode.ServesNode() || apiServer.OwnSELinuxType, true)
	}
	if apiServer != nil {
		v["API_SERVER_USER"] = apiServer.String()
	}
	if runAs != nil {
		v["UID"], v["GID"], v["NON_ROOT"] = runAs.UID, runAs.GID, runAs.UID != 0
		v["CAPABILITIES"] = when(runAs.DACOverride, []any{"DAC_OVERRIDE"})
	}
	return object("container.yaml", v).Object
}

// CompanionPod returns the reporter's pod for one API server pod.
func (in *Input) CompanionPod(server APIServerPod, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	v := in.ownPod(server, plugins)
	v["NAMESPACE"], v["MODE"] = in.Namespace, v1alpha1.ModeCompanionPod
	v["API_SERVER_POD"], v["NODE"] = server.UID, server.Node
	// The hash is of all content but the files, which reach a running pod. If it changes, the pod is replaced.
	fixed := maps.Clone(v)
	fixed["CONFIG"], fixed["KUBECONFIG"] = "", ""
	hash := shortHash(contract.Marshal(object("pod.yaml", fixed).Object))
	v["POD_HASH"], v["NAME"] = hash, "kms-health-"+in.Target.Name+"-"+shortHash(server.Node, server.UID, hash)
	v["OWNER_UID"] = when(in.OwnerUID != "", in.OwnerUID)
	return object("pod.yaml", v)
}

// DaemonSet returns the agents, on each node whose host folders hold the sockets. Its template has no request.
func (in *Input) DaemonSet(folders []Folder, user contract.User, plugins []v1alpha1.Plugin) *unstructured.Unstructured {
	fixed, selector := *in, in.Target.NodeSelector
	fixed.Requested = ""
	v := fixed.ownPod(APIServerPod{Folders: folders, User: user}, plugins)
	v["MODE"] = v1alpha1.ModeDaemonSet
	v["NODE_SELECTOR"], v["ON_CONTROL_PLANE"] = when(selector != nil, selector), when(selector == nil, true)
	pod := object("pod.yaml", v).Object
	return object("daemonset.yaml", values{
		"NAME": contract.ReporterName(in.Target.Name), "NAMESPACE": in.Namespace, "API_SERVER": in.Target.Name,
		"POD_METADATA": pod["metadata"], "POD_SPEC": pod["spec"],
	})
}

// ConfigMapName is the name of an API server's file for one plugin set. It changes with the set, since a pod's file
// must name no socket that the pod does not have. Roles and timeouts are no part of the name: a reporter follows them,
// and roles only order its report.
func ConfigMapName(apiServer string, plugins []v1alpha1.Plugin) string {
	const digits = 10
	return contract.ReporterName(apiServer) + "-" + v1alpha1.PluginSetHash(plugins)[:digits]
}

// TokenName is the name of the Secret with the token of a target's reporters.
func TokenName(target string) string { return contract.ReporterName(target) + "-token" }

// SecretRoleName is the name of the Role by which the operator reads a target's encryption configs.
func SecretRoleName(target string) string { return "kms-health-operator-" + target }

func shortHash(parts ...string) string {
	return contract.FileHash([]byte(strings.Join(parts, "\x00")))[:10]
}
