package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// BenchmarkMake plans for three nodes and two keys, first with no object, then with all
// that the first plan made: what a sync decides while nothing changes.
func BenchmarkMake(b *testing.B) {
	for _, delivery := range []v1alpha1.Mode{
		v1alpha1.ModeCompanionPod, v1alpha1.ModeDaemonSet, v1alpha1.ModeSidecar,
	} {
		for _, delivered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/delivered=%t", delivery, delivered), func(b *testing.B) {
				s := benchFixture(b, delivery, delivered)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Make(s); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func benchFixture(b *testing.B, delivery v1alpha1.Mode, delivered bool) *Snapshot {
	b.Helper()
	deploymentField := ""
	if delivery == v1alpha1.ModeSidecar {
		deploymentField = ", deployment: apiserver"
	}
	config, err := v1alpha1.DecodeOperator(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
image: reporter:1
apiServers:
- {resource: kubeapiservers, namespace: ns, podSelector: {app: api}, container: api, mode: %s%s}
`, delivery, deploymentField))
	if err != nil {
		b.Fatal(err)
	}
	s := &Snapshot{
		Now: time.Unix(1e9, 0), KubeletRoot: objects.KubeletRoot, OwnKnown: map[string]bool{}, Encryption: &Encryption{Live: set(1, 2)},
	}
	s.Config, s.Target, s.Namespace = config, &config.APIServers[0], "kms-health"
	s.Target.Name = "api"
	s.Owner = &objects.Owner{Name: "kms-health-reporter-api", UID: "owner"}
	for _, kind := range strings.Fields(kinds) {
		s.OwnKnown[kind] = true
	}
	for _, node := range []string{"a", "b", "c"} {
		pod := apiPod(node, "uid-"+node)
		if delivery == v1alpha1.ModeDaemonSet {
			onHost(pod)
		}
		s.Pods = append(s.Pods, pod)
	}
	if delivery == v1alpha1.ModeSidecar {
		s.Deployment = deployment(1)
	}
	if !delivered {
		return s
	}
	plan, err := Make(s)
	if err != nil {
		b.Fatal(err)
	}
	s.Own, s.State = append(slices.Concat(plan.Apply, plan.Workloads), plan.Anchor), plan.State
	return s
}
