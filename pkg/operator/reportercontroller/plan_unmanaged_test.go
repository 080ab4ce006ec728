package reportercontroller

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func TestUnmanagedTargetGetsOnlyWhatExpires(t *testing.T) {
	s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1", withToken)))
	s.CA, s.Deployment = []byte("old"), deployment(1)
	first := ComputePlan(s)
	delivered(first)(s)
	s.CA, s.Unmanaged, s.Config.Image, s.Sets[liveRevision] = []byte("new"), true, "reporter:2", *set(2, 1)
	plan := ComputePlan(s)
	if plan.Status.Reason != contract.Unmanaged || names(plan.Apply) != "ConfigMap/"+configMapOf(1) || len(plan.Delete) > 0 ||
		plan.Anchor != nil || plan.Off || plan.Clean {
		t.Errorf("%+v: %s applied, %s deleted", plan.Status, names(plan.Apply), names(plan.Delete))
	}
	if !plan.Token || !first.Token {
		t.Errorf("renews the token %t, made it %t", plan.Token, first.Token)
	}
}

// Nothing else in the files changes, and no pod is replaced.
func TestUnmanagedReportersGetACAAndTLSSettings(t *testing.T) {
	before := func(s *Snapshot) {
		suites := []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
		s.CA, s.TLS = []byte("old"), v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS12, CipherSuites: suites}
		s.Target.Serving = &v1alpha1.APIServerServing{Address: "0.0.0.0:8443", Secret: "serving"}
	}
	for name, c := range map[string]struct {
		mode   v1alpha1.Mode
		source v1alpha1.ConfigSource
	}{
		"annotations of a companion": {v1alpha1.ModeCompanionPod, v1alpha1.ConfigSourceAnnotation},
		"a ConfigMap of agents":      {v1alpha1.ModeDaemonSet, v1alpha1.ConfigSourceConfigMap},
	} {
		for change, with := range map[string]func(*Snapshot){
			"nothing":                func(*Snapshot) {},
			"no CA: it is unread":    func(s *Snapshot) { s.CA = nil },
			"a CA":                   func(s *Snapshot) { s.CA = []byte("new") },
			"a profile with TLS 1.3": func(s *Snapshot) { s.TLS = v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS13} },
			"a TLS profile": func(s *Snapshot) {
				s.TLS = v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS12, CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}}
			},
		} {
			plan := func(more ...func(*Snapshot)) *Plan {
				return ComputePlan(fixture(t, c.mode, append([]func(*Snapshot){pods(apiPod("a", "1", onHost)), configSource(c.source), before}, more...)...))
			}
			first := plan()
			got := plan(delivered(first), func(s *Snapshot) { s.Unmanaged, s.Config.Image = true, "reporter:2" }, with)
			files := func(plan *Plan) string {
				var all []string
				for _, o := range plan.Apply {
					data, _, _ := unstructured.NestedStringMap(o.Object, "data")
					annotations := o.GetAnnotations()
					all = append(all, data["config.yaml"], data["kubeconfig"], annotations[contract.ConfigAnnotation],
						annotations[contract.KubeconfigAnnotation])
				}
				slices.Sort(all)
				return strings.TrimLeft(strings.Join(all, "\n"), "\n")
			}
			nothing := strings.HasPrefix(change, "no")
			if managed := files(plan(with)); nothing && len(got.Apply) > 0 || !nothing && files(got) != managed {
				t.Errorf("%s, %s: got %s\nwant %s", name, change, files(got), managed)
			}
			if len(got.Delete) > 0 || strings.Contains(names(got.Apply), "DaemonSet") {
				t.Errorf("%s, %s: applies %s, deletes %s", name, change, names(got.Apply), names(got.Delete))
			}
		}
	}
}
