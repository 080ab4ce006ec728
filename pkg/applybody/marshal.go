// Package applybody encodes the bodies of requests that change an object: Server-Side
// Apply, and patches.
//
// kube-apiserver reads the body of an apply as YAML, of which JSON is not quite a
// subset: the parser (go.yaml.in/yaml, readerc.go and scannerc.go) refuses some
// characters that JSON allows in a string, with "control characters are not allowed",
// and changes others. One such character, in a name that a plugin chooses, would stop
// every write that holds it. Marshal escapes them, so that the stored string has the
// bytes that it had before.
package applybody

import (
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// differs matches the characters that YAML reads differently from JSON: DEL, C1 controls (among them
// NEL, a line break), the other line breaks, the byte order mark, and the last two of the basic plane.
// encoding/json escapes those below U+0020 itself, and outside its strings JSON is ASCII.
var differs = regexp.MustCompile(`[\x{7F}-\x{9F}\x{2028}\x{2029}\x{FEFF}\x{FFFE}\x{FFFF}]`)

// Marshal returns v as encoding/json does, with every character escaped (\uXXXX) that
// a YAML parser reads differently from a JSON parser. v must hold no json.RawMessage with
// surrogate pairs (\ud83d\ude00), which YAML does not support; encoding/json itself
// writes none.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return differs.ReplaceAllFunc(raw, func(character []byte) []byte {
		r, _ := utf8.DecodeRune(character)
		return fmt.Appendf(nil, `\u%04x`, r)
	}), nil
}
