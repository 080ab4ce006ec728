package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// pods are an API server's. Each field is nil where it is not given, or there is none.
type pods struct {
	pod        *corev1.Pod        // one, or the template of a Deployment
	deployment *metav1.ObjectMeta // the name and namespace of the Deployment that has them
	manifest   map[string]any     // the whole object with every field, known or not
}

// static reports whether it is a Pod that no API server has seen.
func (p pods) static() bool { return p.pod != nil && p.deployment == nil && p.pod.Spec.NodeName == "" }

// mirror reports whether it is the mirror of a static pod.
func (p pods) mirror() bool {
	return p.pod != nil && metav1.HasAnnotation(p.pod.ObjectMeta, corev1.MirrorPodAnnotationKey)
}

// socketVolume is the volume with the sockets in the pods of OpenShift's API servers.
const socketVolume = "kms-plugin-socket"

// assumed is the pod of which only the configuration is known.
func assumed(t *v1alpha1.APIServer, plugins []v1alpha1.Plugin) (*corev1.Pod, error) {
	if t.Container == "" {
		return nil, fmt.Errorf("--pod: is needed, since target %s names no `container`", t.Name)
	}
	folders := objects.AsNamed(plugins)
	if len(folders) > 1 {
		return nil, fmt.Errorf("--pod: is needed, since the sockets are in several folders: %s and %s",
			folders[0].MountPath, folders[1].MountPath)
	}
	c := corev1.Container{Name: t.Container}
	for _, f := range folders {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: socketVolume, MountPath: f.MountPath})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: t.Name}}
	pod.Spec.Containers = []corev1.Container{c}
	return pod, nil
}

// readPods reads --pod.
func readPods(data []byte) (pods, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return pods{}, nil
	}
	object, err := decode(data)
	if err != nil {
		return pods{}, fmt.Errorf("--pod: %w", err)
	}
	p := pods{pod: &corev1.Pod{}, manifest: object}
	raw, err := json.Marshal(object)
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	switch apiVersion + "/" + kind {
	case "v1/Pod":
		err = errors.Join(err, json.Unmarshal(raw, p.pod))
	case "apps/v1/Deployment":
		d := &appsv1.Deployment{}
		err = errors.Join(err, json.Unmarshal(raw, d))
		p.deployment, p.pod.ObjectMeta, p.pod.Spec = &d.ObjectMeta, d.Spec.Template.ObjectMeta, d.Spec.Template.Spec
	default:
		err = fmt.Errorf("is a %q of %q, must be a Pod of v1 or a Deployment of apps/v1", kind, apiVersion)
	}
	if err != nil {
		return pods{}, fmt.Errorf("--pod: %w", err)
	}
	return p, nil
}

// decode reads the one document that is not empty, with all its fields.
func decode(data []byte) (object map[string]any, err error) {
	if yaml.IsJSONBuffer(data) { // the YAML reader refuses tabs, and leaves a second object out
		if err := utiljson.Unmarshal(data, &object); err != nil {
			return nil, fmt.Errorf("is not one JSON object: %w", err)
		}
		return object, nil
	}
	for document := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---")) {
		var next map[string]any
		if err := yaml.UnmarshalStrict(document, &next); err != nil {
			return nil, fmt.Errorf("is not a YAML mapping: %w", err)
		}
		if next != nil && object != nil {
			return nil, errors.New("holds more than one object, must be one")
		}
		if next != nil {
			object = next
		}
	}
	if object == nil {
		return nil, errors.New("is empty, must hold a Pod or a Deployment")
	}
	return object, nil
}
