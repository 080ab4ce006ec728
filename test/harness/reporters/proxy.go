package reporters

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// socketName is a plugin's socket in a report.
var socketName = regexp.MustCompile(`(\\"socket\\":\\")[^"\\]*/([^"\\/]*\\")`)

// AsInAPod is a request of a reporter in which sockets are in the folder that pods have, and not in one of this host: a
// report counts for its socket.
func AsInAPod(r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	body = socketName.ReplaceAll(body, []byte("${1}/var/run/kmsplugin/${2}"))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// startProxy starts a server that a reporter takes for the API server.
func startProxy(cluster *controlplane.ControlPlane) (*httptest.Server, error) {
	target, err := url.Parse(cluster.URL())
	if err != nil {
		return nil, err
	}
	pair, err := cluster.ServingCA().Serving("localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cluster.ServingCA().Pool()}}
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // as an API server that is away
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forward.ServeHTTP(w, AsInAPod(r))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	return server, nil
}
