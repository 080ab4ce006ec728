package operator

import (
	"cmp"
	"crypto/tls"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/serving"
)

// profile follows the cluster's TLS profile, by which reporters and the operator
// itself serve. An invalid profile does not stop the operator: the last valid one stays active,
// and before there was one, Intermediate, OpenShift's default.
type profile struct {
	*source.Source[*configv1.TLSSecurityProfile] // nil: this is no OpenShift

	last atomic.Pointer[tlsprofile.Settings]
}

func newProfile(client dynamic.Interface, openShift *bool, wake func()) *profile {
	if openShift != nil && !*openShift {
		return &profile{}
	}
	selection := source.Selection{Resource: source.APIServers, Name: source.ClusterName}
	return &profile{Source: source.New(client, selection, func(o *unstructured.Unstructured) *configv1.TLSSecurityProfile {
		if a := source.As[configv1.APIServer](o); a != nil {
			return a.Spec.TLSSecurityProfile
		}
		return nil
	}, wake)}
}

// settings returns what is active, and why the profile is not; false while it is not
// known yet.
func (p *profile) settings() (s tlsprofile.Settings, problem string, known bool) {
	var spec *configv1.TLSSecurityProfile
	if p.Source != nil {
		spec, _ = p.Get("", source.ClusterName)
		if err := p.Err(); !p.Known() && err == nil {
			return s, "", false
		} else if !p.Known() {
			problem = "the TLS profile cannot be read: " + err.Error()
		}
	}
	s, err := tlsprofile.Of(spec) // Intermediate, if the profile is invalid
	switch {
	case err != nil:
		problem = "the TLS profile is not understood: " + err.Error()
	case problem == "":
		p.last.Store(&s)
	}
	return *cmp.Or(p.last.Load(), &s), problem, true
}

func (p *profile) serving() *tls.Config {
	s, _, known := p.settings()
	if !known {
		s.MinVersion = v1alpha1.TLS12
	}
	return serving.TLSConfig(s.MinVersion, s.CipherSuites)
}
