//go:build integration

package integration

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// notText reports whether a detail has a space instead of this character, by docs/reference/contract.md.
func notText(r rune) bool {
	return r < 0x20 || r >= 0x7F && r <= 0x9F || r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x2028 && r <= 0x202E ||
		r >= 0x2066 && r <= 0x2069 || r == 0xFEFF || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}

func TestKeyIDAndErrorsOfHostileCharactersAreReported(t *testing.T) {
	var all strings.Builder
	for r := rune(1); r <= 0xFFFF; r++ {
		if utf8.ValidRune(r) && notText(r) {
			all.WriteRune(r)
		}
	}
	hostile := all.String()
	r := newReporter(t)
	one := r.plugin("1", kmsplugin.Fault{Name: kmsplugin.FaultKeyID, Args: []string{hostile}})
	r.configure(toKube, "1:Write")
	r.start()
	stored := func(status, kekID string) {
		eventually(t, "stored as "+status, func() bool {
			e := entriesIn(operatorObject(t), r.node)
			return len(e) == 1 && string(e[0].Status) == status && e[0].KEKID == kekID &&
				!strings.ContainsFunc(e[0].Detail, notText)
		})
	}
	stored("healthy", hostile)
	must.Succeed(t, one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{hostile}}))
	stored("unhealthy", hostile)
	must.Succeed(t, one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultRPCError, Args: []string{"Internal", hostile}}))
	stored("error", "")
}
