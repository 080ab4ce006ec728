package objects

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// KubeletRoot is the kubelet's --root-dir unless it is set to another.
const KubeletRoot = "/var/lib/kubelet"

// Folder is a folder that holds sockets of a pod. A pod on the same node that
// mounts HostPath at MountPath, with SubPath, sees them where the API server does,
// so that the plugins' endpoints hold for both.
type Folder struct {
	MountPath string `json:"mountPath"` // where the API server's container sees it
	HostPath  string `json:"hostPath"`  // where it is on the node
	// SubPath is that of the API server's own mount, in a volume of its pod. It is no part of HostPath: a
	// symbolic link there is followed by the kubelet within the volume, by a container runtime anywhere.
	SubPath  string `json:"subPath,omitempty"`
	EmptyDir bool   `json:"emptyDir,omitempty"` // created and removed with the pod; otherwise it is the node's
}

// FindFolders returns the folders that hold the plugins' sockets, each once, in the plugins' order. Of
// an emptyDir that is the volume itself, as the API server's container mounts it; of the node it is the
// socket's own folder, also where a wider one is mounted. The admission policy kms-health-pods admits
// both. With container "" the API server's is the pod's first.
//
// What is in no volume, or in one that is neither an emptyDir nor a hostPath, is an error, as is an
// abstract socket in a pod with a network of its own, and a socket in a folder that holds much else. An abstract
// socket of a host-network pod needs no folder.
func FindFolders(pod *corev1.Pod, container, kubeletRoot string, plugins ...v1alpha1.Plugin) ([]Folder, error) {
	var folders []Folder
	for _, p := range plugins {
		folder := v1alpha1.SocketFolder(p.Endpoint)
		if folder == "" && pod.Spec.HostNetwork {
			continue
		}
		if folder == "" {
			return nil, fmt.Errorf("%s is an abstract socket, which only containers of the pod reach, since its network "+
				"is its own: use mode Sidecar", p.Endpoint)
		}
		mounts, err := SocketMounts(&pod.Spec, container, p)
		if err != nil {
			return nil, err
		}
		f, err := onNode(pod, mounts[0], folder, cmp.Or(kubeletRoot, KubeletRoot))
		if err == nil {
			err = cmp.Or(v1alpha1.CheckSocketFolder(folder), v1alpha1.CheckSocketFolder(f.HostPath))
		}
		for _, own := range []string{ownFolder, contract.StateFolder} {
			if err == nil {
				err = checkOwn(mounts[0].Name, f.MountPath, own)
			}
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(folders, f) {
			folders = append(folders, f)
		}
	}
	return folders, nil
}

// AsNamed assumes that the folders of the plugins' sockets have the same paths on the nodes.
func AsNamed(plugins []v1alpha1.Plugin) []Folder {
	var folders []Folder
	for _, p := range plugins {
		folder := v1alpha1.SocketFolder(p.Endpoint)
		f := Folder{MountPath: folder, HostPath: folder}
		if folder != "" && !slices.Contains(folders, f) {
			folders = append(folders, f)
		}
	}
	return folders
}

// NotAllowed is why the policy of the reporters' pods, as the manifests have it, denies them a folder of the nodes;
// empty: it allows all.
func NotAllowed(folders []Folder) string {
	const name = "socketFolders"
	var allowed []string
	policy := decode(install.PodsPolicy)[0]
	variables, _, _ := unstructured.NestedSlice(policy.Object, "spec", "variables")
	for _, v := range variables {
		if v := v.(map[string]any); v["name"] == name {
			_ = yaml.Unmarshal([]byte(v["expression"].(string)), &allowed) // a list in CEL is one in YAML
		}
	}
	for _, f := range folders {
		if !f.EmptyDir && !slices.ContainsFunc(allowed, func(a string) bool { return within(f.HostPath, a) }) {
			return fmt.Sprintf("ValidatingAdmissionPolicy %s of the manifests does not allow the folder %s: add it to the "+
				"variable %s there, or use one of %s", policy.GetName(), f.HostPath, name, strings.Join(allowed, ", "))
		}
	}
	return ""
}

// OnHost reports whether every folder is the node's own, so that one reporter per
// node serves whichever pod is there. Of no folders it is true.
func OnHost(folders []Folder) bool {
	return !slices.ContainsFunc(folders, func(f Folder) bool { return f.EmptyDir })
}

// onNode follows a mount from the folder that a container sees to the node's.
func onNode(pod *corev1.Pod, mount corev1.VolumeMount, folder, kubeletRoot string) (Folder, error) {
	var source corev1.VolumeSource
	for _, v := range pod.Spec.Volumes {
		if v.Name == mount.Name {
			source = v.VolumeSource
		}
	}
	switch {
	case source.EmptyDir != nil: // where the kubelet makes it, in memory or not (k8s.io/kubernetes, pkg/volume/emptydir)
		uid, err := PodUID(pod)
		return Folder{
			MountPath: path.Clean(mount.MountPath),
			HostPath:  path.Join(kubeletRoot, "pods", uid, "volumes", "kubernetes.io~empty-dir", mount.Name),
			SubPath:   mount.SubPath,
			EmptyDir:  true,
		}, err
	case source.HostPath != nil:
		below := strings.TrimPrefix(folder, path.Clean(mount.MountPath))
		return Folder{MountPath: folder, HostPath: path.Join(source.HostPath.Path, mount.SubPath, below)}, nil
	default:
		return Folder{}, fmt.Errorf("volume %q, with the folder %s of sockets, is neither an emptyDir nor a hostPath, "+
			"which alone can be found on a node: use mode Sidecar", mount.Name, folder)
	}
}

// hashAnnotation is kubelet's ConfigHashAnnotationKey
// (k8s.io/kubernetes, pkg/kubelet/types/pod_update.go).
const hashAnnotation = "kubernetes.io/config.hash"

// PodUID returns the UID by which the kubelet identifies a pod, and names its folder: the pod's own, or,
// for the mirror of a static pod, that in its annotation. A report of the pod names it as its reporter.
// It is always contract.ValidPodUID: whoever may annotate a pod must not choose a path.
func PodUID(pod *corev1.Pod) (string, error) {
	uid, where := string(pod.UID), "metadata.uid"
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		uid, where = pod.Annotations[hashAnnotation], "metadata.annotations["+hashAnnotation+"] of the mirror of a static pod"
	}
	if !contract.ValidPodUID(uid) {
		return "", fmt.Errorf("%s: %.70q is not the UID of a pod", where, uid)
	}
	return uid, nil
}

// SocketMounts returns the mounts through which the API server's container reaches the folders of the
// plugins' sockets, for another container of the pod: read-only, which suffices to connect, each once.
// With container "" it is the pod's first. An abstract socket needs no mount. A folder without one is an
// error, and so is a subPathExpr, which depends on the container's environment.
func SocketMounts(spec *corev1.PodSpec, container string, plugins ...v1alpha1.Plugin) ([]corev1.VolumeMount, error) {
	c, err := APIServerContainer(spec, container)
	if err != nil {
		return nil, err
	}
	var mounts []corev1.VolumeMount
	for _, p := range plugins {
		folder := v1alpha1.SocketFolder(p.Endpoint)
		if folder == "" {
			continue
		}
		var mount *corev1.VolumeMount // the innermost that the folder is in
		for i := range c.VolumeMounts {
			m, at := &c.VolumeMounts[i], path.Clean(c.VolumeMounts[i].MountPath)
			if within(folder, at) && (mount == nil || len(at) > len(path.Clean(mount.MountPath))) {
				mount = m
			}
		}
		switch {
		case mount == nil:
			return nil, fmt.Errorf("container %q mounts no volume at %s or above it, where the socket of %s is",
				c.Name, folder, p.Endpoint)
		case mount.SubPathExpr != "":
			return nil, fmt.Errorf("container %q mounts volume %q by a subPathExpr, which cannot be followed from another "+
				"container: mount the sockets' folder by subPath, or whole", c.Name, mount.Name)
		}
		found := corev1.VolumeMount{Name: mount.Name, ReadOnly: true, MountPath: mount.MountPath, SubPath: mount.SubPath}
		if !slices.Contains(mounts, found) {
			mounts = append(mounts, found)
		}
	}
	return mounts, nil
}

// APIServerContainer returns the container whose mounts hold the sockets: by its name, or the first.
func APIServerContainer(spec *corev1.PodSpec, name string) (*corev1.Container, error) {
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name != contract.ReporterContainer && (name == "" || c.Name == name) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("the pod has no container %q of the API server", name)
}

// checkOwn refuses a mount of sockets that overlaps one of the reporter's own: the inner one's mount point
// cannot be created in the outer one, which is read-only.
func checkOwn(volume, mountPath, own string) error {
	a := path.Clean(mountPath)
	if !within(a, own) && !within(own, a) {
		return nil
	}
	return fmt.Errorf("volume %q, with the sockets, is mounted at %s, which conflicts with the reporter's own "+
		"mount at %s: mount the sockets' folder separately", volume, mountPath, own)
}

// within reports whether a clean path is a folder, or below it.
func within(p, folder string) bool {
	return p == folder || folder == "/" || strings.HasPrefix(p, folder+"/")
}
