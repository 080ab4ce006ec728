package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// pods are an API server's. A field is nil if it is not given or does not exist.
type pods struct {
	pod        *corev1.Pod        // one, or the template of a Deployment
	deployment *metav1.ObjectMeta // the name and namespace of the Deployment that has them
	manifest   map[string]any     // the whole object with every field, known or not
}

// static reports whether it is a Pod that no API server has seen.
func (p pods) static() bool { return p.pod != nil && p.deployment == nil && p.pod.Spec.NodeName == "" }

// readPods reads --pod.
func readPods(data []byte) (p pods, err error) {
	raw, err := one(data)
	if len(raw) == 0 && err == nil {
		return pods{}, nil
	}
	p.pod = &corev1.Pod{}
	kind := metav1.TypeMeta{}
	if err == nil {
		err = errors.Join(utiljson.Unmarshal(raw, &p.manifest), json.Unmarshal(raw, &kind))
	}
	switch {
	case err != nil:
	case kind.APIVersion == "v1" && kind.Kind == "Pod":
		err = json.Unmarshal(raw, p.pod)
	case kind.APIVersion == "apps/v1" && kind.Kind == "Deployment":
		d := &appsv1.Deployment{}
		err = json.Unmarshal(raw, d)
		p.deployment, p.pod.ObjectMeta, p.pod.Spec = &d.ObjectMeta, d.Spec.Template.ObjectMeta, d.Spec.Template.Spec
	default:
		err = fmt.Errorf("is a %q of %q, must be a Pod of v1 or a Deployment of apps/v1", kind.Kind, kind.APIVersion)
	}
	if err != nil {
		return pods{}, fmt.Errorf("--pod: %w", err)
	}
	return p, nil
}

// one returns the only object of a YAML or JSON stream; nil: there is none.
func one(data []byte) (object json.RawMessage, err error) {
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1); ; {
		var next json.RawMessage
		switch err := d.Decode(&next); {
		case errors.Is(err, io.EOF):
			return object, nil
		case err != nil:
			return nil, err
		case len(next) == 0 || string(next) == "null": // comments
		case object != nil:
			return nil, errors.New("holds more than one object, must be one")
		default:
			object = next
		}
	}
}
