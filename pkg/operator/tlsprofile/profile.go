// Package tlsprofile converts OpenShift's TLS security profile to the settings of the reporter's file.
//
// It drops what Go does not implement: some suites, groups, and a choice among the suites of TLS 1.3, which Go serves
// all. If no suite is left there is an error, because Go would use its own default instead.
package tlsprofile

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/crypto"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// Of returns the lowest version of a profile, and the cipher suites to accept up to TLS 1.2: the IANA names of those
// that Go implements, in the profile's order, each once. Their OpenSSL names are those of library-go, as in OpenShift's
// other operators; another spelling does not count. With VersionTLS13, and only then, there are none. A nil profile,
// and one without a type, is Intermediate. Suites that FIPS 140-3 does not approve stay; crypto/tls does not use them.
//
// With an error the settings are those of Intermediate: an invalid profile must not stop the operator.
func Of(p *configv1.TLSSecurityProfile) (v1alpha1.ServingTLS, error) {
	s, err := settingsOf(p)
	if err != nil {
		s, _ = settingsOf(nil)
		err = fmt.Errorf("spec.tlsSecurityProfile: %w", err)
	}
	return s, err
}

func settingsOf(p *configv1.TLSSecurityProfile) (s v1alpha1.ServingTLS, err error) {
	if p == nil || p.Type == "" {
		p = &configv1.TLSSecurityProfile{Type: configv1.TLSProfileIntermediateType}
	}
	spec := configv1.TLSProfiles[p.Type]
	if p.Type == configv1.TLSProfileCustomType && p.Custom != nil {
		spec = &p.Custom.TLSProfileSpec
	}
	if spec == nil {
		return s, fmt.Errorf("type %.200q is unknown, or has no settings", p.Type)
	}
	s.MinVersion = v1alpha1.TLSVersion(spec.MinTLSVersion) // both use the same names
	for _, suite := range crypto.OpenSSLToIANACipherSuites(spec.Ciphers) {
		_, err := v1alpha1.CipherSuite(suite)
		if err == nil && s.MinVersion != v1alpha1.TLS13 && !slices.Contains(s.CipherSuites, suite) {
			s.CipherSuites = append(s.CipherSuites, suite)
		}
	}
	switch {
	case s.MinVersion.Version() == 0:
		return s, fmt.Errorf("minTLSVersion %.200q is unknown", spec.MinTLSVersion)
	case len(s.CipherSuites) == 0 && s.MinVersion != v1alpha1.TLS13:
		return s, fmt.Errorf("ciphers %.200q name no cipher suite that Go implements for TLS 1.2 or older: add one, like "+
			"ECDHE-RSA-AES128-GCM-SHA256, or set minTLSVersion to VersionTLS13", strings.Join(spec.Ciphers, ", "))
	}
	return s, nil
}
