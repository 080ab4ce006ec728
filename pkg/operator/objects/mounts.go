package objects

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// SocketVolumeMissing is the error that the API server's container mounts no
// volume at the folder of a plugin's socket, nor above it: no other container can reach
// the socket.
type SocketVolumeMissing struct {
	Container string // the API server's
	Folder    string // that of the socket, as a path in the container
	Endpoint  string // of the plugin
}

func (e *SocketVolumeMissing) Error() string {
	return fmt.Sprintf("container %q mounts no volume at %s or above it, where the socket of %s is",
		e.Container, e.Folder, e.Endpoint)
}

// SocketMounts returns the mounts through which the API server's container reaches
// the folders of the endpoints' sockets, for another container of the pod:
// read-only, which suffices to connect, each once, in the endpoints' order. With
// container "" it is the pod's first. An abstract socket needs no mount.
//
// Of several mounts above a folder, the one with the longest path holds it. An
// endpoint with none is a *SocketVolumeMissing; a subPathExpr, which depends on
// the container's environment, is an error.
func SocketMounts(spec *corev1.PodSpec, container string, endpoints []string) ([]corev1.VolumeMount, error) {
	return socketMounts(field.NewPath("spec"), spec, container, endpoints)
}

func socketMounts(
	at *field.Path, spec *corev1.PodSpec, container string, endpoints []string,
) ([]corev1.VolumeMount, error) {
	i, err := apiServer(at, spec, container)
	if err != nil {
		return nil, err
	}
	c := &spec.Containers[i]
	var mounts []corev1.VolumeMount
	for n, endpoint := range endpoints {
		folder, err := folderOf(endpoint, n)
		if err != nil {
			return nil, err
		}
		if folder == "" {
			continue
		}
		m := holder(c.VolumeMounts, folder)
		if m < 0 {
			return nil, &SocketVolumeMissing{Container: c.Name, Folder: folder, Endpoint: endpoint}
		}
		mount := &c.VolumeMounts[m]
		if mount.SubPathExpr != "" {
			return nil, field.Invalid(at.Child("containers").Index(i).Child("volumeMounts").Index(m).Child("subPathExpr"),
				mount.SubPathExpr, "cannot be followed from another container: mount the sockets' folder by subPath, or whole")
		}
		found := corev1.VolumeMount{Name: mount.Name, ReadOnly: true, MountPath: mount.MountPath, SubPath: mount.SubPath}
		if !slices.Contains(mounts, found) {
			mounts = append(mounts, found)
		}
	}
	return mounts, nil
}

// folderOf is the folder of the socket of an endpoint, which is the nth; empty: it is abstract.
func folderOf(endpoint string, n int) (string, error) {
	at := field.NewPath("endpoints").Index(n)
	socket, err := v1alpha1.SocketAddress(endpoint)
	switch {
	case err != nil:
		return "", field.Invalid(at, endpoint, err.Error())
	case strings.HasPrefix(socket, "@"):
		return "", nil
	case v1alpha1.HasParentFolder(socket):
		return "", field.Invalid(at, endpoint, v1alpha1.ParentFolderRule)
	}
	return path.Dir(v1alpha1.CleanSocket(socket)), nil
}

// apiServer returns the index of the container whose mounts hold the sockets.
func apiServer(at *field.Path, spec *corev1.PodSpec, name string) (int, error) {
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool {
		return c.Name != contract.ReporterContainer && (name == "" || c.Name == name)
	})
	switch {
	case i >= 0:
		return i, nil
	case name == "":
		return 0, field.Required(at.Child("containers"), "the API server's container")
	default:
		return 0, field.NotFound(at.Child("containers"), name)
	}
}

// holder returns the index of the mount that a folder is in, -1 for none.
func holder(mounts []corev1.VolumeMount, folder string) int {
	best, longest := -1, 0
	for i := range mounts {
		if p := path.Clean(mounts[i].MountPath); within(folder, p) && len(p) > longest {
			best, longest = i, len(p)
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
