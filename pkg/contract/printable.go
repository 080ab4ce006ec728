package contract

import (
	"fmt"
	"strconv"
	"unicode/utf16"
)

// Printable returns JSON, such as a message, in a form that is safe to print to a terminal: the
// same JSON, with each character that cannot be printed as \u and four hexadecimal digits.
// JSON itself leaves DEL, C1 and bidirectional controls as they are. Newlines stay: in JSON
// they are only between values.
func Printable(text string) []byte {
	printable := make([]byte, 0, len(text)+1)
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			printable = append(printable, string(r)...)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			printable = fmt.Appendf(printable, `\u%04x`, unit)
		}
	}
	return printable
}
