package show

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// clean removes control characters from external text, which could control the terminal:
// every writer of a status, and a plugin through its reporter, can choose it.
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

// cut shortens a text to a number of runes, and marks the cut.
func cut(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	return string([]rune(s)[:runes-1]) + "…"
}

// Shortened ids keep both ends: many have the same beginning, such as ARNs and paths.
const maxID = 16

// middle shortens a text to a number of runes, in its middle.
func middle(s string, runes int) string {
	r := []rune(s)
	if len(r) <= runes {
		return s
	}
	return string(r[:(runes-1)/2]) + "…" + string(r[len(r)-runes/2:])
}

// shortIDs shortens ids unless two of them would then look the same.
func shortIDs(s *view.Status) func(string) string {
	looks := map[string]string{}
	for _, t := range s.Targets {
		for _, p := range t.Plugins {
			short := middle(clean(p.KEKID), maxID)
			if other, taken := looks[short]; taken && other != p.KEKID {
				return clean
			}
			looks[short] = p.KEKID
		}
	}
	return func(id string) string { return middle(clean(id), maxID) }
}

// age as text. Reports have whole seconds, so half a second ahead counts as zero.
func age(d time.Duration) string {
	if d <= -time.Second {
		return "-" + duration.HumanDuration(-d)
	}
	return duration.HumanDuration(max(d, 0))
}

const red, green, yellow, plain = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"

func colour(s rollup.State) string {
	switch {
	case s.Unhealthy():
		return red
	case s == rollup.Healthy:
		return green
	default:
		return yellow
	}
}
