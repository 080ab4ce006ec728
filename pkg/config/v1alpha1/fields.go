package v1alpha1

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/suggest"
)

// checkFields compares a parsed value with the type it is meant for, and reports every
// unknown or doubled field and every value of the wrong type, with path and value.
// (Decoders stop at the first, and name no path.) It returns what can be decoded: the
// same, as plain maps, without what was reported and without fields that have no value.
func (m *mistakes) checkFields(path *field.Path, value any, t reflect.Type) any {
	if value == nil {
		return nil // a field without a value is a field left out
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return m.checkDuration(path, value)
	}
	var want string
	switch t.Kind() {
	case reflect.Pointer:
		return m.checkFields(path, value, t.Elem())
	case reflect.Struct:
		if s, ok := value.(yaml.MapSlice); ok {
			return m.checkStruct(path, s, t)
		}
		want = "a mapping"
	case reflect.Slice:
		if s, ok := value.([]any); ok {
			return m.checkList(path, s, t.Elem())
		}
		want = "a list"
	case reflect.Map: // of strings
		if s, ok := value.(yaml.MapSlice); ok {
			return m.checkMap(path, s, t.Elem())
		}
		want = "a mapping"
	case reflect.Bool:
		if _, ok := value.(bool); ok {
			return value
		}
		want = "true or false"
	case reflect.String:
		if s, ok := value.(string); ok {
			return m.checkString(path, s)
		}
		want = "a string in quotes"
	default:
		panic(fmt.Sprintf("no configuration type contains a %s yet", t))
	}
	if !m.full() {
		m.add(field.TypeInvalid(path, short(value), fmt.Sprintf("must be %s, is %s", want, kindOf(value))))
	}
	return nil
}

func (m *mistakes) checkDuration(path *field.Path, value any) any {
	s, ok := value.(string)
	if _, err := time.ParseDuration(s); ok && err == nil {
		return value
	}
	if m.full() {
		return nil
	}
	detail := `must be a duration with its unit, like "30s"`
	if !ok {
		detail += ", is " + kindOf(value)
	}
	m.add(field.Invalid(path, short(value), detail))
	return nil
}

// checkString rejects characters that could control a terminal or forge a log line: no
// field needs them.
func (m *mistakes) checkString(path *field.Path, s string) any {
	if printable(s) == s {
		return s
	}
	if !m.full() {
		m.add(field.Invalid(path, short(s), "must hold only characters that can be printed"))
	}
	return nil
}

// maxElements bounds every list and every mapping of strings, so that what is made of
// them is small. Most have a lower bound of their own.
const maxElements = 64

func (m *mistakes) checkList(path *field.Path, s []any, t reflect.Type) any {
	if len(s) > maxElements {
		m.add(field.TooMany(path, len(s), maxElements))
		return nil
	}
	kept := make([]any, len(s))
	for i, element := range s {
		if element == nil && !m.full() {
			m.add(field.Required(path.Index(i), "an element of a list must have a value"))
		}
		kept[i] = m.checkFields(path.Index(i), element, t)
	}
	return kept
}

func (m *mistakes) checkMap(path *field.Path, s yaml.MapSlice, t reflect.Type) any {
	if len(s) > maxElements {
		m.add(field.TooMany(path, len(s), maxElements))
		return nil
	}
	kept := make(map[string]any, len(s))
	m.eachKey(path, s, func(key string, item *yaml.MapItem) {
		value := item.Value
		if value == nil {
			value = ""
		}
		at := path.Key(pathElement(key))
		if _, doubled := kept[key]; doubled && !m.full() {
			m.add(field.Duplicate(at, short(value)))
		} else if !doubled && m.checkString(at, key) != nil {
			kept[key] = m.checkFields(at, value, t)
		}
	})
	return kept
}

func (m *mistakes) checkStruct(path *field.Path, s yaml.MapSlice, t reflect.Type) any {
	known := map[string]reflect.StructField{}
	addFields(known, t)
	kept := make(map[string]any, len(known))
	seen := make(map[string]bool, len(known))
	m.eachKey(path, s, func(name string, item *yaml.MapItem) {
		value := item.Value
		f, ok := known[name]
		switch {
		case !ok && !m.full():
			m.add(m.unknownField(child(path, name), item, name, known))
		case seen[name] && !m.full():
			m.add(field.Duplicate(child(path, name), short(value)))
		case ok && !seen[name]:
			seen[name] = true
			// Most of these turn something off when they are left out: an empty one is
			// more likely a template whose value is missing.
			if value == any("") && f.Type.Kind() == reflect.String && strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
				if !m.full() {
					m.add(field.Invalid(child(path, name), "", "must not be empty: leave the field out, or give it a value"))
				}
			} else if v := m.checkFields(child(path, name), value, f.Type); v != nil {
				kept[name] = v
			}
		}
	})
	return kept
}

// eachKey calls f with every key that is a string.
func (m *mistakes) eachKey(path *field.Path, s yaml.MapSlice, f func(key string, item *yaml.MapItem)) {
	for i := range s {
		item := &s[i]
		if key, ok := item.Key.(string); ok {
			f(key, item)
		} else if !m.full() {
			m.add(field.Invalid(child(path, short(item.Key)), short(item.Key), "a key must be a string"))
		}
	}
}

func (m *mistakes) unknownField(path *field.Path, item *yaml.MapItem, name string, known map[string]reflect.StructField) *field.Error {
	detail := "unknown field"
	if line := m.source.lineOf(item); line > 0 {
		detail += fmt.Sprintf(" in line %d", line)
	}
	if len(name) <= maxNamed {
		detail += suggest.DidYouMean(name, slices.Sorted(maps.Keys(known)))
	}
	return field.Invalid(path, short(item.Value), detail)
}

// addFields collects a struct's fields by their names in the file.
func addFields(known map[string]reflect.StructField, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			addFields(known, f.Type)
			continue
		}
		known[name] = f
	}
}

// kindOf names what a parsed value is.
func kindOf(value any) string {
	switch value.(type) {
	case yaml.MapSlice:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// mostShown bounds how much of a value an error shows, in bytes.
const mostShown = 80

// short renders a value for an error: enough to find it in the file.
func short(value any) string {
	text, isString := value.(string)
	if !isString {
		text = string(appendJSON(nil, value))
	}
	text = withoutPassword(text)
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "…"
	}
	return text
}

// notShown stands for a value that may hold a password.
const notShown = "(not shown)"

// withoutPassword returns notShown in place of a text that may hold a URL with a user and
// password: a URL may stand in a field of another name or type, too.
func withoutPassword(text string) string {
	if strings.Contains(text, "://") && strings.Contains(text, "@") && !strings.HasPrefix(text, "unix://") {
		return notShown
	}
	return text
}

// appendJSON appends the beginning of a value as JSON, soon more than mostShown.
func appendJSON(b []byte, value any) []byte {
	separator := ""
	switch value := value.(type) {
	case yaml.MapSlice:
		b = append(b, '{')
		for _, item := range value {
			if len(b) > mostShown {
				return b
			}
			b = append(appendJSON(append(b, separator...), item.Key), ':')
			b, separator = appendJSON(b, item.Value), ","
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for _, element := range value {
			if len(b) > mostShown {
				return b
			}
			b, separator = appendJSON(append(b, separator...), element), ","
		}
		return append(b, ']')
	case string:
		value = withoutPassword(value) // before it is cut
		return strconv.AppendQuote(b, value[:min(len(value), mostShown)])
	case nil:
		return append(b, "null"...)
	default:
		return fmt.Append(b, value)
	}
}

// printable returns a text with everything escaped, as strconv.Quote does, that cannot
// be printed.
func printable(s string) string {
	var b []byte
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch invalid := r == utf8.RuneError && size == 1; {
		case !invalid && strconv.IsPrint(r):
			if b != nil {
				b = append(b, s[i:i+size]...)
			}
		default:
			if b == nil {
				b = append(make([]byte, 0, len(s)+16), s[:i]...)
			}
			quoted := strconv.Quote(s[i : i+size])
			b = append(b, quoted[1:len(quoted)-1]...)
		}
	}
	if b == nil {
		return s
	}
	return string(b)
}

// pathElement is a name for use in a path, where nothing else quotes it.
func pathElement(name string) string { return printable(short(name)) }

// child also serves the root of the file, which has no path.
func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(pathElement(name))
	}
	return path.Child(pathElement(name))
}
