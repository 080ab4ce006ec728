package objects

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// kubeletRoot is the default of the kubelet's --root-dir.
const kubeletRoot = "/var/lib/kubelet"

// Folder is a folder that holds sockets of a pod. Another pod on the node that mounts HostPath at MountPath, with
// SubPath, sees the sockets at the same paths as the API server. So the plugins' endpoints are valid in both.
type Folder struct {
	MountPath string `json:"mountPath"` // where the API server's container sees it
	HostPath  string `json:"hostPath"`  // where it is on the node
	// SubPath is set for an emptyDir: the subPath of the API server's own mount. It is not a part of HostPath, because a
	// symbolic link in a subPath cannot lead out of the volume: the kubelet resolves it. A container runtime would
	// follow a link in HostPath anywhere.
	SubPath  string `json:"subPath,omitempty"`
	EmptyDir bool   `json:"emptyDir,omitempty"` // created and removed with the pod; otherwise it is the node's
}

// FindFolders returns the folders that hold the plugins' sockets, each once, in the plugins' order. For an emptyDir
// it is the whole volume, as the API server's container mounts it. For a hostPath it is the folder of the socket,
// even if the container mounts a folder above it. The admission policy kms-health-pods admits both. An abstract socket
// of a host-network pod needs no folder. See APIServerContainer for container.
//
// It is an error if a socket is in no such volume, if its folder also holds other things, and if it is abstract and
// the pod has its own network.
func FindFolders(pod *corev1.Pod, container string, plugins ...v1alpha1.Plugin) ([]Folder, error) {
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
		f, err := onNode(pod, mounts[0], folder)
		err = cmp.Or(err, v1alpha1.CheckSocketFolder(folder), v1alpha1.CheckSocketFolder(f.HostPath),
			checkOwn(mounts[0].Name, f.MountPath, ownFolder, contract.StateFolder))
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

// NotAllowed returns why the policy of the reporters' pods in the manifests denies them a folder of the nodes; empty:
// it allows all.
func NotAllowed(folders []Folder) string {
	allowed := contract.SocketFolders
	for _, f := range folders {
		if !f.EmptyDir && !slices.ContainsFunc(allowed, func(a string) bool { return within(f.HostPath, a) }) {
			return fmt.Sprintf("ValidatingAdmissionPolicy kms-health-pods of the manifests does not allow the folder %s: add "+
				"it to the variable socketFolders there, or use one of %s", f.HostPath, strings.Join(allowed, ", "))
		}
	}
	return ""
}

// OnHost reports whether every folder is the node's own, so that one reporter per node serves whichever pod is there.
// Without folders it is true.
func OnHost(folders []Folder) bool {
	return !slices.ContainsFunc(folders, func(f Folder) bool { return f.EmptyDir })
}

// onNode returns the folder of the node that a container sees at folder, through a mount.
func onNode(pod *corev1.Pod, mount corev1.VolumeMount, folder string) (Folder, error) {
	var source corev1.VolumeSource
	for _, v := range pod.Spec.Volumes {
		if v.Name == mount.Name {
			source = v.VolumeSource
		}
	}
	switch {
	case source.EmptyDir != nil: // where the kubelet creates it, in memory or not (k8s.io/kubernetes, pkg/volume/emptydir)
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

// hashAnnotation is kubelet's ConfigHashAnnotationKey (k8s.io/kubernetes, pkg/kubelet/types/pod_update.go).
const hashAnnotation = "kubernetes.io/config.hash"

// PodUID returns the UID by which the kubelet identifies a pod and names its folder. It is metadata.uid, or, for the
// mirror of a static pod, the UID in its annotation. The reports of a sidecar name it as their reporter. It is always
// contract.ValidPodUID: whoever may annotate a pod must not choose a path.
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

// SocketMounts returns the mounts through which the API server's container reaches the folders of the plugins'
// sockets, for another container of the pod. Each is there once, and read-only, which suffices to connect. An abstract
// socket needs none. A folder in no mount is an error, and so is a subPathExpr, which another container cannot follow.
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
		var mount corev1.VolumeMount // the innermost that the folder is in
		for _, m := range c.VolumeMounts {
			at := path.Clean(m.MountPath)
			if within(folder, at) && (mount.Name == "" || len(at) > len(path.Clean(mount.MountPath))) {
				mount = m
			}
		}
		switch {
		case mount.Name == "":
			return nil, fmt.Errorf("container %q mounts no volume at %s or above it, where the socket of %s is; "+
				"a mount of the socket alone keeps that of one process", c.Name, folder, p.Endpoint)
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

// checkOwn refuses a mount of sockets that overlaps one of the reporter's own mounts. The mount point of the inner
// one could not be created in the outer one, which is read-only.
func checkOwn(volume, mountPath string, all ...string) error {
	a := path.Clean(mountPath)
	for _, own := range all {
		if within(a, own) || within(own, a) {
			return fmt.Errorf("volume %q, with the sockets, is mounted at %s, which conflicts with the reporter's own "+
				"mount at %s: mount the sockets' folder separately", volume, mountPath, own)
		}
	}
	return nil
}

// within reports whether a clean path is a folder, or below it.
func within(p, folder string) bool {
	return p == folder || folder == "/" || strings.HasPrefix(p, folder+"/")
}
