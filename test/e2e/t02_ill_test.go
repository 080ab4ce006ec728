//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/stage"
)

// logCommand begins the command that shows more of an API server's ill plugin.
var logCommand = map[apiservers.Server]string{
	apiservers.Kube:      "see oc logs -n openshift-kube-apiserver kube-apiserver-node-1 -c kms-plugin-1",
	apiservers.OpenShift: "see oc logs -n openshift-apiserver apiserver-",
	// Its plugin is in no pod of the API server, so nobody knows where its log is.
	apiservers.OAuth: "",
}

// The plugin falls ill, and recovers; in each way to deliver a reporter.
func Test02PluginFallsIll(t *testing.T) {
	all := newHouse(t, true)
	for _, server := range apiservers.All {
		t.Run(server.Name, func(t *testing.T) {
			h := all.sub(t)
			plugin := h.pluginOf(server)
			h.awaitHealthy(server)
			start := time.Now()
			h.do(plugin, "unhealthy", "vault is sealed")
			ill, err := h.seen.Await(h.ctx, server, start, 15*time.Second, "KMSPluginsDegraded is True", func(s stage.State) error {
				return s.Is(rollup.Degraded, "True", rollup.PluginUnhealthy)
			})
			h.must(err)
			times.took("2 ill", server.Name+": ill to KMSPluginsDegraded", ill.At.Sub(start), noTime, "")
			message := ill.Conditions[rollup.Degraded].Message
			for _, part := range []string{"node node-1", "key 1", "vault is sealed", logCommand[server]} {
				if !strings.Contains(message, part) {
					t.Errorf("KMSPluginsDegraded does not say %q: %s", part, message)
				}
			}
			t.Log(message)

			healed := time.Now()
			h.do(plugin, "heal")
			well, err := h.seen.Await(h.ctx, server, healed, 15*time.Second, "KMSPluginsDegraded is False", func(s stage.State) error {
				return s.Is(rollup.Degraded, "False", rollup.AsExpected)
			})
			h.must(err)
			times.took("2 ill", server.Name+": well to KMSPluginsDegraded", well.At.Sub(healed), noTime, "")
		})
	}
}

// While the plugin is ill its own API server restarts, which can read no Secret then,
// and after it the operator.
func Test02IllWhileEverythingRestarts(t *testing.T) {
	h := newHouse(t, true)
	h.awaitHealthy(apiservers.All...)
	plugin := h.pluginOf(apiservers.Kube)
	start := time.Now()
	h.do(plugin, "crash")
	t.Cleanup(func() { _, _ = plugin.Do(context.WithoutCancel(t.Context()), "return") })
	degraded := func(s stage.State) error { return s.Is(rollup.Degraded, "True", rollup.PluginError) }
	_, err := h.seen.Await(h.ctx, apiservers.Kube, start, 15*time.Second, "KMSPluginsDegraded is True", degraded)
	h.must(err)

	_, kubelet := h.kill("kube-apiserver-", "kube-apiserver")
	killed := time.Now()
	answers := h.awaitAnswers()
	times.took("2 ill", "kube-apiserver killed to its answers, plugin ill", answers.Sub(killed)+kubelet, kubelet, "")
	written, err := h.seen.Await(h.ctx, apiservers.Kube, killed, 30*time.Second, "a report of after the restart", func(s stage.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, killed))
	})
	h.must(err)
	// The first write can precede the answer to our own question.
	times.took("2 ill", "kube-apiserver's answers to a fresh report", max(0, written.At.Sub(answers)), noTime, "3s")
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
	_, err = h.Kubectl(h.ctx, "", "-n", stage.Home, "delete", "pod", "-l", "kmshealth.openshift.io/target="+apiservers.Kube.Name)
	h.must(err)
	h.await(time.Minute, "a new companion runs", func() error {
		found, err := h.node().Processes(h.ctx, reporterPods[apiservers.Kube], reporterContainer)
		if err == nil && (len(found) != 1 || found[0].PID == before.PID) {
			err = fmt.Errorf("processes: %v", found)
		}
		return err
	})
	companion := time.Now()
	_, err = h.seen.Await(h.ctx, apiservers.Kube, companion, 30*time.Second, "the new companion reports", func(s stage.State) error {
		return errors.Join(degraded(s), s.Fresh(h.node().Name, companion))
	})
	h.must(err)

	next, kubelet := h.kill(operatorPods, operatorContainer)
	times.took("2 ill", "operator killed, plugin ill: its next process", kubelet, kubelet, "")
	for _, s := range h.seen.States(apiservers.Kube, start.Add(2*interval)) {
		if err := degraded(s); err != nil && len(s.Reports) > 0 && s.At.After(written.At) {
			t.Errorf("while the plugin was ill: %v", err)
			break
		}
	}

	healed := time.Now()
	h.do(plugin, "return")
	well, err := h.seen.Await(h.ctx, apiservers.Kube, healed, 30*time.Second, "KMSPluginsDegraded is False", func(s stage.State) error {
		return s.Is(rollup.Degraded, "False", rollup.AsExpected)
	})
	h.must(err)
	if well.At.Before(next.Started) {
		t.Fatal("the condition was written before the operator's next process began")
	}
	times.took("2 ill", "well to KMSPluginsDegraded, by an operator that was killed", well.At.Sub(healed), noTime, "")
	h.must(h.node().AwaitAPIServer(h.ctx, "/readyz", time.Minute))
	h.awaitHealthy(apiservers.All...)
	h.await(time.Minute, "Secrets can be read", func() error {
		_, err := h.Kube.CoreV1().Secrets("").List(h.ctx, metav1.ListOptions{})
		return err
	})
}
