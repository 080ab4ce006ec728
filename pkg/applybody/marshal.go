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
	"unicode/utf8"
)

// Marshal returns v as encoding/json does, with every character escaped (\uXXXX) that
// a YAML parser reads differently from a JSON parser. v must hold no json.RawMessage with
// surrogate pairs (\ud83d\ude00), which YAML does not support; encoding/json itself
// writes none.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// Outside its strings JSON is ASCII, so what is found below is inside one.
	var escaped []byte
	copied := 0
	for i := 0; i < len(raw); {
		if raw[i] < 0x7F {
			i++
			continue
		}
		r, size := utf8.DecodeRune(raw[i:])
		if differs(r) {
			escaped = fmt.Appendf(append(escaped, raw[copied:i]...), `\u%04x`, r)
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return raw, nil
	}
	return append(escaped, raw[copied:]...), nil
}

// differs reports whether YAML reads a character differently from JSON: DEL, C1 controls
// (among them NEL, a line break), the other line breaks, the byte order mark, and the
// last two of the basic plane. encoding/json escapes those below U+0020 itself.
func differs(r rune) bool {
	switch {
	case r >= 0x7F && r <= 0x9F, r == '\u2028', r == '\u2029', r == '\uFEFF', r == '\uFFFE', r == '\uFFFF':
		return true
	}
	return false
}
