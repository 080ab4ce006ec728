package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Inject adds the reporter to a pod, or a pod template: the container as the last one,
// its volumes, and the annotation. An earlier injection is replaced. On an error nothing
// was changed.
//
// The container is the last because a kubelet starts containers one after the other, and
// pulls each image before that: a slow pull delays the containers after it.
func Inject(meta *metav1.ObjectMeta, spec *corev1.PodSpec, o Options) error {
	c, err := injection(field.NewPath("spec"), spec, o)
	if err != nil {
		return err
	}
	c.apply(meta, spec)
	return nil
}

// change is a change of a pod. It is a value, so that it can be applied to a typed pod
// and to the tree of a file.
type change struct {
	containers edit[corev1.Container]
	volumes    edit[corev1.Volume]
	hash       string // of the annotation; empty: none
}

// edit changes a list: it removes some elements, replaces some in place, and appends
// some. Indexes are those of the list before.
type edit[T any] struct {
	drop []int
	put  map[int]T
	add  []T
}

func (e edit[T]) apply(list []T) []T {
	var edited []T
	for i := range list {
		if element, replaced := e.put[i]; replaced {
			edited = append(edited, element)
		} else if !slices.Contains(e.drop, i) {
			edited = append(edited, list[i])
		}
	}
	return append(edited, e.add...)
}

func injection(at *field.Path, spec *corev1.PodSpec, o Options) (change, error) {
	reporter, volumes, err := container(at, spec, o)
	if err != nil {
		return change{}, err
	}
	c := change{hash: o.ConfigHash}
	for i := range spec.Containers {
		if isOurs(&spec.Containers[i]) {
			c.containers.drop = append(c.containers.drop, i)
		}
	}
	c.containers.add = []corev1.Container{reporter}

	// The order of volumes has no meaning, and a change of it would be a rollout.
	c.volumes.put = map[int]corev1.Volume{}
	for i := range spec.Volumes {
		name := spec.Volumes[i].Name
		if n := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == name }); n >= 0 {
			c.volumes.put[i] = volumes[n]
			volumes = slices.Delete(volumes, n, n+1)
		} else if removable(spec, &spec.Volumes[i]) {
			c.volumes.drop = append(c.volumes.drop, i)
		}
	}
	c.volumes.add = volumes
	return c, nil
}

func removable(spec *corev1.PodSpec, v *corev1.Volume) bool {
	_, theirs := mountedBy(spec, v.Name)
	return isOurVolume(spec, v) && theirs == ""
}

func (c change) apply(meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	spec.Containers = c.containers.apply(spec.Containers)
	spec.Volumes = c.volumes.apply(spec.Volumes)
	meta.Annotations = c.annotations(meta.Annotations)
}

// annotations returns a pod's annotations after the change; the map that is
// given, which others may hold, stays as it is.
func (c change) annotations(before map[string]string) map[string]string {
	var after map[string]string
	set := func(key, value string) {
		if after == nil {
			after = map[string]string{}
		}
		after[key] = value
	}
	for key, value := range before {
		if key != ConfigHashAnnotation {
			set(key, value)
		}
	}
	if c.hash != "" {
		set(ConfigHashAnnotation, c.hash)
	}
	return after
}
