package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// textRule returns what is wrong with any string that has these characters. An empty one is
// more likely a template whose value is missing than a request for the default. Characters
// that cannot be printed could control a terminal or forge a log line.
func textRule(s string) string {
	switch {
	case s == "":
		return "must not be empty: set a value, or remove the field if it is optional"
	case strings.ContainsAny(s, "“”‘’"):
		return "must not have curly quotes: write straight ones"
	case !isPrintable(s):
		return "must hold only characters that can be printed"
	case strings.TrimSpace(s) != s:
		return "must not begin or end with a blank"
	}
	return ""
}

// mostShown bounds how much of a value an error shows, in bytes.
const mostShown = 80

// notShown stands for a value that may hold a password.
const notShown = "(not shown)"

// short renders a value for an error: enough to find it in the file. A URL may have a user
// and password, and may stand in the wrong field.
func short(value any) string {
	switch value.(type) {
	case yaml.MapSlice:
		return "{…}"
	case []any:
		return "[…]"
	}
	text := fmt.Sprint(value)
	if strings.Contains(text, "://") && strings.Contains(text, "@") && !strings.HasPrefix(text, "unix://") {
		return notShown
	}
	return contract.Cut(text, mostShown)
}

// printable returns a text that can be printed, escaped if it cannot.
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}
