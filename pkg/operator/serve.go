package operator

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/serving"
)

// metricsHandler serves /metrics to clients that access lets through.
func metricsHandler(registry prometheus.Gatherer, clients *access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return clients.protect(mux)
}

// healthHandler serves /healthz, always 200, and /readyz, 200 or 500.
func healthHandler(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready: see the operator's log", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}

// listenTLS opens an address for HTTPS. certDir has tls.crt and tls.key, which must be good at first, or is
// empty for a self-signed certificate. profile is called at each handshake.
func listenTLS(address, certDir string, profile func() *tls.Config) (net.Listener, error) {
	var files serving.KeyPair
	certificate := func() (*tls.Certificate, error) {
		return files.Read(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key"))
	}
	if certDir == "" {
		public, key, err := cert.GenerateSelfSignedCertKey(contract.OperatorName, nil, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(public, key)
		certificate = func() (*tls.Certificate, error) { return &pair, err }
	}
	if _, err := certificate(); err != nil {
		return nil, err
	}
	return serving.Listen(address, func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := certificate()
		if err != nil {
			return nil, err
		}
		c := profile()
		c.Certificates = []tls.Certificate{*pair}
		return c, nil
	})
}

// profile follows the cluster's TLS profile, by which reporters and the operator
// itself serve. An invalid profile does not stop the operator: the last valid one stays active,
// and before there was one, Intermediate, OpenShift's default.
type profile struct {
	*informers.Informer[*configv1.TLSSecurityProfile] // nil: this is no OpenShift

	last atomic.Pointer[v1alpha1.ServingTLS]
}

func newProfile(client dynamic.Interface, openShift *bool, wake func()) *profile {
	if openShift != nil && !*openShift {
		return &profile{}
	}
	selection := informers.Selection{Resource: informers.APIServers, Name: informers.ClusterName}
	return &profile{Informer: informers.New(client, selection, func(o *unstructured.Unstructured) *configv1.TLSSecurityProfile {
		return informers.As[configv1.APIServer](o).Spec.TLSSecurityProfile
	}, wake)}
}

// settings returns what is active, and why the profile is not; false while it is not
// known yet.
func (p *profile) settings() (active v1alpha1.ServingTLS, problem string, known bool) {
	var spec *configv1.TLSSecurityProfile
	known = true
	if p.Informer != nil {
		spec, _ = p.Get("", informers.ClusterName)
		err, read := p.Err(), p.HasSynced()
		if known = read || err != nil; !read && err != nil {
			problem = "the TLS profile cannot be read: " + err.Error()
		}
	}
	s, err := tlsprofile.Of(spec) // Intermediate, if the profile is invalid; once kept, s is not written again
	switch {
	case err != nil:
		problem = "the TLS profile is not understood: " + err.Error()
	case known && problem == "":
		p.last.Store(&s)
	}
	return *cmp.Or(p.last.Load(), &s), problem, known
}

func (p *profile) serving() *tls.Config {
	s, _, _ := p.settings()
	return serving.TLSConfig(s.MinVersion, s.CipherSuites)
}
