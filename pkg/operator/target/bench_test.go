package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// BenchmarkMake plans for three nodes and two keys, first with nothing there, then
// with all that the first plan made: what a pass decides while nothing changes.
func BenchmarkMake(b *testing.B) {
	for _, delivery := range []v1alpha1.Delivery{
		v1alpha1.DeliveryCompanion, v1alpha1.DeliveryDaemonSet, v1alpha1.DeliveryDeployment, v1alpha1.DeliveryExternal,
	} {
		for _, delivered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/delivered=%t", delivery, delivered), func(b *testing.B) {
				w := benchWorld(b, delivery, delivered)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Make(w); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func benchWorld(b *testing.B, delivery v1alpha1.Delivery, delivered bool) *World {
	b.Helper()
	deploymentField := ""
	if delivery == v1alpha1.DeliveryDeployment {
		deploymentField = ", deployment: apiserver"
	}
	config, err := v1alpha1.DecodeOperator(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
image: reporter:1
targets:
- {name: api, resource: kubeapiservers, namespace: ns, podSelector: {app: api}, container: api, delivery: %s%s}
`, delivery, deploymentField))
	if err != nil {
		b.Fatal(err)
	}
	w := &World{
		Now: time.Unix(1e9, 0), KubeletRoot: sockets.KubeletRoot, OwnKnown: map[string]bool{}, Encryption: &Encryption{Live: set(1, 2)},
	}
	w.Config, w.Target, w.Namespace = config, &config.Targets[0], "kms-health"
	w.Owner = &render.Owner{Name: "kms-health-reporter-api", UID: "owner"}
	w.State.Proven = config.Image
	for _, kind := range strings.Fields(kinds) {
		w.OwnKnown[kind] = true
	}
	for _, node := range []string{"a", "b", "c"} {
		pod := apiPod(node, "uid-"+node)
		if delivery == v1alpha1.DeliveryDaemonSet {
			onHost(pod)
		}
		w.Pods = append(w.Pods, pod)
	}
	if delivery == v1alpha1.DeliveryDeployment {
		w.Deployment = deployment(1)
	}
	if !delivered {
		return w
	}
	plan, err := Make(w)
	if err != nil {
		b.Fatal(err)
	}
	w.Own, w.State = append(slices.Concat(plan.Apply, plan.Workloads), plan.Anchor), plan.State
	return w
}
