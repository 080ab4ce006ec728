//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// Faults of a reporter never affect its API server.
func testReporterDoesNoHarm(h *scenario) {
	var parts []part
	for _, image := range []struct {
		what, name         string
		unharmed, reported []apiservers.Server
	}{
		// A rolling update stops at the first pod that does not become ready. The old pods keep running.
		{"image cannot be pulled", "registry.invalid/no-such-image:v1", apiservers.All, apiservers.All},
		// A container without a readiness probe is ready while it runs, even for a moment. So the Deployment's rollout
		// continues, and removes the last good pod.
		{"crashes", cluster.PauseImage, []apiservers.Server{apiservers.Kube, apiservers.OAuth}, nil},
	} {
		parts = append(parts, part{name: image.what, run: func(h *scenario) {
			unharmed := h.watchAPIServers(image.unharmed...)
			h.image(image.name)
			for _, server := range apiservers.All {
				h.await(waitLimit, "the reporter of "+server.Name+" does not run", func() error {
					return h.now(server).Is(contract.HealthReporting, "False", "ReporterNotRunning")
				})
			}
			since := time.Now()
			for _, server := range image.reported {
				h.await(time.Minute, server.Name+" is reported on", func() error {
					s := h.now(server)
					return errors.Join(s.Fresh(h.node().Name, since.Add(interval)), s.Is(contract.PluginsDegraded, "False",
						contract.AsExpected))
				})
			}
			h.image("")
			h.awaitHealthy()
			h.awaitVersion(h.version)
			unharmed()
		}})
	}
	h.parts(append(parts, part{name: "its files are garbage, then deleted", run: testGarbage})...)
}

func testGarbage(h *scenario) {
	unharmed := h.watchAPIServers(apiservers.Kube, apiservers.OAuth)
	h.scaleOperator(0)
	start := time.Now()
	h.spoilFiles()
	// The last good configuration stays active.
	h.await(waitLimit, "the agent rejects the file", func() error {
		line, err := h.lastLogged(reporterPods[apiservers.OAuth], reporterContainer,
			"Configuration file cannot be used; the last good one stays active")
		if err == nil && line.at.Before(start) {
			err = errors.New("not again")
		}
		return err
	})
	h.await(time.Minute, "reports go on", func() error {
		return errors.Join(h.now(apiservers.OAuth).Fresh("node-1", time.Now().Add(-3*interval)),
			h.now(apiservers.OpenShift).Fresh("node-1", time.Now().Add(-3*interval)))
	})
	// A reporter that starts with such a file waits, and does not crash.
	next := h.kill(reporterPods[apiservers.OAuth], reporterContainer)
	time.Sleep(5 * interval)
	if now := h.process(reporterPods[apiservers.OAuth], reporterContainer); now.PID != next.PID {
		h.t.Error("the agent crashes on a file of garbage")
	}

	for _, what := range []string{
		"-n " + fixture.Home + " delete configmap -l app.kubernetes.io/managed-by=kms-health-operator",
		"-n " + apiservers.OpenShift.Namespace + " delete configmap,secret -l app.kubernetes.io/managed-by=kms-health-operator",
		"-n " + fixture.Home + " delete pod -l app.kubernetes.io/managed-by=kms-health-operator --wait=false",
		// A new pod of the API server must start without these objects.
		"-n " + apiservers.OpenShift.Namespace + " rollout restart deployment/apiserver",
	} {
		h.kubectl(strings.Fields(what)...)
	}
	h.must(h.AwaitDeployment(h.ctx, apiservers.OpenShift.Namespace, "apiserver"))
	h.awaitNext(reporterPods[apiservers.OAuth], reporterContainer, next.PID)
	h.scaleOperator(1)
	h.awaitHealthy()
	unharmed()
}

// image configures the reporters' image; empty: the image of the version.
func (h *scenario) image(name string) {
	config := fixture.Configuration
	if name != "" {
		config = strings.Replace(config, "probe:", "image: "+name+"\nprobe:", 1)
	}
	h.must(h.Configure(h.ctx, config))
}

// watchAPIServers records the pods of API servers. The returned function requires the same pods, Ready all the time,
// and no container restarted.
func (h *scenario) watchAPIServers(servers ...apiservers.Server) func() {
	var before map[string]string
	h.await(waitLimit, "the API servers' pods are Ready", func() error {
		before = h.apiServerPods(servers)
		for name, is := range before {
			if !strings.Contains(is, " ready=True ") {
				return fmt.Errorf("%s: %s", name, is)
			}
		}
		return nil
	})
	return func() {
		after := h.apiServerPods(servers)
		for name, was := range before {
			if now := after[name]; now != was {
				h.t.Errorf("%s: %s, before: %s", name, now, was)
			}
		}
	}
}

func (h *scenario) apiServerPods(servers []apiservers.Server) map[string]string {
	found := map[string]string{}
	for _, server := range servers {
		for _, p := range h.pods(server.Namespace, "apiserver=true") {
			if p.DeletionTimestamp != nil {
				continue // from an earlier rollout
			}
			text := string(p.UID)
			// The condition Ready is not used: kube-controller-manager sets it False while a kubelet is silent.
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.ContainersReady {
					text += fmt.Sprintf(" ready=%s since %s", c.Status, c.LastTransitionTime.Format(time.TimeOnly))
				}
			}
			for _, c := range p.Status.ContainerStatuses {
				text += fmt.Sprintf(" %s:%d", c.Name, c.RestartCount)
			}
			found[p.Namespace+"/"+p.Name] = text
		}
	}
	return found
}

func (h *scenario) scaleOperator(replicas int) {
	h.kubectl("-n", fixture.Home, "scale", "deployment", fixture.OperatorName, fmt.Sprintf("--replicas=%d", replicas))
	h.await(waitLimit, fmt.Sprintf("the operator has %d pods", replicas), func() error {
		if n := len(h.pods(fixture.Home, "app.kubernetes.io/name="+fixture.OperatorName)); n != replicas {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
}

// spoilFiles puts garbage into every reporter's ConfigMap, and into the annotations of pods that have a copy.
func (h *scenario) spoilFiles() {
	h.kubectl("-n", fixture.Home, "annotate", "--overwrite", "pod", "-l", contract.ModeLabel,
		contract.ConfigAnnotation+"=garbage: [")
	for _, namespace := range []string{fixture.Home, apiservers.OpenShift.Namespace} {
		maps, err := h.Kube.CoreV1().ConfigMaps(namespace).List(h.ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kms-health-operator"})
		h.must(err)
		if len(maps.Items) == 0 && namespace != fixture.Home { // there, pods may have copies alone
			h.t.Fatalf("no ConfigMap of a reporter in %s", namespace)
		}
		for _, m := range maps.Items {
			if _, found := m.Data["config.yaml"]; !found {
				h.t.Fatalf("ConfigMap %s/%s has no config.yaml", namespace, m.Name)
			}
			m.Data["config.yaml"] = "\x00garbage: [\n"
			_, err := h.Kube.CoreV1().ConfigMaps(namespace).Update(h.ctx, &m, metav1.UpdateOptions{})
			h.must(err)
		}
	}
}

// askAggregated lists the aggregated API server's objects.
func (h *scenario) askAggregated(ctx context.Context) error {
	_, err := h.Kube.Discovery().RESTClient().Get().AbsPath("/apis/wardle.example.com/v1alpha1/flunders").Timeout(5 * time.Second).DoRaw(ctx)
	return err
}

// ask repeats a request until stop is called. Each request must succeed.
func (h *scenario) ask(whom string, question func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(h.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			if err := question(ctx); err != nil && ctx.Err() == nil {
				h.t.Errorf("at %s %s did not answer: %v", time.Now().Format(time.TimeOnly), whom, err)
			}
		}
	}()
	return func() { cancel(); <-done }
}
