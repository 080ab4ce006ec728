package publish

import (
	"fmt"
	"strings"
	"testing"
)

// withPassword are URLs of the user "alice" with the password "s3cret" or parts of it,
// in common spellings.
var withPassword = []string{
	"https://alice:s3cret@127.0.0.1:1", "https://alice@127.0.0.1:1", "alice:s3cret@127.0.0.1:1", "//alice:s3cret@127.0.0.1:1",
	"https:alice:s3cret@127.0.0.1:1", "https:/alice:s3cret@127.0.0.1:1", "https://alice:s3cret@127.0.0.1:port",
	"https://alice:s3cret%zz@127.0.0.1:1", "https://alice:s3/cret@127.0.0.1:1", "https://alice:1/s3cret@127.0.0.1:1",
	"https://alice:1#s3cret@127.0.0.1:1", "https://alice:1?s3cret@127.0.0.1:1", "https://alice:s3 cret@127.0.0.1:1",
	`https://alice:s3"cret@127.0.0.1:1`, `https://alice:s3\cret@127.0.0.1:1`, "https://alice:s3@cret@127.0.0.1:1",
	"https://alice:s3\ncret@127.0.0.1:1", "https://alice:s3\x01cret@127.0.0.1:1", "ftp://alice:s3cret@127.0.0.1:1",
	"https://alice:s3cret@[::1", "https://alice:s3cret@", "https://alice%3As3cret%40127.0.0.1:1",
}

func showsNoPassword(t *testing.T, where, text string) {
	t.Helper()
	for _, part := range []string{"alice", "s3", "cret"} {
		if strings.Contains(text, part) {
			t.Errorf("%q is in %s: %s", part, where, text)
		}
	}
}

func TestNoPasswordOfAServersURLIsShown(t *testing.T) {
	s := newServer(t)
	for i, server := range withPassword {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			lines, dir := logLines(t), credentialFiles(t, s)
			quoted := "'" + strings.NewReplacer("\n", "\n\n ", "\x01", "%01").Replace(server) + "'"
			replaceIn(t, dir+"/kubeconfig", `"`+s.URL+`"`, quoted)
			p := run(t, dir, waitLimit)
			p.offer("1")
			showsNoPassword(t, "the error of "+server, p.awaitError(t))
			showsNoPassword(t, "the log", strings.Join(lines(), "\n"))
			showsNoPassword(t, "the metrics", string(p.metrics.Text()))
		})
	}
}
