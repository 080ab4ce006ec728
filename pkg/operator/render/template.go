package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
)

var templates = parseTemplates()

func parseTemplates() *template.Template {
	t := template.New("")
	t.Funcs(template.FuncMap{
		// A JSON value is a YAML value on one line, whatever is in it.
		"json": func(v any) (string, error) {
			raw, err := json.Marshal(v)
			return string(raw), err
		},
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"indent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(strings.TrimSpace(text), "\n", pad)
		},
		"trim": strings.TrimSpace,
	})
	return template.Must(t.Option("missingkey=error").ParseFS(bindata.Files, "*.yaml"))
}

// text executes one template of bindata.
func text(name string, values any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, values); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// objects executes one template and decodes its documents.
func objects(name string, values any) ([]*unstructured.Unstructured, error) {
	raw, err := text(name, values)
	if err != nil {
		return nil, err
	}
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
