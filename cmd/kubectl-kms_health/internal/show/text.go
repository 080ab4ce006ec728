package show

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// clean removes control characters from external text, which could control the terminal: every
// writer of a status, and a plugin through its reporter, can choose it.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Lines is external text of several lines, without control characters.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// orDash is the text of a cell, a dash if it is empty.
func orDash(s string) string {
	if s = strings.TrimSpace(clean(s)); s == "" {
		return "-"
	}
	return s
}

// middle shortens a text to a number of runes, in its middle: many ids and names have the same
// beginning, such as ARNs.
func middle(s string, runes int) string {
	r := []rune(s)
	if runes < 1 || len(r) <= runes {
		return s
	}
	return string(r[:(runes-1)/2]) + "…" + string(r[len(r)-runes/2:])
}

// age as text. Reports have whole seconds, so half a second ahead counts as zero.
func age(d time.Duration) string {
	if d <= -time.Second {
		return "-" + duration.HumanDuration(-d)
	}
	return duration.HumanDuration(max(d, 0))
}

// wrap breaks text into lines of a width, between words. A word is not broken, and neither is a
// command within a message, so that it can be copied. The first line has an indent, the others a
// larger one.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for _, part := range parts(clean(text)) {
		if strings.TrimSpace(line) != "" && utf8.RuneCountInString(line+part) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent + "  "
		}
		line += part + " "
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}

// parts are the words of a text, and its commands, each of which ends with the text or a semicolon.
func parts(text string) (all []string) {
	inCommand := false
	for word := range strings.FieldsSeq(text) {
		if inCommand {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		inCommand = (inCommand || word == "oc" || word == "kubectl") && !strings.HasSuffix(word, ";")
	}
	return all
}
