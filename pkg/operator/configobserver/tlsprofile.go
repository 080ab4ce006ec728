package configobserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/serving"
)

// TLSProfile follows the cluster's TLS profile, by which reporters and the operator itself serve. An invalid profile
// does not stop the operator: the last valid one stays active, and before there is one, Intermediate, OpenShift's
// default.
type TLSProfile struct {
	informer *informers.Informer[*configv1.TLSSecurityProfile] // nil: this is not OpenShift

	last atomic.Pointer[v1alpha1.ServingTLS]
}

// NewTLSProfile returns a TLSProfile. It follows nothing if this is not OpenShift.
func NewTLSProfile(client dynamic.Interface, openShift bool, enqueue ...informers.Key) *TLSProfile {
	if !openShift {
		return &TLSProfile{}
	}
	selection := informers.Selection{Resource: informers.APIServers, Name: informers.ClusterName}
	read := func(o *unstructured.Unstructured) *configv1.TLSSecurityProfile {
		return informers.As[configv1.APIServer](o).Spec.TLSSecurityProfile
	}
	return &TLSProfile{informer: informers.New(client, selection, read, enqueue...)}
}

// Run follows the profile until ctx ends.
func (p *TLSProfile) Run(ctx context.Context) {
	if p.informer != nil {
		p.informer.Run(ctx)
	}
}

// Current returns the active settings, and why the cluster's profile is not active (empty: it is). known is false
// until the profile was read, or an API server has refused it for longer than one that has just started does.
func (p *TLSProfile) Current() (active v1alpha1.ServingTLS, problem string, known bool) {
	var spec *configv1.TLSSecurityProfile
	known = true
	if p.informer != nil {
		spec, _ = p.informer.Get("", informers.ClusterName)
		err, read := p.informer.Problem(), p.informer.HasSynced()
		if known = read || informers.Answered(err); !read && err != nil {
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

// Serving returns the active settings for crypto/tls.
func (p *TLSProfile) Serving() *tls.Config {
	s, _, _ := p.Current()
	return serving.TLSConfig(s.MinVersion, s.CipherSuites)
}
