package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/demo/script"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// Labels and annotations of the operator's, as users know them.
const (
	managed          = "app.kubernetes.io/managed-by=kms-health-operator"
	configAnnotation = "kmshealth.openshift.io/config"
)

// resource is kubeapiservers/cluster.
func (c *cluster) resource() (*unstructured.Unstructured, error) {
	return c.client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers)).Get(c.Ctx, controlplane.ClusterObject, metav1.GetOptions{})
}

// reports are the entries of the nodes' conditions.
func (c *cluster) reports() (map[string][]contract.Entry, error) {
	o, err := c.resource()
	if err != nil {
		return nil, err
	}
	reports := map[string][]contract.Entry{}
	for kind, condition := range operatorcr.ReadConditions(o) {
		if node, ok := contract.NodeOf(kind); ok {
			if reports[node], err = contract.DecodeMessage(condition.Message); err != nil {
				return nil, fmt.Errorf("condition %s: %w", kind, err)
			}
		}
	}
	return reports, nil
}

// want is what the nodes are to report: "1=healthy 2=healthy", the write key first.
type want map[string]string

// all requires the same of every node.
func all(text string) want {
	w := want{}
	for _, node := range nodeNames {
		w[node] = text
	}
	return w
}

// but is w with something else of one node.
func (w want) but(node, text string) want {
	w = maps.Clone(w)
	w[node] = text
	return w
}

// expect waits until the nodes' conditions have this, freshly, and
// shows them.
func (c *cluster) expect(what string, w want) {
	var reports map[string][]contract.Entry
	c.Until(what, func() (err error) {
		if reports, err = c.reports(); err != nil {
			return err
		}
		for _, node := range nodeNames {
			if got := describe(reports[node]); got != w[node] {
				return fmt.Errorf("%s reports %q, must report %q", node, got, w[node])
			}
		}
		return nil
	})
	now, pids := time.Now(), c.pids()
	var lines []script.Line
	for _, node := range nodeNames {
		reporter := ""
		if pid := pids[node]; pid != 0 {
			reporter = fmt.Sprintf("pid %d", pid)
		}
		for _, e := range reports[node] {
			age := max(0, now.Sub(e.LastChecked)).Truncate(time.Second)
			lines = append(lines, script.Line{Status: e.Status, Cells: []string{node, e.KeyID, string(e.Status), e.KEKID, age.String(), reporter, e.Detail}})
		}
	}
	c.Table("NODE\tKEY\tSTATUS\tKEK ID\tAGE\tREPORTER\tDETAIL", lines)
}

func describe(entries []contract.Entry) string {
	var parts []string
	for _, e := range entries {
		text := e.KeyID + "=" + string(e.Status)
		if f := e.Freshness(time.Now()); f != contract.Fresh {
			text += "," + string(f)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// companions are the reporters' pods, by node.
func (c *cluster) companions() (map[string]*corev1.Pod, error) {
	list, err := c.kube.CoreV1().Pods(home).List(c.Ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			pods[p.Spec.NodeName] = p
		}
	}
	return pods, nil
}

// awaitCompanions waits until exactly these nodes have one that runs.
func (c *cluster) awaitCompanions(on ...string) {
	c.Until("companions on "+strings.Join(on, ", "), func() error { return c.runOn(on...) })
}

// runOn returns an error when companions run elsewhere than on these nodes.
func (c *cluster) runOn(on ...string) error {
	pods, err := c.companions()
	if err != nil {
		return err
	}
	var running []string
	for node, p := range pods {
		if p.Status.Phase == corev1.PodRunning {
			running = append(running, node)
		}
	}
	if slices.Sort(running); !slices.Equal(running, on) || len(pods) != len(on) {
		return fmt.Errorf("they run on %v, and there are %d", running, len(pods))
	}
	return nil
}

// pids are the process ids of the reporters, by node.
func (c *cluster) pids() map[string]int {
	pods, err := c.companions()
	c.Must(err)
	pids := map[string]int{}
	for node, p := range pods {
		pids[node] = c.workers.ProcessID(home, p.Name)
	}
	return pids
}

// same requires the reporters on these nodes to be those of before.
func (c *cluster) same(before map[string]int, of ...string) {
	now := c.pids()
	for _, node := range of {
		if before[node] == 0 || now[node] != before[node] {
			c.Fail("the reporter on %s is process %d, and was %d", node, now[node], before[node])
		}
	}
}

// ended waits until processes have ended.
func (c *cluster) ended(pids map[string]int) {
	c.Until("the reporters' processes are deleted", func() error {
		for node, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("that on %s, %d, is there", node, pid)
			}
		}
		return nil
	})
}

// awaitDegraded waits until ClusterOperator/kms-health is Degraded or not.
func (c *cluster) awaitDegraded(status string) {
	c.awaitStatus("Degraded", status, func() (*unstructured.Unstructured, error) {
		return c.client.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators)).Get(c.Ctx, "kms-health", metav1.GetOptions{})
	})
}

func (c *cluster) awaitStatus(kind, status string, read func() (*unstructured.Unstructured, error)) {
	c.Until(kind+" is "+status, func() error {
		o, err := read()
		if err != nil {
			return err
		}
		if found := operatorcr.ReadConditions(o)[kind]; found.Status != status {
			return fmt.Errorf("it is %s: %s", found.Status, found.Message)
		}
		return nil
	})
}
