package contract

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// kube-apiserver's parser reads back every character, next to others and between spaces. Characters that are escaped
// are also tested alone, and as a key. From plane 2 on, only the ends of a plane are tested: no character in between
// differs for the encoder or the parser.
func TestEveryCharacterOfABodyIsReadAsItWas(t *testing.T) {
	for first := rune(0); first <= utf8.MaxRune; first += 0x400 {
		if at := first & 0xFFFF; first >= 0x20000 && at > 0 && at < 0xFC00 {
			continue
		}
		var dense, spaced strings.Builder
		want := map[string]string{}
		for r := first; r < first+0x400; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			dense.WriteRune(r)
			spaced.WriteString(" " + string(r) + " a")
			if r < 0x3000 && !strconv.IsPrint(r) || r >= 0xFE00 && r <= 0xFFFF {
				want[string(r)] = string(r)
			}
		}
		want["dense"], want["spaced"] = dense.String(), spaced.String()
		var fromJSON, fromYAML map[string]string
		err := errors.Join(json.Unmarshal(Body(want), &fromJSON), yaml.UnmarshalStrict(Body(want), &fromYAML))
		if err != nil || !maps.Equal(want, fromJSON) || !maps.Equal(want, fromYAML) {
			t.Errorf("from %U: %v, JSON %s, YAML %s", first, err, cmp.Diff(want, fromJSON), cmp.Diff(want, fromYAML))
		}
	}
}

func FuzzStringOfABodyIsReadAsItWas(f *testing.F) {
	f.Add("a\u0085b\u007f\uFEFF\uFFFF\U0001F600")
	f.Fuzz(func(t *testing.T, s string) {
		var got []string
		if err := yaml.UnmarshalStrict(Body([]string{s}), &got); err != nil {
			t.Fatalf("%+q as %s: %v", s, Body([]string{s}), err)
		}
		if utf8.ValidString(s) && got[0] != s {
			t.Errorf("%+q became %+q", s, got[0])
		}
	})
}
