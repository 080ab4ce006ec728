package nodes

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// rewriter replaces paths by others, in one pass: what it has written it does
// not look at again.
type rewriter struct{ pairs [][2]string } // the longest first

func newRewriter(replace map[string]string) *rewriter {
	r := &rewriter{}
	for from, to := range replace {
		if from != "" {
			r.pairs = append(r.pairs, [2]string{from, to})
		}
	}
	slices.SortFunc(r.pairs, func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(len(b[0]), len(a[0])), cmp.Compare(a[0], b[0]))
	})
	return r
}

// rewrite replaces each path where it stands alone or begins a longer one:
// /etc/kms is not found in /etc/kms-health, nor in /host/etc/kms.
func (r *rewriter) rewrite(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if from, to, found := r.at(text, i); found {
			b.WriteString(to)
			i += len(from)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}

func (r *rewriter) at(text string, i int) (from, to string, found bool) {
	if i > 0 && isName(text[i-1]) {
		return "", "", false
	}
	for _, pair := range r.pairs {
		rest, found := strings.CutPrefix(text[i:], pair[0])
		if found && (rest == "" || !isName(rest[0])) {
			return pair[0], pair[1], true
		}
	}
	return "", "", false
}

// isName returns whether a byte may be part of a file's name, as far as we care.
func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-.~", c) >= 0
}

// content rewrites text, and leaves what is none as it is.
func (r *rewriter) content(data []byte) []byte {
	if !utf8.Valid(data) {
		return data
	}
	return []byte(r.rewrite(string(data)))
}
