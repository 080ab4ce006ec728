package objects

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// SocketMounts returns the mounts through which the API server's container reaches
// the folders of the endpoints' sockets, for another container of the pod:
// read-only, which suffices to connect, each once, in the endpoints' order. With
// container "" it is the pod's first. An abstract socket needs no mount.
//
// Of several mounts above a folder, the one with the longest path holds it. A folder without one
// is an error, and so is a subPathExpr, which depends on the container's environment.
func SocketMounts(spec *corev1.PodSpec, container string, endpoints []string) ([]corev1.VolumeMount, error) {
	c, err := apiServer(spec, container)
	if err != nil {
		return nil, err
	}
	var mounts []corev1.VolumeMount
	for _, endpoint := range endpoints {
		folder := folderOf(endpoint)
		if folder == "" {
			continue
		}
		mount := holder(c.VolumeMounts, folder)
		switch {
		case mount == nil:
			return nil, fmt.Errorf("container %q mounts no volume at %s or above it, where the socket of %s is",
				c.Name, folder, endpoint)
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

// folderOf is the folder of the socket of an endpoint, which was validated; empty: it is abstract.
func folderOf(endpoint string) string {
	socket, err := v1alpha1.SocketAddress(endpoint)
	if err != nil || strings.HasPrefix(socket, "@") {
		return ""
	}
	return path.Dir(v1alpha1.CleanSocket(socket))
}

// apiServer returns the container whose mounts hold the sockets: by its name, or the first.
func apiServer(spec *corev1.PodSpec, name string) (*corev1.Container, error) {
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name != contract.ReporterContainer && (name == "" || c.Name == name) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("the pod has no container %q of the API server", name)
}

// holder returns the mount that a folder is in; nil: there is none.
func holder(mounts []corev1.VolumeMount, folder string) (best *corev1.VolumeMount) {
	longest := 0
	for i := range mounts {
		if p := path.Clean(mounts[i].MountPath); within(folder, p) && len(p) > longest {
			best, longest = &mounts[i], len(p)
		}
	}
	return best
}

// checkOwn refuses a mount of sockets that overlaps one of the reporter's own: the mount point
// of the inner one cannot be created in the outer one, which is read-only, so the container
// would not start.
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
