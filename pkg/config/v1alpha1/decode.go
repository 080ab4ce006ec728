package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2" // the parser of sigs.k8s.io/yaml, which reads one document of several
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	c, f := new(T), fitting{errs: errs}
	if err := json.Unmarshal([]byte(contract.Marshal(f.fit(nil, document, reflect.TypeFor[T]()))), c); err != nil {
		return nil, err
	}
	setDefaults(c)
	errs = f.errs
	for _, invalid := range validate(c) {
		if !f.within(invalid.Field) {
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

// maxErrors bounds how many errors are logged: a file can hold thousands.
const maxErrors = 50

// otherFiles has hints for kinds of files that are mistaken for one of this package's.
var otherFiles = map[string]string{
	ReporterKind:              "; kms-health-reporter --validate --config FILE checks that kind",
	OperatorKind:              "; kms-health-operator validate --config FILE checks that kind",
	"EncryptionConfiguration": apiServersFile,
	"EncryptionConfig":        apiServersFile,
	"ConfigMap":               `; of a ConfigMap data["` + contract.ConfigFile + `"] is read, as text`,
}

const apiServersFile = "; this is kube-apiserver's file, which kms-health-operator render reads by --encryption-config"

// checkKind's error is the only one of a file: in another kind of file the other fields have another meaning.
func checkKind(document map[string]any, kind string) error {
	text := func(field string) string {
		if document[field] == nil {
			return ""
		}
		return short(fmt.Sprint(document[field]))
	}
	found := TypeMeta{text("apiVersion"), text("kind")}
	if found == (TypeMeta{APIVersion, kind}) {
		return nil
	}
	return fmt.Errorf("apiVersion, kind: must be %s, %s, and not %q, %q%s",
		APIVersion, kind, found.APIVersion, found.Kind, otherFiles[found.Kind])
}

// short renders a value for an error: enough to find it in the file. A URL may have a user and password, and may stand
// in the wrong field; one that cannot be parsed may have them anywhere, and an encoded one may hide them.
func short(text string) string {
	secret := strings.Contains(text, "@") || strings.Contains(text, "://") && strings.ContainsAny(text, "%?#")
	if secret && !strings.HasPrefix(text, "unix:///") {
		return "(not shown)"
	}
	return contract.Cut(text, 80)
}

// MaxFileSize bounds a configuration file, in bytes. It leaves ample room for comments.
const MaxFileSize = 128 << 10

// parse reads exactly one YAML (or JSON) document, a mapping of a kind or a ConfigMap with one, and returns it with an
// error for each key that it has twice.
func parse(data []byte, kind string) (document map[string]any, twice []error, err error) {
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
		hint := "check indentation and quotes, also in the lines before and after"
		if bytes.Contains(data, []byte("{{")) {
			hint = "{{ }} belongs to a template: use the file that it renders"
		}
		detail := contract.CleanDetail(strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, nil, fmt.Errorf("invalid YAML: %s (%s)", detail, hint)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("the file must hold one YAML document: remove what follows ---")
	}
	numbers := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d } // as they are written
	if yaml.Unmarshal(data, &document, numbers) != nil {
		return nil, nil, errors.New("the file must be a mapping, with apiVersion and kind")
	}
	files, _ := document["data"].(map[string]any)
	if file, isText := files[contract.ConfigFile].(string); isText && document["kind"] == "ConfigMap" {
		return parse([]byte(file), kind)
	}
	return document, twice, checkKind(document, kind)
}

// checkText rejects what must not be in a file, in comments and quoted strings too: hidden characters, and
// what begins like an anchor, whose value aliases could repeat until a small file is large in memory.
func checkText(data []byte) error {
	if len(data) > MaxFileSize {
		return fmt.Errorf("the file is %d bytes, must be at most %d", len(data), MaxFileSize)
	}
	if !utf8.Valid(data) {
		return errors.New("the file is not text: it must be UTF-8")
	}
	isSeparator := func(r rune) bool { return strings.ContainsRune(" \t[{,:?\ufeff", r) } // of what may be an anchor
	for i, line := range strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") {
		if at := strings.IndexFunc(line, isHidden); at >= 0 {
			character, _ := utf8.DecodeRuneInString(line[at:])
			return fmt.Errorf("hidden character %q in line %d", string(character), i+1)
		}
		for word := range strings.FieldsFuncSeq(line, isSeparator) {
			if len(word) > 1 && word[0] == '&' {
				return fmt.Errorf("line %d has a YAML anchor (&): write plain values", i+1)
			}
		}
	}
	return nil
}

// isHidden reports whether a character must not be in a line. One that ends a line for the parser but not
// for an editor, or that changes the direction of text, could hide configuration in a comment.
func isHidden(r rune) bool {
	return unicode.IsControl(r) && r != '\t' || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// Duration is a time.Duration, written with its unit: 500ms, 30s, 5m.
type Duration struct {
	time.Duration
	// text is the text in the file if it is zero or no duration. So zero differs from a field
	// that is not set, and validation reports what is wrong, with its path.
	text string
}

// UnmarshalJSON accepts any value: one that is no duration is found by validation.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text, err := strconv.Unquote(string(data))
	if err != nil {
		text = string(data)
	}
	switch value, err := time.ParseDuration(text); {
	case text == "null":
	case err != nil:
		d.text = text
	case value == 0:
		*d = off
	default:
		d.Duration = value
	}
	return nil
}

// off is a duration of 0s in a file.
var off = Duration{text: "0s"}

// MarshalJSON writes it as it is read.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.Duration.String()) }

// Equal compares the values.
func (d Duration) Equal(other Duration) bool { return d.Duration == other.Duration }
