package reporter

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file without plugins withdraws the report: what is being written, too.
func TestWithoutPluginsTheRunningWriteEnds(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection is seen
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
	if err := os.WriteFile(kubeconfig, []byte(credentials), 0o600); err != nil {
		t.Fatal(err)
	}
	const file = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe: {interval: 1h}\n" +
		"destination: {resource: kubeapiservers, kubeconfig: %s, writeTimeout: 1m}\nplugins: [%s]\n"
	h.writeRaw(fmt.Sprintf(file, kubeconfig, fmt.Sprintf("{keyID: '1', endpoint: '%s', role: Write}", h.endpoint("1"))))
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
	h.writeRaw(fmt.Sprintf(file, kubeconfig, ""))
	await("the write goes on", ended)
}
