package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2" // the parser of sigs.k8s.io/yaml, which reads one document of several
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

// DecodeReporter decodes, defaults and validates the reporter's file. On any error it
// returns nil and an error that holds all of them, one a line.
func DecodeReporter(data []byte) (*ReporterConfiguration, error) {
	return decode(data, ReporterKind, setDefaults, validate)
}

// DecodeOperator is DecodeReporter for the operator's file. The image stays
// empty where it is not set: it comes from the operator's environment.
func DecodeOperator(data []byte) (*OperatorConfiguration, error) {
	return decode(data, OperatorKind, setOperatorDefaults, validateOperator)
}

func decode[T any](data []byte, kind string, setDefaults func(*T), validate func(*T) field.ErrorList) (*T, error) {
	document, errs, err := parse(data, kind)
	if err != nil {
		return nil, err
	}
	if wrong := checkKind(document, kind); len(wrong) > 0 {
		return nil, errors.Join(wrong...) // in another kind of file the other fields have another meaning
	}
	c := new(T)
	unknown, err := strictjson.UnmarshalStrict(document, c)
	if err != nil {
		errs = append(errs, typeError(err))
	}
	errs = append(errs, unknown...)
	setDefaults(c)
	for _, invalid := range validate(c) {
		// What is missing may be the value of the wrong type.
		if err == nil || invalid.Type != field.ErrorTypeRequired {
			errs = append(errs, invalid)
		}
	}
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more errors", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// maxErrors bounds how many errors are reported: a file can hold thousands, and an
// error ends in a log.
const maxErrors = 50

// typeRules are what a value must be to be decoded into a type.
var typeRules = map[reflect.Kind]string{
	reflect.String: "must be a string: numbers, and words such as y, no and off, need quotes",
	reflect.Bool:   "must be true or false", reflect.Slice: "must be a list",
	reflect.Map: "must be a mapping", reflect.Struct: "must be a mapping",
}

// typeError explains the first value of a wrong type, by its path without indices.
func typeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	if wrong.Field == "" {
		return errors.New("the file must be a mapping, with apiVersion and kind")
	}
	return field.TypeInvalid(field.NewPath(wrong.Field), wrong.Value, typeRules[wrong.Type.Kind()])
}

// otherFiles are kinds of files that are mistaken for one of this package's.
var otherFiles = map[string]string{
	ReporterKind: "; this is kms-health-reporter's file: kms-health-reporter --validate --config FILE",
	OperatorKind: "; this is kms-health-operator's file: kms-health-operator validate --config FILE",
	"EncryptionConfiguration": "; this is kube-apiserver's file, which kms-health-operator render reads by " +
		"--encryption-config",
	"Config":    "; this is a kubeconfig: destination.kubeconfig of the reporter's file names it",
	"ConfigMap": "; a program reads the file in its data; validate reads the ConfigMap itself, too",
}

func checkKind(document []byte, kind string) (errs []error) {
	var found TypeMeta
	if err := json.Unmarshal(document, &found); err != nil {
		return []error{typeError(err)}
	}
	if other := otherFiles[found.Kind]; other != "" && found.Kind != kind {
		return []error{field.Invalid(field.NewPath("kind"), found.Kind, "must be "+kind+other)}
	}
	for _, f := range []struct{ name, got, want string }{
		{"apiVersion", found.APIVersion, APIVersion}, {"kind", found.Kind, kind},
	} {
		switch f.got {
		case f.want:
		case "":
			errs = append(errs, field.Required(field.NewPath(f.name), "must be "+f.want))
		default:
			errs = append(errs, field.Invalid(field.NewPath(f.name), short(f.got), "must be "+f.want))
		}
	}
	return errs
}

// short renders a value for an error: enough to find it in the file. A URL may have a user
// and password, and may stand in the wrong field; one that cannot be parsed may have them anywhere,
// and an encoded one may hide them.
func short(text string) string {
	secret := strings.Contains(text, "@") || strings.Contains(text, "://") && strings.ContainsAny(text, "%?#")
	if secret && !strings.HasPrefix(text, "unix://") {
		return "(not shown)"
	}
	return contract.Cut(text, 80)
}

const (
	// MaxFileSize bounds a configuration file, in bytes. It leaves ample room for
	// comments in the largest file that is valid.
	MaxFileSize = 128 << 10
	// maxIndicators bounds the characters of a file that can begin a key, a value or
	// an element, and so the memory that its parser takes: a file of nothing else
	// takes a thousand times its size.
	maxIndicators = 4096
)

// parse reads exactly one YAML (or JSON) document, and returns it as JSON, with an error for each
// key that it has twice. It first rejects what could make a small file large in memory: many
// values, and anchors, whose values are repeated.
func parse(data []byte, kind string) (document []byte, twice []error, err error) {
	if err := checkText(data); err != nil {
		return nil, nil, err
	}
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(true)
	var first, second any
	var duplicates *yamlv2.TypeError
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF) || err == nil && first == nil:
		return nil, nil, fmt.Errorf("the file is empty, must hold kind %s", kind)
	case errors.As(err, &duplicates):
		for _, e := range duplicates.Errors {
			twice = append(twice, errors.New(e))
		}
	case err != nil:
		return nil, nil, fmt.Errorf("invalid YAML: %s (check indentation and quotes, also in the lines before and after)",
			contract.CleanDetail(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("the file must hold one YAML document: remove what follows ---")
	}
	document, err = yaml.YAMLToJSON(data)
	return document, twice, err
}

func checkText(data []byte) error {
	if len(data) > MaxFileSize {
		return fmt.Errorf("the file is %d bytes, must be at most %d", len(data), MaxFileSize)
	}
	if !utf8.Valid(data) {
		return errors.New("the file is not text: it must be UTF-8")
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	if at := strings.IndexFunc(text, isHidden); at >= 0 {
		character, _ := utf8.DecodeRuneInString(text[at:])
		return fmt.Errorf("the file is not text: %q in line %d", string(character), 1+strings.Count(text[:at], "\n"))
	}
	if n := indicators(text); n > maxIndicators {
		return fmt.Errorf("the file holds too many values: %d of the characters that separate keys and values, must be "+
			"at most %d", n, maxIndicators)
	}
	return checkAnchors(text)
}

// isHidden reports whether a character has no place in a file. Those that end a line for the
// parser and not for an editor, and those that change the order in which text is shown, are
// among them: they hide configuration in comments.
func isHidden(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' || r == '\u2028' || r == '\u2029' ||
		unicode.Is(unicode.Bidi_Control, r)
}

// indicators counts the characters that can begin a YAML node, wherever they occur: also
// in comments and quoted strings. The limit leaves room for those of a valid file.
func indicators(text string) (n int) {
	for _, begin := range []string{"[", "{", ",", ":", "- ", "-\t", "-\r", "-\n", "? ", "?\t", "?\r", "?\n"} {
		n += strings.Count(text, begin)
	}
	return n
}

// checkAnchors rejects what begins like an anchor, in comments and quoted strings too: its value
// could be repeated by aliases.
func checkAnchors(text string) error {
	const before, after = " \t\r\n[{,:?\xbf", " \t\r\n:" // \xbf ends a byte order mark
	for i := range len(text) - 1 {
		begins := i == 0 || strings.IndexByte(before, text[i-1]) >= 0
		if begins && text[i] == '&' && strings.IndexByte(after, text[i+1]) < 0 {
			return fmt.Errorf("line %d has a YAML anchor (&): write plain values", 1+strings.Count(text[:i], "\n"))
		}
	}
	return nil
}

// Unwrap returns the configuration file in a ConfigMap, and any other file as it is.
func Unwrap(data []byte) ([]byte, error) {
	var object struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	// What decodes the file reports what is wrong with it.
	isYAML := checkText(data) == nil && yaml.Unmarshal(data, &object) == nil
	if !isYAML || object.Kind != "ConfigMap" {
		return data, nil
	}
	file := object.Data[contract.ConfigFile]
	if file == "" {
		return nil, field.Required(field.NewPath("data").Key(contract.ConfigFile),
			"the configuration file, where the file is a ConfigMap")
	}
	return []byte(file), nil
}
