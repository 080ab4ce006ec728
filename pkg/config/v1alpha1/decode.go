package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxFileSize bounds a configuration file, in bytes. It leaves ample room for
	// comments in the largest file that is valid.
	MaxFileSize = 128 << 10
	// maxIndicators bounds the characters of a file that can begin a key, a value or
	// an element, and so the memory that its parser takes: a file of nothing else
	// takes a thousand times its size.
	maxIndicators = 4096
	// maxAliasLike bounds the words in a file that may be aliases.
	maxAliasLike = 64
)

// DecodeReporter decodes, defaults and validates the reporter's file. On any
// mistake it returns nil and an error that holds every mistake; Lines splits it.
func DecodeReporter(data []byte) (*ReporterConfiguration, error) {
	return decode(data, ReporterKind, setDefaults, validate)
}

// DecodeOperator is DecodeReporter for the operator's file. The image stays
// empty where it is left out: it comes from the operator's environment.
func DecodeOperator(data []byte) (*OperatorConfiguration, error) {
	return decode(data, OperatorKind, setOperatorDefaults, validateOperator)
}

func decode[T any](data []byte, kind string, setDefaults func(*T, presence), validate func(*T) field.ErrorList) (*T, error) {
	document, err := parse(data, kind)
	if err != nil {
		return nil, fmt.Errorf("the file %w", err)
	}
	found := &mistakes{source: source{data, document}}
	if checkKind(document, kind, found); len(found.errs) > 0 {
		return nil, found.err()
	}
	kept := found.checkFields(nil, document, reflect.TypeFor[T]())
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := new(T)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	setDefaults(c, presence{kept})
	unreadable := found.errs[:len(found.errs):len(found.errs)]
	for _, e := range validate(c) {
		if !under(e.Field, unreadable) {
			found.add(e)
		}
	}
	if len(found.errs) > 0 {
		return nil, found.err()
	}
	return c, nil
}

// under reports whether a mistake was already found in a field or around it: the result
// of validating a value that could not be decoded would be misleading.
func under(name string, errs field.ErrorList) bool {
	for _, e := range errs {
		rest, inside := strings.CutPrefix(name, e.Field)
		if inside && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// Lines returns the mistakes that an error of this package holds, one line each.
func Lines(err error) []string {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return []string{err.Error()}
	}
	var lines []string
	for _, e := range many.Unwrap() {
		lines = append(lines, e.Error())
	}
	return lines
}

// maxMistakes bounds how many mistakes are reported: a file can hold thousands, and an
// error ends in a log.
const maxMistakes = 50

// mistakes collects as many as are reported, and counts the others.
type mistakes struct {
	errs   field.ErrorList
	more   int
	source source
}

func (m *mistakes) add(e *field.Error) {
	if !m.full() {
		m.errs = append(m.errs, e)
	}
}

// full reports whether no more mistakes are collected, and counts this one if so.
func (m *mistakes) full() bool {
	if len(m.errs) < maxMistakes {
		return false
	}
	m.more++
	return true
}

// err joins the mistakes into one error of one line: a log's reader greps.
func (m *mistakes) err() error {
	var joined oneLine
	for _, e := range m.errs {
		joined = append(joined, e)
	}
	if m.more > 0 {
		joined = append(joined, fmt.Errorf("and %d more mistakes", m.more))
	}
	return joined
}

type oneLine []error

func (o oneLine) Unwrap() []error { return o }

func (o oneLine) Error() string {
	texts := make([]string, len(o))
	for i, e := range o {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// parse reads exactly one YAML (or JSON) document, once. It first rejects what could make
// a small file large in memory: many values, and aliases, which repeat a value.
func parse(data []byte, kind string) (yaml.MapSlice, error) {
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("is %d bytes, must be at most %d", len(data), MaxFileSize)
	}
	if i := firstNonText(data); i >= 0 {
		what := fmt.Sprintf("byte 0x%02x", data[i])
		if r, size := utf8.DecodeRune(data[i:]); size > 1 {
			what = fmt.Sprintf("character %U", r)
		}
		return nil, fmt.Errorf("is not text: %s at offset %d", what, i)
	}
	if n := indicators(data); n > maxIndicators {
		return nil, fmt.Errorf("holds too many values: %d of the characters that separate keys and values, must be at most %d", n, maxIndicators)
	}
	if mergeKey.Match(data) {
		return nil, errors.New("uses YAML merge keys (<<), which are not supported: write the fields out")
	}
	if hasAliases(data) {
		return nil, errors.New("uses YAML aliases (*), which are not supported: write the values out")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.MapSlice
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err == nil && document == nil {
		return nil, fmt.Errorf("is empty, must hold a %s", kind)
	} else if err != nil {
		return nil, fmt.Errorf("is not a YAML mapping: %s", yamlReason(err))
	}
	var second any
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document, must be one")
	}
	return document, nil
}

// mergeKey is a key by which the parser merges a mapping into another. It drops such
// keys from the ordered mappings that are requested here.
var mergeKey = regexp.MustCompile(`(^|[\s,{?])<<\s*:|:merge|!merge`)

// indicators counts the characters that can begin a YAML node, wherever they occur: also
// in comments and quoted strings. The limit leaves room for those of a valid file.
func indicators(data []byte) (n int) {
	for i, c := range data {
		switch c {
		case '[', '{', ',', ':':
			n++
		case '-', '?':
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// hasAliases reports whether a file contains *name after &name, in any place.
func hasAliases(data []byte) bool {
	candidates := 0
	for i, c := range data {
		if c != '*' {
			continue
		}
		end := i + 1
		for end < len(data) && aliasCharacter(data[end]) {
			end++
		}
		if end == i+1 {
			continue
		}
		anchor := append([]byte("&"), data[i+1:end]...)
		if candidates++; candidates > maxAliasLike || bytes.Contains(data[:i], anchor) {
			return true
		}
	}
	return false
}

func aliasCharacter(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '-'
}

// firstNonText returns the offset of the first byte or character that is not valid in text,
// or -1. Those that end a line for the parser and not for an editor, and those that change
// the order in which text is shown, are among them: they hide configuration in comments.
func firstNonText(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return i
		case r == '\n' || r == '\t' || r == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r):
			return i
		}
		i += size
	}
	return -1
}

// checkKind checks apiVersion and kind only: in another kind of file the other
// fields have another meaning.
func checkKind(document yaml.MapSlice, kind string, found *mistakes) {
	for _, want := range []struct{ name, value string }{{"apiVersion", APIVersion}, {"kind", kind}} {
		i := slices.IndexFunc(document, func(item yaml.MapItem) bool { return item.Key == want.name })
		switch {
		case i < 0:
			found.add(field.Required(field.NewPath(want.name), fmt.Sprintf("must be %q", want.value)))
		case document[i].Value != any(want.value):
			found.add(field.NotSupported(field.NewPath(want.name), short(document[i].Value), []string{want.value}))
		}
	}
}

// presence reports which fields a file contains with a value of the right type.
type presence struct{ tree any }

// has walks by names and indices.
func (p presence) has(steps ...any) bool {
	node := p.tree
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			m, _ := node.(map[string]any)
			node = m[step]
		case int:
			s, _ := node.([]any)
			if step >= len(s) {
				return false
			}
			node = s[step]
		}
	}
	return node != nil
}

// yamlReason is the parser's error on one line, without the parser's internal terms. Text
// of the file in it is escaped and cut.
func yamlReason(err error) string {
	words := strings.Join(strings.Fields(err.Error()), " ")
	return short(printable(strings.NewReplacer("yaml: ", "", " into yaml.MapSlice", "").Replace(words)))
}
