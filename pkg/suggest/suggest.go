// Package suggest finds the name that a mistyped word is similar to.
package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Flag adds to the error of pflag about an unknown flag the one of names, each with its
// dashes, that it is similar to.
func Flag(err error, names []string) error {
	var unknown interface {
		GetSpecifiedName() string
		GetSpecifiedShortnames() string
	}
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := "--" + unknown.GetSpecifiedName()
	if slices.Contains(names, name) { // another mistake
		return err
	}
	return fmt.Errorf("%w%s", err, DidYouMean(name, names))
}

// DidYouMean is a question that names the choice most similar to a word; empty if none is.
func DidYouMean(word string, choices []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, least := "", len(word)/3+2
	for _, choice := range choices {
		n := distance(strings.ToLower(word), strings.ToLower(choice))
		if len(strings.TrimLeft(word, "-")) > 1 && strings.HasPrefix(choice, word) {
			n = 1
		}
		if n < least {
			best, least = choice, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// maxWord bounds the words that are compared, in bytes: a node's name has at most 253.
const maxWord = 256

// distance is how many letters must be inserted, removed or replaced to make a of b, or
// exchanged with the next one.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
