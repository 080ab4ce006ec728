package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

// JSON is v in a readable form, safe to print to a terminal.
func JSON(v any) ([]byte, error) {
	text, err := encode(v)
	return contract.Printable(text), err
}

func encode(v any) (string, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return b.String(), err
}

func unprintable(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }

// YAML is v, safe to print to a terminal. The encoder leaves some characters that cannot be
// printed, such as bidirectional controls: what has any is printed as JSON, which is YAML, too, if
// it has no pairs of surrogates.
func YAML(v any) ([]byte, error) {
	text, err := encode(v)
	if err != nil {
		return nil, err
	}
	var printable []byte
	for _, r := range text {
		if unprintable(r) {
			printable = fmt.Appendf(printable, `\U%08x`, r)
		} else {
			printable = append(printable, string(r)...)
		}
	}
	block, err := yaml.JSONToYAML(printable)
	if err == nil && bytes.ContainsFunc(block, unprintable) {
		return printable, nil
	}
	return block, err
}
