package controlplane

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
)

// StartFrontend starts a proxy in front of the API server, with the API server's certificate. handle handles the
// requests; forward forwards one to the API server. change may change the answers.
func (c *ControlPlane) StartFrontend(change func(*http.Response) error,
	handle func(forward http.Handler) http.HandlerFunc) (*httptest.Server, error) {
	target, err := url.Parse(c.URL())
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(c.file(servingCertFile), c.file(servingKeyFile))
	if err != nil {
		return nil, err
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	forward.ModifyResponse = change
	forward.Transport = &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: c.servingCA.Pool()}}
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // closes the connection: the API server is down
	}
	server := httptest.NewUnstartedServer(handle(forward))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	return server, nil
}
