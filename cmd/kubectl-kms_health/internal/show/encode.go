package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

// JSON is v in a readable form, safe to print to a terminal.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return contract.Printable(b.String()), nil
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// YAML converts JSON, and keeps it safe to print to a terminal: the encoder leaves
// bidirectional controls, for example, as they are. It gets a placeholder for each string with
// characters that cannot be printed, which then becomes a double-quoted scalar. YAML has all of
// the escapes of strconv.Quote.
func YAML(raw []byte) ([]byte, error) {
	placeholder := "unprintable"
	for bytes.Contains(raw, []byte(placeholder)) {
		placeholder += "-"
	}
	var replacements []string
	raw = jsonString.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var s string
		if json.Unmarshal(quoted, &s) != nil || !strings.ContainsFunc(s, unprintable) {
			return quoted
		}
		name := fmt.Sprintf("%s%d.", placeholder, len(replacements))
		replacements = append(replacements, name, strconv.Quote(s))
		return []byte(`"` + name + `"`)
	})
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(replacements...).Replace(string(text))), nil
}

func unprintable(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }
