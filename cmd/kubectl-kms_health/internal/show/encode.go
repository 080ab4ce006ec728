package show

import (
	"bytes"
	"encoding/json"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

// As returns v as JSON or YAML; for any other format it returns the text.
func As(format string, v any, text string) ([]byte, error) {
	switch format {
	case "json":
		return JSON(v)
	case "yaml":
		return YAML(v)
	}
	return []byte(text), nil
}

// JSON is v in a readable form, safe to print to a terminal.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return contract.Printable(b.String()), err
}

// YAML is v, safe to print to a terminal. The encoder leaves some characters that cannot be
// printed, such as bidirectional controls: what has any is printed as JSON, which is YAML, too.
func YAML(v any) ([]byte, error) {
	text, err := JSON(v)
	if err != nil {
		return nil, err
	}
	block, _ := yaml.JSONToYAML(text) // nil for what it cannot read
	if block == nil || bytes.ContainsFunc(block, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return text, nil
	}
	return block, nil
}
