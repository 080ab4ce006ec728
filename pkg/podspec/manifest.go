package podspec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// InjectManifest is Inject for a file: one v1 Pod or one apps/v1 Deployment, as
// YAML or JSON. The result is YAML, with every other field of the file, known or not,
// and without its comments; if nothing has to change, it is the unmodified file.
func InjectManifest(manifest []byte, o Options) ([]byte, error) {
	tree, err := decode(manifest)
	if err != nil {
		return nil, err
	}
	p, err := podOf(tree)
	if err != nil {
		return nil, err
	}
	c, err := injection(p.at, &p.spec, o)
	if err != nil {
		return nil, err
	}
	meta, spec := metav1.ObjectMeta{Annotations: p.annotations}, *p.spec.DeepCopy()
	c.apply(&meta, &spec)
	if apiequality.Semantic.DeepEqual(spec, p.spec) && apiequality.Semantic.DeepEqual(meta.Annotations, p.annotations) {
		return bytes.Clone(manifest), nil
	}
	if err := p.apply(c); err != nil {
		return nil, err
	}
	return encode(tree)
}

// encode writes YAML in which each string of one line with a placeholder of OpenShift's
// static pod installer is quoted: after the replacement, a plain string could have
// another type, since a revision is a number. A string of several lines stays a string.
func encode(tree map[string]any) ([]byte, error) {
	raw, err := utiljson.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	// A unique mark replaces each such string.
	mark := "installer-text-"
	for bytes.Contains(raw, []byte(mark)) {
		mark += "x-"
	}
	var texts []string
	var marked func(any) any
	marked = func(value any) any {
		switch v := value.(type) {
		case map[string]any:
			for key := range v {
				v[key] = marked(v[key])
			}
		case []any:
			for i := range v {
				v[i] = marked(v[i])
			}
		case string:
			if installerWord.MatchString(v) && !strings.Contains(v, "\n") {
				texts = append(texts, v)
				return mark + strconv.Itoa(len(texts)-1)
			}
		}
		return value
	}
	marked(tree)
	var out bytes.Buffer
	encoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{Yaml: true})
	if err := encoder.Encode(&unstructured.Unstructured{Object: tree}, &out); err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return regexp.MustCompile(mark+`\d+`).ReplaceAllFunc(out.Bytes(), func(m []byte) []byte {
		i, _ := strconv.Atoi(string(m[len(mark):]))
		return strconv.AppendQuote(nil, texts[i]) // Go's escapes are YAML's
	}), nil
}

var installerWord = regexp.MustCompile(`NODE_NAME|REVISION`)

// decode reads the one document of a manifest that is not empty.
func decode(manifest []byte) (map[string]any, error) {
	if yaml.IsJSONBuffer(manifest) { // the YAML reader refuses tabs
		var tree map[string]any
		if err := utiljson.Unmarshal(manifest, &tree); err != nil {
			return nil, fmt.Errorf("the manifest is not one JSON object: %w", err)
		}
		return tree, nil
	}
	var tree map[string]any
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifest: %w", err)
		}
		var next map[string]any
		if err := yaml.UnmarshalStrict(document, &next); err != nil {
			return nil, fmt.Errorf("the manifest is not a YAML mapping: %w", err)
		}
		if next != nil && tree != nil {
			return nil, errors.New("the manifest holds more than one object, must be one")
		}
		if next != nil {
			tree = next
		}
	}
	if tree == nil {
		return nil, errors.New("the manifest is empty, must hold a Pod or a Deployment")
	}
	return tree, nil
}

// pod is the pod, or the pod template, of a manifest: its path in the tree, and its
// content.
type pod struct {
	at          *field.Path    // of the PodSpec
	object      map[string]any // with metadata and spec
	annotations map[string]string
	spec        corev1.PodSpec
}

func podOf(tree map[string]any) (*pod, error) {
	p := &pod{at: field.NewPath("spec"), object: tree}
	apiVersion, _ := tree["apiVersion"].(string)
	kind, _ := tree["kind"].(string)
	switch what := strings.TrimSpace(apiVersion + " " + kind); what {
	case "v1 Pod":
	case "apps/v1 Deployment":
		template, found, err := unstructured.NestedFieldNoCopy(tree, "spec", "template")
		if p.object, _ = template.(map[string]any); err != nil || !found || p.object == nil {
			return nil, field.Required(p.at.Child("template"), "the Deployment's pods")
		}
		p.at = p.at.Child("template", "spec")
	default:
		return nil, field.Invalid(field.NewPath("kind"), what, "must be a v1 Pod or an apps/v1 Deployment")
	}
	spec, isMap := p.object["spec"].(map[string]any)
	if !isMap {
		return nil, field.Required(p.at, "the pod's containers")
	}
	raw, err := utiljson.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.at, err)
	}
	if err := utiljson.Unmarshal(raw, &p.spec); err != nil {
		return nil, fmt.Errorf("%s: %w", p.at, err)
	}
	if p.annotations, _, err = unstructured.NestedStringMap(p.object, "metadata", "annotations"); err != nil {
		return nil, fmt.Errorf("annotations of the pod at %s: %w", p.at, err)
	}
	return p, nil
}

// apply changes the tree as change.apply changes a typed pod.
func (p *pod) apply(c change) error {
	spec := p.object["spec"].(map[string]any)
	if err := applyTo(spec, "containers", c.containers); err != nil {
		return err
	}
	if err := applyTo(spec, "volumes", c.volumes); err != nil {
		return err
	}
	after := c.annotations(p.annotations)
	if len(after) == 0 {
		unstructured.RemoveNestedField(p.object, "metadata", "annotations")
		return nil
	}
	return unstructured.SetNestedStringMap(p.object, after, "metadata", "annotations")
}

func applyTo[T any](spec map[string]any, key string, e edit[T]) error {
	list, _ := spec[key].([]any) // a list or absent, otherwise decoding had failed
	plain := edit[any]{drop: e.drop, put: map[int]any{}}
	for i, element := range e.put {
		value, err := tree(element)
		if err != nil {
			return err
		}
		plain.put[i] = value
	}
	for _, element := range e.add {
		value, err := tree(element)
		if err != nil {
			return err
		}
		plain.add = append(plain.add, value)
	}
	if list = plain.apply(list); len(list) > 0 {
		spec[key] = list
	} else {
		delete(spec, key)
	}
	return nil
}

func tree[T any](element T) (any, error) {
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&element)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", element, err)
	}
	return value, nil
}
