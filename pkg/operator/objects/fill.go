package objects

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
)

// values are what the placeholders of a file stand for. One that is nil or not set omits the key or the item.
type values map[string]any

// when returns a value, or nil.
func when(condition bool, value any) any {
	if condition {
		return value
	}
	return nil
}

// object returns the only object of a file of bindata/.
func object(file string, v values) *unstructured.Unstructured { return objects(file, v)[0] }

// objects returns the objects of a file of bindata/.
func objects(file string, v values) []*unstructured.Unstructured {
	return fillAll(templates()[file], v)
}

// templates has the objects of each file of bindata/. They are decoded once: each sync builds pods for all nodes.
var templates = sync.OnceValue(func() map[string][]*unstructured.Unstructured {
	all := map[string][]*unstructured.Unstructured{}
	files, _ := bindata.Files.ReadDir(".") // they are part of the program
	for _, file := range files {
		raw, _ := bindata.Files.ReadFile(file.Name())
		all[file.Name()] = decode(raw)
	}
	return all
})

// fillAll fills a template. Package text/template is not used: it calls methods by name, so that the linker keeps all
// methods of all types.
func fillAll(template []*unstructured.Unstructured, v values) (all []*unstructured.Unstructured) {
	for _, from := range template {
		// JSON turns values of any type into those of an unstructured object, and copies them.
		content, err := json.Marshal(fill(from.Object, v))
		o := &unstructured.Unstructured{}
		if err = cmp.Or(err, json.Unmarshal(content, &o.Object)); err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	return all
}

// fill replaces each scalar $NAME of a tree by its value. A list in the place of an item becomes several items. A map
// whose key $if has no value is dropped, and so is a map or list that has become empty.
func fill(node any, v values) any {
	switch node := node.(type) {
	case string:
		if name, is := strings.CutPrefix(node, "$"); is {
			return v[name]
		}
	case map[string]any:
		filled := map[string]any{}
		for key, child := range node {
			filled[key] = fill(child, v)
		}
		condition, conditional := filled["$if"]
		delete(filled, "$if")
		maps.DeleteFunc(filled, func(_ string, child any) bool { return child == nil })
		return when((!conditional || condition != nil) && (len(filled) > 0 || len(node) == 0), filled)
	case []any:
		var filled []any
		for _, child := range node {
			switch child := fill(child, v).(type) {
			case []any:
				filled = append(filled, child...)
			default:
				filled = append(filled, child)
			}
		}
		filled = slices.DeleteFunc(filled, func(child any) bool { return child == nil })
		return when(len(filled) > 0, filled)
	}
	return node
}

// decode returns the objects of a YAML stream that is in the program.
func decode(raw []byte) (all []*unstructured.Unstructured) {
	for document := range strings.SplitSeq(string(raw), "\n---") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			panic(err)
		}
		if len(content) > 0 {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	return all
}
