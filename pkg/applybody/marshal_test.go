package applybody

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// kube-apiserver's parser reads back every character, next to others and between spaces. Characters that need escaping
// are also tested alone, and as a key.
func TestEveryCharacterIsReadAsItWas(t *testing.T) {
	read := 0
	for first := rune(0); first <= utf8.MaxRune; first += 0x400 {
		var dense, spaced strings.Builder
		want := map[string]string{}
		for r := first; r < first+0x400; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			read++
			dense.WriteRune(r)
			spaced.WriteString(" " + string(r) + " a")
			if differs(r) || unicode.IsControl(r) {
				want[string(r)] = string(r)
			}
		}
		want["dense"], want["spaced"] = dense.String(), spaced.String()
		raw, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var fromJSON, fromYAML map[string]string
		err = errors.Join(json.Unmarshal(raw, &fromJSON), yaml.UnmarshalStrict(raw, &fromYAML))
		if err != nil || !maps.Equal(want, fromJSON) || !maps.Equal(want, fromYAML) {
			t.Errorf("from %U: %v, JSON %s, YAML %s", first, err, cmp.Diff(want, fromJSON), cmp.Diff(want, fromYAML))
		}
	}
	if all := 0x110000 - 0x800; read != all {
		t.Errorf("%d characters were read, there are %d", read, all)
	}
}

func TestWhatNeedsNoEscapingIsAsEncodingJSONWritesIt(t *testing.T) {
	for _, v := range []any{"", "é€😀 \"\\\n\x00<", map[string]any{"a": []int{1}, "ü": nil}} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Marshal(v); err != nil || string(got) != string(want) {
			t.Errorf("%s, want %s (%v)", got, want, err)
		}
	}
	if raw, err := Marshal(func() {}); err == nil { // JSON cannot hold it
		t.Errorf("%s", raw)
	}
}

func FuzzStringIsReadAsItWas(f *testing.F) {
	f.Add("a\u0085b\u007f\uFEFF\uFFFF\U0001F600")
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := Marshal([]string{s})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := yaml.UnmarshalStrict(raw, &got); err != nil {
			t.Fatalf("%+q as %s: %v", s, raw, err)
		}
		if utf8.ValidString(s) && got[0] != s {
			t.Errorf("%+q became %+q", s, got[0])
		}
	})
}
