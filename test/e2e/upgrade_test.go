//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// Manifests, operator and reporters go from this commit to the one before it, and back. The API servers serve all the
// time.
func testUpgradeAndBack(h *scenario) {
	before := h.previous()
	unharmed := h.watchAPIServers(apiservers.Kube, apiservers.OAuth)
	served := h.ask("the aggregated API server", h.askAggregated)
	ready := h.ask("/readyz of kube-apiserver", func(ctx context.Context) error {
		code, err := h.node().Get(ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
	start := time.Now()
	h.must(h.Install(h.ctx, before, fixture.Configuration))
	h.awaitVersion(before)
	h.must(h.Install(h.ctx, h.version, fixture.Configuration))
	h.awaitVersion(h.version)

	h.noLongAlarm(start)
	served()
	ready()
	unharmed()
}

// previous builds the commit before this one.
func (h *scenario) previous() *fixture.Version {
	dir := h.t.TempDir()
	copied := "git -C " + root + " archive HEAD~1 | tar -x -C " + dir
	if out, err := exec.CommandContext(h.ctx, "bash", "-o", "pipefail", "-c", copied).CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %v: %s (the history is needed, not this commit alone)", copied, err, out)
	}
	v, err := h.Build(h.ctx, "previous", dir)
	h.must(err)
	return v
}

// awaitVersion waits until only this version runs, and everything is healthy.
func (h *scenario) awaitVersion(v *fixture.Version) {
	h.await(waitLimit, "all of version "+v.Name, func() error {
		return h.runs(v, fixture.Home, apiservers.OpenShift.Namespace)
	})
	h.must(h.AwaitOperator(h.ctx))
	h.must(h.AwaitDeployment(h.ctx, apiservers.OpenShift.Namespace, "apiserver"))
	h.awaitHealthy()
}

// runs returns an error unless only this version runs in each of these namespaces.
func (h *scenario) runs(v *fixture.Version, namespaces ...string) error {
	for _, namespace := range namespaces {
		pods, err := h.Kube.CoreV1().Pods(namespace).List(h.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := 0
		for _, p := range pods.Items {
			for _, c := range p.Spec.Containers {
				if !strings.HasPrefix(c.Image, "registry.invalid/kms-health") {
					continue
				}
				found++
				if c.Image != v.Operator && c.Image != v.Reporter || p.DeletionTimestamp != nil ||
					p.Status.Phase != corev1.PodRunning {
					return fmt.Errorf("%s/%s: %s, %s", p.Namespace, p.Name, c.Image, p.Status.Phase)
				}
			}
		}
		if found == 0 {
			return fmt.Errorf("nothing of ours in %s", namespace)
		}
	}
	return nil
}
