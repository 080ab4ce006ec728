package objects

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
)

// decoded has the objects of the last rendered texts: each sync renders the same ones again,
// and YAML is most of its work. A cluster of three nodes has some 40. A text may be longer than
// usual by the API server's CA.
var decoded = lru.New(128)

const longestDecoded = 64 << 10

// objects executes one template and decodes its documents.
func objects(name string, values any) ([]*unstructured.Unstructured, error) {
	raw, err := bindata.Render(name, values)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	if was, is := decoded.Get(text); is {
		return copies(was.([]*unstructured.Unstructured)), nil
	}
	all, err := decode(name, raw)
	if err != nil {
		return nil, err
	}
	if len(text) <= longestDecoded {
		decoded.Add(text, copies(all))
	}
	return all, nil
}

// copies are for callers, who change what they get.
func copies(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	copied := make([]*unstructured.Unstructured, len(all))
	for i, o := range all {
		copied[i] = o.DeepCopy()
	}
	return copied
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
