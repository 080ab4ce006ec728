package show

import (
	"bytes"
	"encoding/json"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

// As returns v as JSON or YAML, safe to print to a terminal; for any other format it returns the text.
func As(format string, v any, text string) ([]byte, error) {
	if format != "json" && format != "yaml" {
		return []byte(text), nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	asJSON := contract.Printable(b.String())
	if err != nil || format == "json" {
		return asJSON, err
	}
	// The encoder leaves some characters that cannot be printed, such as bidirectional controls: what has any is printed
	// as JSON, which is YAML, too.
	block, _ := yaml.JSONToYAML(asJSON) // nil for what it cannot read
	if block == nil || bytes.ContainsFunc(block, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return asJSON, nil
	}
	return block, nil
}
