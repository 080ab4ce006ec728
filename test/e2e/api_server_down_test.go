//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

func testAPIServerDown(h *scenario) {
	before, start := h.allPIDs(h.node()), time.Now().Truncate(time.Second) // times of containers are in seconds
	h.apiServerDown(reporterPods[apiservers.Kube], inShort(30*time.Second, 2*time.Minute))
	h.awaitHealthy()
	// The kubelet backed off meanwhile, and may write the pod's status later. The next scenario needs that status.
	h.await(waitLimit, "the kubelet has written that it was started again", func() error {
		containers := h.apiServerPod(h.node()).Status.ContainerStatuses
		for _, c := range containers {
			if c.Name == cluster.APIServerName && c.Ready && !c.State.Running.StartedAt.Time.Before(start) {
				return nil
			}
		}
		return fmt.Errorf("%+v", containers)
	})
	h.untouched(h.node(), before, "kube-apiserver-/kube-apiserver", reporterPods[apiservers.Kube]+"/"+reporterContainer,
		"apiserver-/openshift-apiserver", "apiserver-/oauth-apiserver")
}

// apiServerDown keeps the API server down, and kills the reporter of a pod. The reporter must start and probe
// meanwhile, and report soon after the API server is back.
func (h *scenario) apiServerDown(pod string, length time.Duration) {
	n, plugin := h.node(), h.pluginOn(h.node())
	h.must(n.HoldAPIServer())
	h.must(n.SignalContainer(h.ctx, cluster.APIServerName, cluster.APIServerName, syscall.SIGKILL))
	h.must(n.SignalContainer(h.ctx, pod, reporterContainer, syscall.SIGKILL))
	down := time.Now()
	// No client calls this plugin now. The next calls are the new reporter's.
	h.do(plugin, "reset-counters")
	h.await(waitLimit, "the reporter probes again", func() error {
		if h.statusCalls(plugin).Count == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	reporter := h.process(pod, reporterContainer)
	for time.Since(down) < length {
		if idle := time.Since(h.statusCalls(plugin).Latest); idle > 10*interval {
			h.t.Errorf("the reporter has not probed for %s", idle)
			break
		}
		time.Sleep(interval)
	}
	if _, err := n.Get(h.ctx, "/livez"); err == nil {
		h.t.Fatal("kube-apiserver answers while it is held")
	}
	if n := len(h.seen.States(apiservers.Kube, down.Add(time.Second))); n > 0 {
		h.t.Errorf("the operator resource was written %d times while the API server was down", n)
	}

	h.must(n.ReleaseAPIServer())
	answers := h.awaitWrites(n)
	back := h.awaitSince(down.Add(time.Second), time.Minute, "a fresh report", func(s fixture.State) error {
		return s.Fresh(n.Name, answers.Add(-time.Second))
	})
	h.took("the API server's answers to a fresh report", max(0, back.At.Sub(answers)), retryBound)
	if now := h.process(pod, reporterContainer); now.PID != reporter.PID {
		h.t.Error("the reporter was restarted while the API server was down")
	}
	h.must(n.AwaitAPIServer(h.ctx, "/readyz"))
}

// awaitWrites waits until a node's API server answers a write of the resource for reports, and returns that time. The
// resource matters, because the API server has a connection to etcd for each resource.
func (h *scenario) awaitWrites(n *cluster.Node) (at time.Time) {
	config, err := n.RESTConfig()
	h.must(err)
	config.Timeout = time.Second
	client := dynamic.NewForConfigOrDie(config)
	h.await(waitLimit, "the API server of "+n.Name+" answers writes", func() error {
		_, err := client.Resource(controlplane.OperatorGVR(apiservers.Kube.Resource)).Patch(h.ctx,
			controlplane.ClusterObject, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata": {"annotations": {"e2e": "%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
		at = time.Now()
		return err
	})
	return at
}
