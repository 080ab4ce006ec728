//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// logCommand is the beginning of the command in the message that shows the plugin's log.
var logCommand = map[apiservers.Server]string{
	apiservers.Kube:      "see oc logs -n openshift-kube-apiserver kube-apiserver-node-1 -c kms-plugin-1",
	apiservers.OpenShift: "see oc logs -n openshift-apiserver apiserver-",
	// This plugin is in no pod of the API server, so its log is unknown.
	apiservers.OAuth: "",
}

// The plugin becomes unhealthy, and recovers, for a reporter of each mode.
func testPluginUnhealthy(h *scenario) {
	for _, server := range apiservers.All {
		h.parts(false, part{name: server.Name, run: func(h *scenario) {
			plugin := h.pluginOf(server)
			h.awaitHealthy(server)
			start := time.Now()
			h.do(plugin, "unhealthy", "vault is sealed")
			unhealthy, err := h.seen.Await(h.ctx, server, start, time.Minute, "KMSPluginsDegraded is True",
				func(s fixture.State) error {
					return s.Is(contract.PluginsDegraded, "True", contract.PluginUnhealthy)
				})
			h.must(err)
			h.took("unhealthy to KMSPluginsDegraded", unhealthy.At.Sub(start), 0)
			message := unhealthy.Conditions[contract.PluginsDegraded].Message
			for _, part := range []string{"node node-1", "key 1", "vault is sealed", logCommand[server]} {
				if !strings.Contains(message, part) {
					h.t.Errorf("KMSPluginsDegraded does not contain %q: %s", part, message)
				}
			}
			healed := time.Now()
			h.do(plugin, "heal")
			recovered, err := h.seen.Await(h.ctx, server, healed, time.Minute, "KMSPluginsDegraded is False", asExpected)
			h.must(err)
			h.took("healthy to KMSPluginsDegraded", recovered.At.Sub(healed), 0)
		}})
	}
}

// While the plugin is unhealthy its API server restarts, which then cannot read Secrets. After it the operator
// restarts.
func testRestartsWhilePluginUnhealthy(h *scenario) {
	plugin := h.pluginOf(apiservers.Kube)
	start := time.Now()
	h.do(plugin, "crash")
	h.t.Cleanup(func() { _, _ = plugin.Do("heal") })
	degraded := func(s fixture.State) error { return s.Is(contract.PluginsDegraded, "True", contract.PluginError) }
	h.awaitSince(start, time.Minute, "KMSPluginsDegraded is True", degraded)

	h.kill(cluster.APIServerName, cluster.APIServerName)
	killed := time.Now()
	answers := h.awaitWrites(h.node())
	written := h.awaitSince(killed, time.Minute, "a report of after the restart", func(s fixture.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, killed))
	})
	// The report may come before the answer to awaitWrites.
	h.took("kube-apiserver's answers to a fresh report", max(0, written.At.Sub(answers)), retryBound)
	if _, err := h.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(h.ctx, apiservers.EncryptionSecret,
		metav1.GetOptions{}); err == nil {
		h.t.Error("kube-apiserver reads Secrets without its plugin")
	}
	if code, err := h.node().Get(h.ctx, "/readyz"); err == nil && code == http.StatusOK {
		h.t.Error("/readyz passes without the plugin")
	}

	// A companion needs no encrypted object, so a new one starts and reports.
	before := h.process(reporterPods[apiservers.Kube], reporterContainer)
	h.kubectl("-n", fixture.Home, "delete", "pod", "-l", contract.APIServerLabel+"="+apiservers.Kube.Name)
	h.awaitNext(reporterPods[apiservers.Kube], reporterContainer, before.PID)
	companion := time.Now()
	h.awaitSince(companion, time.Minute, "the new companion reports", func(s fixture.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, companion))
	})

	next := h.kill(operatorPods, operatorContainer)
	h.always(apiservers.Kube, written.At, func(s fixture.State) error {
		if len(s.Reports) == 0 {
			return nil
		}
		return degraded(s)
	})

	healed := time.Now()
	h.do(plugin, "heal")
	recovered := h.awaitSince(healed, 2*time.Minute, "KMSPluginsDegraded is False", asExpected)
	if recovered.At.Before(next.Started) {
		h.t.Fatal("the condition was written before the operator's next process began")
	}
	h.took("healthy to KMSPluginsDegraded, by an operator that was killed", recovered.At.Sub(healed), 0)
	h.must(h.node().AwaitAPIServer(h.ctx, "/readyz"))
	h.awaitHealthy()
	h.await(waitLimit, "Secrets can be read", func() error {
		_, err := h.Kube.CoreV1().Secrets("").List(h.ctx, metav1.ListOptions{})
		return err
	})
}
