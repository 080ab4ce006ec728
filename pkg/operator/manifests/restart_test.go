package manifests

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

// A key pair that is missing and a port that is taken are no reason to restart a
// reporter, and a probe cannot distinguish them from one.
func TestNoProbeRestartsAReporter(t *testing.T) {
	config, err := v1alpha1.DecodeOperator(v1alpha1.OperatorOpenShift)
	if err != nil {
		t.Fatal(err)
	}
	config.Image = "reporter:1"
	settings, err := tlsprofile.Of(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, serving := range map[string]*v1alpha1.TargetServing{
		"nothing is served": nil,
		"loopback":          {Address: "127.0.0.1:9180"},
		"every address":     {Address: "0.0.0.0:9180", Secret: "serving"},
	} {
		target := config.Targets[0]
		target.Serving = serving
		in := &Input{Config: config, Namespace: "kms-health", Target: &target, OpenShift: true, TLS: settings, CA: []byte("CA")}
		companion, err := in.Companion(APIServerPod{Node: "n", UID: "u"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		daemonSet, err := in.DaemonSet(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for o, path := range map[*unstructured.Unstructured][]string{companion: {"spec", "containers"}, daemonSet: {"spec", "template", "spec", "containers"}} {
			containers, found, err := unstructured.NestedSlice(o.Object, path...)
			if err != nil || !found || len(containers) != 1 {
				t.Fatal(o.GetKind(), containers, err)
			}
			for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
				if got, has := containers[0].(map[string]any)[probe]; has {
					t.Errorf("%s, %s: %s %v", o.GetKind(), name, probe, got)
				}
			}
		}
	}
}
