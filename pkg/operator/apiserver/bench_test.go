package apiserver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// BenchmarkMake plans for three nodes and two keys, first with no object, then with all
// that the first plan made: what a sync decides while nothing changes.
func BenchmarkMake(b *testing.B) {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCompanionPod, v1alpha1.ModeDaemonSet, v1alpha1.ModeSidecar} {
		s := fixture(b, mode, func(s *Snapshot) { s.Encryption.Live = set(1, 2) })
		for _, node := range []string{"a", "b", "c"} {
			s.Pods = append(s.Pods, apiPod(node, "uid-"+node))
			if mode == v1alpha1.ModeDaemonSet {
				onHost(s.Pods[len(s.Pods)-1])
			}
		}
		if mode == v1alpha1.ModeSidecar {
			inDeployment(s)
			s.Deployment = deployment(1)
		}
		for _, delivered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/delivered=%t", mode, delivered), func(b *testing.B) {
				if delivered {
					plan := planOf(b, s)
					s.Own, s.State = append(slices.Concat(plan.Apply, plan.Workloads), plan.Anchor), plan.State
				}
				b.ReportAllocs()
				for b.Loop() {
					planOf(b, s)
				}
			})
		}
	}
}
