package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// Sidecar is what pods of an API server get, as a part of their template: the container, its
// volumes, and the annotation with the hash of its plugin set. A Server-Side Apply and a
// strategic-merge patch have the same. spec is the pods', at a path of their object.
func (in *Input) Sidecar(at *field.Path, spec *corev1.PodSpec, plugins []v1alpha1.Plugin) (map[string]any, error) {
	o := podspec.Options{
		Image:              in.Config.Image,
		APIServerContainer: in.Target.Container,
		Endpoints:          Endpoints(plugins),
		ConfigMap:          ConfigMapName(in.Target.Name, plugins),
		Secret:             TokenName(in.Target.Name),
		HostFolder:         in.HostFolder,
		ConfigHash:         v1alpha1.PluginSetHash(plugins),
		RunAsUser:          userOf(spec, in.Target.Container),
	}
	if in.Target.OwnerInjects() {
		o.Secret = CredentialsName(in.Target.Name)
	}
	if in.HostFolder != "" { // whose files are root's
		o.RunAsUser = new(int64(0))
	}
	container, volumes, err := podspec.Container(at, spec, o)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contract.ConfigHashAnnotation: o.ConfigHash}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}, Volumes: volumes},
	})
}

// userOf is the user of the API server's container, whom its sockets belong to:
// root if nothing else is configured.
func userOf(spec *corev1.PodSpec, container string) *int64 {
	at := max(0, slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == container }))
	if at < len(spec.Containers) {
		if s := spec.Containers[at].SecurityContext; s != nil && s.RunAsUser != nil {
			return s.RunAsUser
		}
	}
	if s := spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.RunAsNonRoot != nil && *s.RunAsNonRoot) {
		return s.RunAsUser
	}
	return new(int64(0))
}
