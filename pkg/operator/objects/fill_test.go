package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaceholdersAreReplacedByValues(t *testing.T) {
	for name, tt := range map[string]struct {
		file, want string // YAML
		values     values
	}{
		"values of any type": {"{a: $A, b: [x, $B], c: $C}", "{a: text, b: [x, 1], c: {d: e}}",
			values{"A": "text", "B": 1, "C": map[string]string{"d": "e"}}},
		"a value is not filled":   {"a: $A", "a: \"$B: {{ }}\"", values{"A": "$B: {{ }}"}},
		"items":                   {"a: [x, $A, y]", "a: [x, 1, 2, y]", values{"A": []any{1, 2}}},
		"no value":                {"{a: $A, b: [x, $A], c: false}", "{b: [x], c: false}", values{"A": nil}},
		"nothing is left":         {"{a: {b: [$A]}, c: {}, d: e}", "{c: {}, d: e}", values{"A": nil}},
		"a condition that holds":  {"a: [{$if: $A, b: c}]", "a: [{b: c}]", values{"A": ""}},
		"a condition without":     {"{a: [{$if: $A, b: $B}], d: e}", "d: e", values{"A": nil, "B": 1}},
		"a value that is not set": {"{a: $A, b: c}", "b: c", values{}},
		"a placeholder in a text": {"a: x-$A", "a: x-$A", values{"A": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := fillAll(decode([]byte(tt.file)), tt.values)
			if d := cmp.Diff(decode([]byte(tt.want)), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
