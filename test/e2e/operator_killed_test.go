//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// All reporters are rolled out several times. Each time the operator is killed after one more of its changes.
func testOperatorKilledInEachStep(h *scenario) {
	before := h.belongings()
	served := h.ask("the aggregated API server", h.askAggregated)
	intervals := []string{"2s", "1s"}
	sources := []v1alpha1.ConfigSource{v1alpha1.ConfigSourceConfigMap, v1alpha1.ConfigSourceAnnotation}
	round := func(i int, killAfter int) (steps int) {
		interval, source := intervals[i%2], sources[i%2]
		start := time.Now()
		// Another configSource replaces companions and agents. A sidecar gets its file without a restart.
		config := strings.ReplaceAll(fixture.Configuration, "container: kube-apiserver\n",
			"container: kube-apiserver\n  configSource: "+string(source)+"\n")
		config = strings.ReplaceAll(config, "container: oauth-apiserver\n",
			"container: oauth-apiserver\n  configSource: "+string(source)+"\n")
		h.must(h.Configure(h.ctx, strings.Replace(config, "interval: 1s", "interval: "+interval, 1)))
		if killAfter > 0 {
			h.await(waitLimit, fmt.Sprintf("the operator has made %d changes", killAfter), func() error {
				if n := h.changes(start); n < killAfter {
					return fmt.Errorf("%d changes", n)
				}
				return nil
			})
			h.must(h.node().SignalContainer(h.ctx, operatorPods, operatorContainer, syscall.SIGKILL))
		}
		h.awaitRolled(start, interval, source)
		return h.changes(start)
	}
	start := time.Now()
	steps := round(0, 0)
	if steps < 4 {
		h.t.Fatalf("a rollout of everything is %d changes, must be more", steps)
	}
	for k := 1; k <= steps; k++ {
		round(k, k)
	}
	h.must(h.Configure(h.ctx, fixture.Configuration))
	h.awaitHealthy()
	h.noLongAlarm(start)
	served()
	h.await(waitLimit, "what is there is what was there before", func() error {
		if after := h.belongings(); after != before {
			return fmt.Errorf("there is now:\n%s\nthere was:\n%s", after, before)
		}
		return nil
	})
}

// changes counts the changes that the operator has logged since a time.
func (h *scenario) changes(since time.Time) int {
	lines, err := h.logLines(operatorPods, operatorContainer, `"Changed"`)
	h.must(err)
	n := 0
	for _, line := range lines {
		for _, did := range []string{`reason="Applied"`, `reason="Deleted"`, `reason="Injected"`, `reason="Rolled"`} {
			if line.at.After(since) && strings.Contains(line.text, did) {
				n++
			}
		}
	}
	return n
}

// awaitRolled waits until every reporter uses an interval, companions and agents use a configSource, and everything is
// healthy.
func (h *scenario) awaitRolled(since time.Time, interval string, source v1alpha1.ConfigSource) {
	for _, server := range apiservers.All {
		h.await(waitLimit, server.Name+": a reporter uses interval "+interval, func() error {
			line, err := h.lastLogged(reporterPods[server], reporterContainer, `"Configuration active"`)
			if err != nil {
				return err
			}
			if line.at.Before(since) || !strings.Contains(line.text, `interval="`+interval+`"`) {
				return errors.New(line.text)
			}
			return h.now(server).HealthyFrom(source)
		})
	}
	for _, server := range []apiservers.Server{apiservers.Kube, apiservers.OAuth} {
		h.await(waitLimit, server.Name+" has one reporter", func() error {
			if n := len(h.pods(fixture.Home, contract.APIServerLabel+"="+server.Name)); n != 1 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	h.must(h.AwaitDeployment(h.ctx, apiservers.OpenShift.Namespace, "apiserver"))
}

// belongings returns kind and name of every object that the operator created, except for pods.
func (h *scenario) belongings() string {
	args := []string{"get", "--all-namespaces",
		"--selector=app.kubernetes.io/managed-by=kms-health-operator",
		"--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}", "--ignore-not-found",
		"clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,roles,rolebindings,configmaps,secrets,serviceaccounts,daemonsets"}
	return read(h, "what the operator made", func() (string, error) { return h.Kubectl(h.ctx, "", args...) })
}
