package tlsprofile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/must"
)

// accepted checks that the reporter's decoder accepts the settings.
func accepted(t *testing.T, s v1alpha1.ServingTLS) {
	t.Helper()
	c := v1alpha1.ReporterConfiguration{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    v1alpha1.DefaultProbe(),
		Plugins:  []v1alpha1.Plugin{},
		Serving: &v1alpha1.Serving{Address: "127.0.0.1:9180", TLS: &v1alpha1.ServingTLS{
			CertFile: "/c", KeyFile: "/k", MinVersion: s.MinVersion, CipherSuites: s.CipherSuites,
		}},
	}
	printed, err := yaml.Marshal(c)
	must.Succeed(t, err)
	got, err := v1alpha1.DecodeReporter(printed)
	if err != nil {
		t.Fatalf("the reporter rejects it: %v\n%s", err, printed)
	}
	if diff := cmp.Diff(&c, got); diff != "" {
		t.Error(diff)
	}
}

func custom(lowest configv1.TLSProtocolVersion, ciphers ...string) *configv1.TLSSecurityProfile {
	return &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
		TLSProfileSpec: configv1.TLSProfileSpec{MinTLSVersion: lowest, Ciphers: ciphers},
	}}
}

func named(name configv1.TLSProfileType) *configv1.TLSSecurityProfile {
	return &configv1.TLSSecurityProfile{Type: name}
}

const aes128 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"

var intermediate = v1alpha1.ServingTLS{
	MinVersion: v1alpha1.TLS12,
	CipherSuites: []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	},
}

var profileCases = map[string]struct {
	profile *configv1.TLSSecurityProfile
	want    v1alpha1.ServingTLS
}{
	"none":         {nil, intermediate},
	"no type":      {&configv1.TLSSecurityProfile{}, intermediate},
	"intermediate": {named(configv1.TLSProfileIntermediateType), intermediate},
	"modern":       {named(configv1.TLSProfileModernType), v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS13}},
	"old": {named(configv1.TLSProfileOldType), v1alpha1.ServingTLS{
		MinVersion: v1alpha1.TLS10,
		CipherSuites: slices.Concat(intermediate.CipherSuites, []string{
			"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
			"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
			"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
			"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
			"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
			"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
			"TLS_RSA_WITH_AES_128_GCM_SHA256",
			"TLS_RSA_WITH_AES_256_GCM_SHA384",
			"TLS_RSA_WITH_AES_128_CBC_SHA256",
			"TLS_RSA_WITH_AES_128_CBC_SHA",
			"TLS_RSA_WITH_AES_256_CBC_SHA",
			"TLS_RSA_WITH_3DES_EDE_CBC_SHA",
		}),
	}},
	"custom, in its own order, by OpenSSL's names, each once": {
		custom(configv1.VersionTLS11, "AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256", "AES128-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
		v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS11, CipherSuites: []string{"TLS_RSA_WITH_AES_128_CBC_SHA", aes128}},
	},
	"custom, with names that cannot be applied": {
		custom(configv1.VersionTLS12, "DHE-RSA-AES128-GCM-SHA256", "ecdhe-rsa-aes128-gcm-sha256", "",
			"TLS_AES_128_CCM_SHA256", "TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-GCM-SHA256"),
		v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS12, CipherSuites: []string{aes128}},
	},
	"custom, with a suite that no profile of OpenShift contains": {
		custom(configv1.VersionTLS12, "ECDHE-RSA-DES-CBC3-SHA"),
		v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS12, CipherSuites: []string{"TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"}},
	},
	"custom TLS 1.3, with older suites": {
		custom(configv1.VersionTLS13, "TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "AES256-SHA256"),
		v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS13},
	},
	"custom TLS 1.3, without suites": {custom(configv1.VersionTLS13), v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS13}},
}

func TestProfileDecidesSettings(t *testing.T) {
	for name, tt := range profileCases {
		t.Run(name, func(t *testing.T) {
			got, err := Of(tt.profile)
			must.Succeed(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			accepted(t, got)
		})
	}
}

func TestInvalidProfileFallsBackToIntermediate(t *testing.T) {
	for want, profile := range map[string]*configv1.TLSSecurityProfile{
		`type "Newest" is unknown`:               named("Newest"),
		`type "Custom" is unknown, or has no `:   named(configv1.TLSProfileCustomType),
		`minTLSVersion "VersionTLS14" is unkn`:   custom("VersionTLS14", aes128),
		`minTLSVersion "" is unknown`:            custom("", aes128),
		`ciphers "" name no cipher suite that`:   custom(configv1.VersionTLS12),
		`ciphers "TLS_AES_128_GCM_SHA256, AES`:   custom(configv1.VersionTLS10, "TLS_AES_128_GCM_SHA256", "AES256-SHA256"),
		strings.Repeat("x", 200) + `" name no c`: custom(configv1.VersionTLS12, strings.Repeat("x", 201)),
	} {
		got, err := Of(profile)
		if err == nil || !strings.HasPrefix(err.Error(), "spec.tlsSecurityProfile: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if diff := cmp.Diff(intermediate, got); diff != "" {
			t.Errorf("with an error: %s", diff)
		}
	}
}
