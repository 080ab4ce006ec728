package v1alpha1

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v2"
)

// source is a file and what was parsed of it.
type source struct {
	data     []byte
	document yaml.MapSlice
}

// lineOf returns the line of a key of the document, from 1; 0: it is not known. The parser
// does not report lines. So it is searched for in the text, which must have the key's name as
// often as the document has: a name that is also in a string has no line.
func (s *source) lineOf(item *yaml.MapItem) int {
	name, isString := item.Key.(string)
	if !isString || name == "" || len(name) > maxNamed {
		return 0
	}
	nth, all := -1, 0
	countKeys(s.document, name, func(found *yaml.MapItem) {
		if found == item {
			nth = all
		}
		all++
	})
	line, inText := 0, 0
	for from := 0; ; {
		at := bytes.Index(s.data[from:], []byte(name))
		if at < 0 {
			break
		}
		at += from
		from = at + len(name)
		if !isKey(s.data, at, from) {
			continue
		}
		if inText == nth {
			line = 1 + bytes.Count(s.data[:at], []byte("\n"))
		}
		inText++
	}
	if inText != all {
		return 0
	}
	return line
}

// maxNamed bounds the names that are searched for, in bytes: no field's is as long.
const maxNamed = 40

// countKeys calls found with each key of a name, in their order in the file.
func countKeys(value any, name string, found func(*yaml.MapItem)) {
	switch value := value.(type) {
	case yaml.MapSlice:
		for i := range value {
			if value[i].Key == any(name) {
				found(&value[i])
			}
			countKeys(value[i].Value, name, found)
		}
	case []any:
		for _, element := range value {
			countKeys(element, name, found)
		}
	}
}

// isKey reports whether the text from begin to end stands where a key does, and in no line
// that is a comment.
func isKey(data []byte, begin, end int) bool {
	if begin > 0 && end < len(data) && strings.IndexByte(`"'`, data[begin-1]) >= 0 && data[end] == data[begin-1] {
		begin, end = begin-1, end+1
	}
	if begin > 0 && strings.IndexByte(" \t\n{[,", data[begin-1]) < 0 {
		return false
	}
	rest := bytes.TrimLeft(data[end:], " \t")
	if len(rest) == 0 || rest[0] != ':' || len(rest) > 1 && strings.IndexByte(" \t\r\n", rest[1]) < 0 {
		return false
	}
	line := data[1+bytes.LastIndexByte(data[:begin], '\n') : begin]
	return !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#"))
}
