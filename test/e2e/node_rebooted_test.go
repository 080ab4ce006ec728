//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// rollupBound bounds the time to KMSPluginsDegraded from the latest of the API server's first answer, the operator's
// start and the first report. It is less than a resync.
const rollupBound = time.Minute

// sealed are the faults of a plugin whose remote KMS refuses everything.
var sealed = []string{"unhealthy vault is sealed", "refuse-encrypt", "refuse-decrypt"}

// The node's power is cut. After it the plugin of kube-apiserver is healthy or unhealthy. The reporter's file is in a
// mounted ConfigMap or in an annotation.
func testNodeRebooted(h *scenario) {
	for _, boot := range []struct {
		source  v1alpha1.ConfigSource
		healthy bool
		long    bool
	}{
		{v1alpha1.ConfigSourceAnnotation, false, false},
		{v1alpha1.ConfigSourceAnnotation, true, true},
		{v1alpha1.ConfigSourceConfigMap, true, true},
		{v1alpha1.ConfigSourceConfigMap, false, true},
	} {
		if boot.long && testing.Short() {
			continue
		}
		h.reboot(boot.source, boot.healthy)
	}
	h.must(h.Install(h.ctx, h.version, fixture.Configuration))
	h.must(h.AwaitOperator(h.ctx))
	h.awaitHealthy()
}

// reboot cuts the power, and measures the recovery.
func (h *scenario) reboot(source v1alpha1.ConfigSource, healthy bool) {
	h.deliverBy(source)
	if !healthy {
		h.must(h.FaultsAtStart(h.state.writeKey, sealed...))
	}
	h.must(h.node().PowerCut())
	on := time.Now()
	h.must(h.node().PowerOn(h.ctx))
	answers := h.awaitWrites(h.node())
	if source == v1alpha1.ConfigSourceConfigMap && !healthy {
		h.doesNotStart(on, answers)
	} else {
		process := h.process(reporterPods[apiservers.Kube], reporterContainer).Started
		report := h.awaitSince(on, 2*time.Minute, "a report of after the reboot", func(s fixture.State) error {
			return s.Fresh(h.node().Name, process)
		})
		if !healthy {
			degraded := h.awaitSince(answers.Add(-time.Second), waitLimit, "KMSPluginsDegraded is True",
				func(s fixture.State) error {
					return s.Is(contract.PluginsDegraded, "True", contract.PluginUnhealthy)
				})
			operator := h.process(operatorPods, operatorContainer).Started
			last := rollup.Latest(answers, report.At, operator)
			h.took("all run, to KMSPluginsDegraded=True", max(0, degraded.At.Sub(last)), rollupBound)
		}
	}
	h.process(operatorPods, operatorContainer)
	if !healthy {
		h.must(h.FaultsAtStart(h.state.writeKey))
		healed := time.Now() // before the command, because checks during it may be healthy
		h.do(h.pluginOf(apiservers.Kube), "heal")
		h.truthful(on, healed)
	}
	h.must(h.node().AwaitAPIServer(h.ctx, "/readyz"))
	h.await(waitLimit, "everything is healthy", func() error {
		return h.allFresh(time.Now().Add(-5*interval), healthyFrom(source))
	})
	if healthy {
		for _, server := range apiservers.All {
			h.always(server, on, asExpected)
		}
	}
}

// deliverBy installs the operator as on a single node, with a configSource for kube-apiserver's companion, and waits
// until the companion uses it.
func (h *scenario) deliverBy(source v1alpha1.ConfigSource) {
	config := strings.Replace(fixture.Configuration, "container: kube-apiserver\n",
		"container: kube-apiserver\n  configSource: "+string(source)+"\n", 1)
	h.must(h.Install(h.ctx, h.version, config, fixture.StartDuringPluginOutage))
	h.must(h.AwaitOperator(h.ctx))
	h.await(waitLimit, "the companion has its file by "+string(source), func() error {
		pod, err := h.companion()
		if err != nil {
			return err
		}
		mounts := false
		for _, v := range pod.Spec.Volumes {
			mounts = mounts || v.ConfigMap != nil
		}
		if mounts != (source == v1alpha1.ConfigSourceConfigMap) || !fixture.Ready(pod) {
			return fmt.Errorf("mounts a ConfigMap: %t; Ready: %t", mounts, fixture.Ready(pod))
		}
		return nil
	})
	since := time.Now()
	h.await(waitLimit, "everything is healthy", func() error { return h.allFresh(since, healthyFrom(source)) })
}

// healthyFrom returns a check that an API server is healthy. source is the configSource of kube-apiserver's companion.
func healthyFrom(source v1alpha1.ConfigSource) func(fixture.State) error {
	return func(s fixture.State) error {
		if s.Server == apiservers.Kube {
			return s.HealthyFrom(source)
		}
		return s.Healthy()
	}
}

func (h *scenario) companion() (*corev1.Pod, error) {
	pods := h.pods(fixture.Home, contract.APIServerLabel+"="+apiservers.Kube.Name)
	if len(pods) != 1 {
		return nil, fmt.Errorf("%d companions", len(pods))
	}
	return &pods[0], nil
}

// doesNotStart requires that a companion with a mounted ConfigMap does not start while ConfigMaps cannot be decrypted.
func (h *scenario) doesNotStart(on, answers time.Time) {
	h.await(waitLimit, "the companion cannot mount its ConfigMap", func() error {
		pod, err := h.companion()
		if err != nil {
			return err
		}
		events, err := h.Kube.CoreV1().Events(pod.Namespace).List(h.ctx,
			metav1.ListOptions{FieldSelector: "reason=FailedMount,involvedObject.uid=" + string(pod.UID)})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.LastTimestamp.After(on) && strings.Contains(e.Message, "MountVolume.SetUp failed") {
				return nil
			}
		}
		return fmt.Errorf("%s has no event FailedMount of after the reboot", pod.Name)
	})
	for time.Since(answers) < time.Minute {
		found, err := h.node().Processes(h.ctx, reporterPods[apiservers.Kube], reporterContainer)
		h.must(err)
		if len(found) > 0 {
			h.t.Fatalf("the companion runs: %v", found)
		}
		time.Sleep(interval)
	}
}

// truthful requires that no check while the plugin was unhealthy was reported as healthy. Reports have times in
// seconds.
func (h *scenario) truthful(from, to time.Time) {
	for _, s := range h.seen.States(apiservers.Kube, from) {
		for _, e := range s.Reports[h.node().Name] {
			if !e.LastChecked.After(from) || !e.LastChecked.Before(to.Truncate(time.Second)) {
				continue
			}
			if e.Status == contract.Healthy {
				h.t.Errorf("key %s is reported healthy at %s, while its plugin was unhealthy", e.KeyID,
					e.LastChecked.Format(time.TimeOnly))
				return
			}
		}
	}
}
