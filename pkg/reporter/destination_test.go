package reporter

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/disk"
)

// A file without plugins withdraws the report, so a running write is cancelled.
func TestWithoutPluginsTheRunningWriteEnds(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // without reading the body, the server does not notice the end of the connection
		close(asked)                       // a second write would panic
		<-r.Context().Done()
		close(ended)
	}))
	t.Cleanup(server.Close)
	h := newFixture(t)
	h.reporter.options.Node = "node-1"
	h.plugin("1")
	kubeconfig := filepath.Join(h.dir, "kubeconfig")
	credentials := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
"users": [{"name": "u", "user": {"token": "t"}}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}`, server.URL)
	disk.Write(t, kubeconfig, []byte(credentials))
	h.more = "destination: {resource: kubeapiservers, kubeconfig: " + kubeconfig + ", writeTimeout: 1m}\n"
	h.write("1h", "1:Write")
	h.run()
	await := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(waitLimit / 2):
			t.Fatal(what)
		}
	}
	await("nothing was written", asked)
	h.write("1h") // no plugins
	await("the write goes on", ended)
}
