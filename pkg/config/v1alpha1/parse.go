package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2" // the parser of sigs.k8s.io/yaml, which would keep one of two equal keys
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
	// maxAliasLike bounds the words in a file that may be aliases.
	maxAliasLike = 64
)

// parse reads exactly one YAML (or JSON) document, once. It first rejects what could make
// a small file large in memory: many values, and aliases, which repeat a value.
func parse(data []byte, kind string) (yamlv2.MapSlice, error) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	var document yamlv2.MapSlice
	var wrong *yamlv2.TypeError
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && document == nil:
		return nil, fmt.Errorf("the file is empty, must hold kind %s", kind)
	case errors.As(err, &wrong):
		return nil, errors.New("the file must be a mapping, with apiVersion and kind")
	case err != nil:
		return nil, syntaxError(err)
	}
	var second any
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file must hold one YAML document: remove what follows ---")
	}
	return document, nil
}

// mergeKey is a key by which the parser merges a mapping into another. It drops such
// keys from the ordered mappings that are requested here.
var mergeKey = regexp.MustCompile(`(^|[\s,{?])<<\s*(#[^\n]*\n\s*)*:|:merge|!merge`)

func checkText(data []byte) error {
	switch {
	case len(data) > MaxFileSize:
		return fmt.Errorf("the file is %d bytes, must be at most %d", len(data), MaxFileSize)
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return errors.New("the file is UTF-16, must be UTF-8")
	}
	if at, bad := firstNonText(data); bad != nil {
		return fmt.Errorf("the file is not text: %q in line %d", bad, 1+bytes.Count(data[:at], []byte("\n")))
	}
	switch n := indicators(data); {
	case n > maxIndicators:
		return fmt.Errorf("the file holds too many values: %d of the characters that separate keys and values, must be at most %d", n, maxIndicators)
	case mergeKey.Match(data):
		return errors.New("the file has a YAML merge key (<<): write the fields out")
	case hasAliases(data):
		return errors.New("the file has a YAML alias (*): write the value out")
	}
	return nil
}

// indicators counts the characters that can begin a YAML node, wherever they occur: also
// in comments and quoted strings. The limit leaves room for those of a valid file.
func indicators(data []byte) (n int) {
	for _, begin := range []string{"[", "{", ",", ":", "- ", "-\t", "-\r", "-\n", "? ", "?\t", "?\r", "?\n"} {
		n += bytes.Count(data, []byte(begin))
	}
	return n
}

var aliasLike = regexp.MustCompile(`\*[0-9A-Za-z_-]+`)

// hasAliases reports whether a file contains *name after &name, in any place.
func hasAliases(data []byte) bool {
	found := aliasLike.FindAllIndex(data, maxAliasLike+1)
	return len(found) > maxAliasLike || slices.ContainsFunc(found, func(at []int) bool {
		return bytes.Contains(data[:at[0]], append([]byte("&"), data[at[0]+1:at[1]]...))
	})
}

// firstNonText returns the first character that is not valid in text, and its offset. Those
// that end a line for the parser and not for an editor, and those that change the order in
// which text is shown, are among them: they hide configuration in comments.
func firstNonText(data []byte) (at int, character []byte) {
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		end := r == '\n' || r == '\r' && at+1 < len(data) && data[at+1] == '\n'
		switch {
		case r == utf8.RuneError && size == 1,
			unicode.IsControl(r) && r != '\t' && !end, r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r):
			return at, data[at : at+size]
		}
		at += size
	}
	return at, nil
}

var syntaxLine = regexp.MustCompile(`^line (\d+): `)

// syntaxError is the parser's error with the line. The parser counts the lines of "did not
// find expected ..." from 0, and of others from 1, and omits the first line.
func syntaxError(err error) error {
	cause := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	line := 1
	if found := syntaxLine.FindStringSubmatch(cause); found != nil {
		line, _ = strconv.Atoi(found[1])
		cause = cause[len(found[0]):]
		if strings.HasPrefix(cause, "did not find expected") {
			line++
		}
	}
	return fmt.Errorf("invalid YAML, line %d: %s (check indentation and quotes, here and in the line before)", line, printable(short(cause)))
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
		return nil, field.Required(field.NewPath("data").Key(contract.ConfigFile), "the configuration file, where the file is a ConfigMap")
	}
	return []byte(file), nil
}
