package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2" // the parser of sigs.k8s.io/yaml, which reads one document of several
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
)

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
