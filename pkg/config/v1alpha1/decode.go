package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxFileSize bounds a configuration file, in bytes: what a ConfigMap can hold.
const MaxFileSize = 1 << 20

// DecodeReporter decodes, defaults and validates the reporter's file. On any
// mistake it returns nil and an error that holds every mistake; Lines splits it.
func DecodeReporter(data []byte) (*ReporterConfiguration, error) {
	return decode(data, ReporterKind, setDefaults, validate)
}

// DecodeOperator is DecodeReporter for the operator's file. The image stays
// empty where it is left out: it comes from the operator's surroundings.
func DecodeOperator(data []byte) (*OperatorConfiguration, error) {
	return decode(data, OperatorKind, setOperatorDefaults, validateOperator)
}

func decode[T any](data []byte, kind string, setDefaults func(*T, presence), validate func(*T) field.ErrorList) (*T, error) {
	tree, errs, err := parse(data, kind)
	if err != nil {
		return nil, fmt.Errorf("the file %w", err)
	}
	if kindErrs := checkKind(tree, kind); len(kindErrs) > 0 {
		return nil, aggregate(kindErrs)
	}
	c := new(T)
	kept, fieldErrs := checkFields(nil, tree, reflect.TypeFor[T]())
	errs = append(errs, fieldErrs...)
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	setDefaults(c, presence{tree})
	if unreadable := errs; len(unreadable) < maxMistakes { // else enough is known
		for _, e := range validate(c) {
			if !under(e.Field, unreadable) {
				errs = append(errs, e)
			}
		}
	}
	if len(errs) > 0 {
		return nil, aggregate(errs)
	}
	return c, nil
}

// under says whether a mistake was already found in a field or around it. What
// validation says of a value that could not be read would mislead.
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

// maxMistakes bounds how many mistakes are told: a file of a megabyte can hold
// some hundred thousand, and an error ends in a log.
const maxMistakes = 50

// aggregate joins mistakes into one error of one line: a log's reader greps.
func aggregate(errs field.ErrorList) error {
	joined := oneLine{}
	for _, e := range errs[:min(len(errs), maxMistakes)] {
		joined = append(joined, e)
	}
	if more := len(errs) - maxMistakes; more > 0 {
		joined = append(joined, fmt.Errorf("and %d more mistakes", more))
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

// parse reads exactly one YAML (or JSON) document into maps, slices and
// scalars. A key that stands twice in one map is a mistake, not an override.
func parse(data []byte, kind string) (map[string]any, field.ErrorList, error) {
	if len(data) > MaxFileSize {
		return nil, nil, fmt.Errorf("is %d bytes, must be at most %d", len(data), MaxFileSize)
	}
	if i := firstNonText(data); i >= 0 {
		return nil, nil, fmt.Errorf("is not text: byte 0x%02x at offset %d", data[i], i)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.MapSlice
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err == nil && document == nil {
		return nil, nil, fmt.Errorf("is empty, must hold a %s", kind)
	} else if err != nil {
		return nil, nil, fmt.Errorf("is not a YAML mapping: %s", yamlReason(err))
	}
	var second any
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("holds more than one YAML document, must be one")
	}
	var errs field.ErrorList
	tree, _ := convert(nil, document, &errs).(map[string]any)
	if len(errs) == 0 && merges(data, tree) {
		return nil, nil, errors.New("uses YAML merge keys (<<), which are not supported: write the fields out")
	}
	return tree, errs, nil
}

// merges says whether a file has merge keys that matter: those are followed when
// it is read into plain maps, and dropped when it is read into ordered ones.
func merges(data []byte, tree map[string]any) bool {
	var merged any
	if yaml.Unmarshal(data, &merged) != nil {
		return false
	}
	return !reflect.DeepEqual(plain(merged), any(tree))
}

// plain gives the parser's plain maps the form of convert's.
func plain(value any) any {
	switch value := value.(type) {
	case map[any]any:
		m := make(map[string]any, len(value))
		for k, v := range value {
			m[fmt.Sprint(k)] = plain(v)
		}
		return m
	case []any:
		s := make([]any, len(value))
		for i := range value {
			s[i] = plain(value[i])
		}
		return s
	default:
		return value
	}
}

// firstNonText returns the offset of the first byte that no text file holds, or
// -1.
func firstNonText(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' {
			return i
		}
		i += size
	}
	return -1
}

// convert turns the parser's ordered maps into plain ones, and reports keys that
// are doubled or no strings.
func convert(path *field.Path, value any, errs *field.ErrorList) any {
	switch value := value.(type) {
	case yaml.MapSlice:
		m := make(map[string]any, len(value))
		for _, item := range value {
			key, ok := item.Key.(string)
			if !ok {
				*errs = append(*errs, field.Invalid(child(path, fmt.Sprint(item.Key)), item.Key, "a key must be a string"))
				continue
			}
			v := convert(child(path, key), item.Value, errs)
			if _, doubled := m[key]; doubled {
				*errs = append(*errs, field.Duplicate(child(path, key), short(v)))
				continue
			}
			m[key] = v
		}
		return m
	case []any:
		s := make([]any, len(value))
		for i := range value {
			s[i] = convert(path.Index(i), value[i], errs)
		}
		return s
	default:
		return value
	}
}

// checkKind looks at apiVersion and kind alone: of another kind of file, the
// other fields mean nothing.
func checkKind(tree map[string]any, kind string) field.ErrorList {
	var errs field.ErrorList
	for _, want := range []struct{ name, value string }{{"apiVersion", APIVersion}, {"kind", kind}} {
		got, there := tree[want.name]
		switch {
		case !there:
			errs = append(errs, field.Required(field.NewPath(want.name), fmt.Sprintf("must be %q", want.value)))
		case got != want.value:
			errs = append(errs, field.NotSupported(field.NewPath(want.name), short(got), []string{want.value}))
		}
	}
	return errs
}

// presence tells which fields a file holds.
type presence struct{ tree map[string]any }

// has walks by names and indices.
func (p presence) has(steps ...any) bool {
	var node any = p.tree
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

// yamlReason is the parser's error on one line, without its own vocabulary.
func yamlReason(err error) string {
	return strings.NewReplacer("yaml: ", "", " into yaml.MapSlice", "", "\n", "").Replace(strings.Join(strings.Fields(err.Error()), " "))
}
