package show

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is how many columns of a terminal a text takes: two for a wide rune, none for a
// combining one.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	if r < 0x300 {
		return 1 // clean leaves no control characters
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// minText is the shortest line that text is wrapped to, also on a narrower terminal.
const minText = 20

// wrap breaks a text into lines of a width, between words. first and next are the indents.
// Words are not broken, and neither are commands, so that they can be copied; only a word
// with wide runes is, since text in such a script has no spaces.
func wrap(text, first, next string, width int) string {
	var b strings.Builder
	limit := max(width, columns(next)+minText)
	b.WriteString(first)
	taken, empty := columns(first), true
	for _, unit := range units(text, limit-columns(next)) {
		n := columns(unit)
		switch {
		case empty:
		case taken+1+n > limit:
			b.WriteString("\n" + next)
			taken = columns(next)
		default:
			b.WriteString(" ")
			taken++
		}
		b.WriteString(unit)
		taken, empty = taken+n, false
	}
	if empty {
		return strings.TrimRight(first, " ") + "\n"
	}
	return b.String() + "\n"
}

// units are the parts of a text that stay on one line: words, commands, and pieces of words
// with wide runes, which have at most limit columns.
func units(text string, limit int) []string {
	var all, command []string
	for word := range strings.FieldsSeq(text) {
		switch {
		case len(command) > 0 || slices.Contains(programs, word):
			command = append(command, word)
			if strings.HasSuffix(word, ";") || strings.HasSuffix(word, ",") {
				all, command = append(all, strings.Join(command, " ")), nil
			}
		case columns(word) > limit && columns(word) > len([]rune(word)):
			all = append(all, pieces(word, limit)...)
		default:
			all = append(all, word)
		}
	}
	if len(command) > 0 {
		all = append(all, strings.Join(command, " "))
	}
	return all
}

// programs begin a command within a message. It goes to the end of the message, or of its
// part.
var programs = []string{"oc", "kubectl", "chronyc"}

func pieces(word string, limit int) (all []string) {
	piece, taken := "", 0
	for _, r := range word {
		if n := columnsOf(r); taken+n > limit {
			all, piece, taken = append(all, piece), string(r), n
		} else {
			piece, taken = piece+string(r), taken+n
		}
	}
	return append(all, piece)
}

// pad fills a cell up to a width.
func pad(s string, width int) string { return s + strings.Repeat(" ", max(width-columns(s), 0)) }
