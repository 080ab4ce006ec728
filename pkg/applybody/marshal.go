// Package applybody encodes the bodies of requests that change an object: Server-Side Apply, and patches.
//
// kube-apiserver reads the body of an apply as YAML, and not all JSON is YAML: the parser (go.yaml.in/yaml, readerc.go
// and scannerc.go) refuses some characters that JSON allows in a string, with "control characters are not allowed",
// and changes others. One such character, in a name that a plugin chooses, would stop every write that holds it.
// Marshal escapes them, so that the API server stores the same string.
package applybody

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// differs reports whether YAML reads a character differently from JSON: DEL, C1 controls (among them
// NEL, a line break), the other line breaks, the byte order mark, and the last two of the basic plane.
// encoding/json escapes those below U+0020 itself, and outside its strings JSON is ASCII.
func differs(r rune) bool {
	switch r {
	case '\u2028', '\u2029', '\uFEFF', '\uFFFE', '\uFFFF':
		return true
	default:
		return '\u007F' <= r && r <= '\u009F'
	}
}

// Marshal returns v as encoding/json does, with every character escaped (\uXXXX) that a YAML parser reads differently
// from a JSON parser. v must hold no json.RawMessage with surrogate pairs (\ud83d\ude00), which YAML does not support;
// encoding/json itself writes none.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || !bytes.ContainsFunc(raw, differs) {
		return raw, err
	}
	var escaped bytes.Buffer
	for _, r := range string(raw) {
		if differs(r) {
			_, _ = fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			_, _ = escaped.WriteRune(r)
		}
	}
	return escaped.Bytes(), nil
}
