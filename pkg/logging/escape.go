package logging

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// maxEntry bounds an entry, in bytes before it is escaped. What is longer is cut.
// Escapes of the worst kind take four times their source.
const maxEntry = 16<<10 - 64

// escapeLine returns an entry as a line: cut to maxEntry, everything escaped that
// strconv.Quote would, except for quotes and backslashes, which klog's own quoting
// has doubled, and with one newline at its end. It does not keep the entry.
func escapeLine(entry []byte) []byte {
	entry = bytes.TrimRight(entry, "\n")
	cut := len(entry) - maxEntry
	if cut > 0 {
		entry = entry[:maxEntry]
	}
	line := make([]byte, 0, len(entry)+64)
	for len(entry) > 0 {
		r, size := utf8.DecodeRune(entry)
		switch {
		case r == utf8.RuneError && size == 1:
			line = append(line, `\x`...)
			line = append(line, "0123456789abcdef"[entry[0]>>4], "0123456789abcdef"[entry[0]&0xf])
		case strconv.IsPrint(r):
			line = append(line, entry[:size]...)
		default:
			quoted := strconv.AppendQuoteRune(nil, r)
			line = append(line, quoted[1:len(quoted)-1]...)
		}
		entry = entry[size:]
	}
	if cut > 0 {
		line = append(line, " …("...)
		line = strconv.AppendInt(line, int64(cut), 10)
		line = append(line, " bytes more)"...)
	}
	return append(line, '\n')
}
