//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// logCommand begins the command that shows more of an API server's unhealthy plugin.
var logCommand = map[apiservers.Server]string{
	apiservers.Kube:      "see oc logs -n openshift-kube-apiserver kube-apiserver-node-1 -c kms-plugin-1",
	apiservers.OpenShift: "see oc logs -n openshift-apiserver apiserver-",
	// Its plugin is in no pod of the API server, so the place of its log is not known.
	apiservers.OAuth: "",
}

// The plugin becomes unhealthy, and recovers; in each way to deliver a reporter.
func testPluginUnhealthy(t *testing.T) {
	all := newScenario(t, true)
	for _, server := range apiservers.All {
		t.Run(server.Name, func(t *testing.T) {
			h := all.sub(t)
			plugin := h.pluginOf(server)
			h.awaitHealthy(server)
			start := time.Now()
			h.do(plugin, "unhealthy", "vault is sealed")
			unhealthy, err := h.seen.Await(h.ctx, server, start, 15*time.Second, "KMSPluginsDegraded is True", func(s fixture.State) error {
				return s.Is(contract.PluginsDegraded, "True", contract.PluginUnhealthy)
			})
			h.must(err)
			times.took("unhealthy", server.Name+": unhealthy to KMSPluginsDegraded", unhealthy.At.Sub(start), noTime, "")
			message := unhealthy.Conditions[contract.PluginsDegraded].Message
			for _, part := range []string{"node node-1", "key 1", "vault is sealed", logCommand[server]} {
				if !strings.Contains(message, part) {
					t.Errorf("KMSPluginsDegraded does not contain %q: %s", part, message)
				}
			}
			t.Log(message)

			healed := time.Now()
			h.do(plugin, "heal")
			recovered, err := h.seen.Await(h.ctx, server, healed, 15*time.Second, "KMSPluginsDegraded is False", func(s fixture.State) error {
				return s.Is(contract.PluginsDegraded, "False", contract.AsExpected)
			})
			h.must(err)
			times.took("unhealthy", server.Name+": healthy to KMSPluginsDegraded", recovered.At.Sub(healed), noTime, "")
		})
	}
}

// While the plugin is unhealthy its own API server restarts, which can read no Secret then,
// and after it the operator.
func testRestartsWhilePluginUnhealthy(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	plugin := h.pluginOf(apiservers.Kube)
	start := time.Now()
	h.do(plugin, "crash")
	t.Cleanup(func() { _, _ = plugin.Do("heal") })
	degraded := func(s fixture.State) error { return s.Is(contract.PluginsDegraded, "True", contract.PluginError) }
	_, err := h.seen.Await(h.ctx, apiservers.Kube, start, 15*time.Second, "KMSPluginsDegraded is True", degraded)
	h.must(err)

	_, kubelet := h.kill("kube-apiserver-", "kube-apiserver")
	killed := time.Now()
	answers := h.awaitAnswers()
	times.took("unhealthy", "kube-apiserver killed to its answers, plugin unhealthy", answers.Sub(killed)+kubelet, kubelet, "")
	written, err := h.seen.Await(h.ctx, apiservers.Kube, killed, 30*time.Second, "a report of after the restart", func(s fixture.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, killed))
	})
	h.must(err)
	// The first write can precede the answer to our own question.
	times.took("unhealthy", "kube-apiserver's answers to a fresh report", max(0, written.At.Sub(answers)), noTime, "3s")
	if late := written.At.Sub(answers); late > 3*time.Second {
		t.Errorf("the report came %s after kube-apiserver answered, must be within 3s", late)
	}
	if _, err := h.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(h.ctx, apiservers.EncryptionSecret, metav1.GetOptions{}); err == nil {
		t.Error("kube-apiserver reads Secrets without its plugin")
	}
	if code, err := h.node().Get(h.ctx, "/readyz"); err == nil && code == http.StatusOK {
		t.Error("/readyz passes without the plugin")
	}

	// A companion needs nothing that is encrypted: a new one starts, and reports.
	before := h.process(reporterPods[apiservers.Kube], reporterContainer)
	_, err = h.Kubectl(h.ctx, "", "-n", fixture.Home, "delete", "pod", "-l", "kmshealth.openshift.io/api-server="+apiservers.Kube.Name)
	h.must(err)
	h.await(time.Minute, "a new companion runs", func() error {
		found, err := h.node().Processes(h.ctx, reporterPods[apiservers.Kube], reporterContainer)
		if err == nil && (len(found) != 1 || found[0].PID == before.PID) {
			err = fmt.Errorf("processes: %v", found)
		}
		return err
	})
	companion := time.Now()
	_, err = h.seen.Await(h.ctx, apiservers.Kube, companion, 30*time.Second, "the new companion reports", func(s fixture.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, companion))
	})
	h.must(err)

	next, kubelet := h.kill(operatorPods, operatorContainer)
	times.took("unhealthy", "operator killed, plugin unhealthy: its next process", kubelet, kubelet, "")
	for _, s := range h.seen.States(apiservers.Kube, start.Add(2*interval)) {
		if err := degraded(s); err != nil && len(s.Reports) > 0 && s.At.After(written.At) {
			t.Errorf("while the plugin was unhealthy: %v", err)
			break
		}
	}

	healed := time.Now()
	h.do(plugin, "heal")
	recovered, err := h.seen.Await(h.ctx, apiservers.Kube, healed, 30*time.Second, "KMSPluginsDegraded is False", func(s fixture.State) error {
		return s.Is(contract.PluginsDegraded, "False", contract.AsExpected)
	})
	h.must(err)
	if recovered.At.Before(next.Started) {
		t.Fatal("the condition was written before the operator's next process began")
	}
	times.took("unhealthy", "healthy to KMSPluginsDegraded, by an operator that was killed", recovered.At.Sub(healed), noTime, "")
	h.must(h.node().AwaitAPIServer(h.ctx, "/readyz", time.Minute))
	h.awaitHealthy(apiservers.All...)
	h.await(time.Minute, "Secrets can be read", func() error {
		_, err := h.Kube.CoreV1().Secrets("").List(h.ctx, metav1.ListOptions{})
		return err
	})
}
