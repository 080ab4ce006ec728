package manifests

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
)

// objects executes one template and decodes its documents.
func objects(name string, values any) ([]*unstructured.Unstructured, error) {
	raw, err := bindata.Render(name, values)
	if err != nil {
		return nil, err
	}
	return decode(name, raw)
}

// decode returns the objects of a YAML stream. name is for errors.
func decode(name string, raw []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(string(raw), "\n---") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			return nil, fmt.Errorf("render %s: %w", name, err)
		}
		if len(content) > 0 {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	return all, nil
}

func object(name string, values any) (*unstructured.Unstructured, error) {
	all, err := objects(name, values)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("render %s: %d objects, must be one", name, len(all))
	}
	return all[0], nil
}
