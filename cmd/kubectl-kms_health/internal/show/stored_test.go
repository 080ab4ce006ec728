package show

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/stored"
)

// Whoever writes etcd can choose keys, and a plugin its KEK ID.
func TestTextOfEtcdIsCleanedAndKeysAreBounded(t *testing.T) {
	const hostile = "a\x1b[2J\u009b\u202e\u2028\xff\nb"
	text := Stored(&stored.Inventory{
		Summary: hostile, Next: hostile, Revisions: []int64{1, 2},
		Rows:       []stored.Row{{Resource: hostile, Provider: hostile, KEKID: hostile, Objects: 1}, {Resource: "secrets", Provider: "aescbc:v1:k"}},
		Unreadable: []stored.Unreadable{{Key: hostile, Error: hostile}}, UnreadableObjects: 7,
	})
	if strings.ContainsAny(text, "\x1b\u009b\u202e\u2028") || !utf8.ValidString(text) || strings.Count(text, "\n") != 8 {
		t.Errorf("%q", text)
	}
	for _, want := range []string{"(etcd's revision 1, 2). It was compacted meanwhile: objects may have changed in between.\n", "  and 6 more\n", "aescbc:v1:k  -"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
