package show

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestJSONAndYAMLArePrintableAndHaveTheSameValues(t *testing.T) {
	want := map[string]string{"a\u202e": "b"}
	for _, s := range []string{"\u202e", "\x1b[2J\x7f\u009b\r\n\t\"\\", "\u2028\u200b", "unprintable0.", "unprintable-0.\u202e", `\u202e`, `\`, "one\ntwo", "true", "é\U0001f600"} {
		want[s] = s
	}
	raw, text := As("json", want, ""), As("yaml", want, "")
	var fromJSON, fromYAML map[string]string
	if err := json.Unmarshal(raw, &fromJSON); err != nil {
		t.Error(err)
	}
	if err := yaml.UnmarshalStrict(text, &fromYAML); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, got := range []map[string]string{fromJSON, fromYAML} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if at := strings.IndexFunc(string(raw)+string(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
		t.Errorf("%s%s: byte %d", raw, text, at)
	}
}
