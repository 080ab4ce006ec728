package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"sync/atomic"

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
	source *source.Source[*configv1.APIServer] // nil: this is no OpenShift
	last   atomic.Pointer[tlsprofile.Settings]
}

func newProfile(client dynamic.Interface, openShift *bool, wake func()) *profile {
	p := &profile{}
	if openShift == nil || *openShift {
		p.source = source.NewAPIServer(client, wake)
	}
	return p
}

func (p *profile) run(ctx context.Context) {
	if p.source != nil {
		p.source.Run(ctx)
	}
}

// settings returns what is active, and why the profile is not; false while it is not
// known yet.
func (p *profile) settings() (s tlsprofile.Settings, problem string, known bool) {
	var spec *configv1.TLSSecurityProfile
	if p.source != nil {
		if a, exists := p.source.Get("", source.ClusterName); exists && a != nil {
			spec = a.Spec.TLSSecurityProfile
		}
		switch err := p.source.Err(); {
		case p.source.Known():
		case err == nil:
			return s, "", false
		default:
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
