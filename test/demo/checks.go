package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// Labels and annotations of the operator's, as users know them.
const (
	managed          = "app.kubernetes.io/managed-by=kms-health-operator"
	configAnnotation = "kmshealth.openshift.io/config"
)

// resource is kubeapiservers/cluster.
func (c *cluster) resource() (*unstructured.Unstructured, error) {
	return c.client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers)).Get(c.ctx, controlplane.ClusterObject, metav1.GetOptions{})
}

// reports are the entries of the nodes' conditions.
func (c *cluster) reports() (map[string][]health.Entry, error) {
	o, err := c.resource()
	if err != nil {
		return nil, err
	}
	reports := map[string][]health.Entry{}
	for kind, condition := range operatorcr.ReadConditions(o) {
		if node, ok := health.NodeOf(kind); ok {
			if reports[node], err = health.DecodeMessage(condition.Message); err != nil {
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

// expect waits until the nodes' conditions have this, freshly and every interval, and
// shows them.
func (c *cluster) expect(what string, w want, every time.Duration) {
	c.awaitReports(what, func(node string, entries []health.Entry) error {
		if got := describe(entries, every); got != w[node] {
			return fmt.Errorf("%s reports %q, must report %q", node, got, w[node])
		}
		return nil
	})
}

// expectAfter waits until every node has written since a time, and shows that.
func (c *cluster) expectAfter(since time.Time) {
	c.awaitReports("every node has reported since "+since.Format(time.TimeOnly), func(node string, entries []health.Entry) error {
		// Times are in whole seconds, cut off.
		if len(entries) == 0 || !entries[0].LastChecked.After(since) {
			return fmt.Errorf("%s has not", node)
		}
		return nil
	})
}

func (c *cluster) awaitReports(what string, check func(node string, entries []health.Entry) error) {
	var reports map[string][]health.Entry
	c.until(what, func() (err error) {
		if reports, err = c.reports(); err != nil {
			return err
		}
		for _, node := range nodeNames {
			if err := check(node, reports[node]); err != nil {
				return err
			}
		}
		return nil
	})
	now, pids := time.Now(), c.pids()
	var lines []line
	for _, node := range nodeNames {
		reporter := ""
		if pid := pids[node]; pid != 0 {
			reporter = fmt.Sprintf("pid %d", pid)
		}
		for _, e := range reports[node] {
			age := max(0, now.Sub(e.LastChecked)).Truncate(time.Second)
			lines = append(lines, line{e.Status, []string{node, e.KeyID, string(e.Status), e.KEKID, age.String(), e.Interval.String(), reporter, e.Detail}})
		}
	}
	c.table("NODE\tKEY\tSTATUS\tKEK ID\tAGE\tEVERY\tREPORTER\tDETAIL", lines)
}

func describe(entries []health.Entry, every time.Duration) string {
	var parts []string
	for _, e := range entries {
		text := e.KeyID + "=" + string(e.Status)
		if f := e.Freshness(time.Now()); f != health.Fresh {
			text += "," + string(f)
		}
		if e.Interval != every {
			text += ",every " + e.Interval.String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// companions are the reporters' pods, by node.
func (c *cluster) companions() (map[string]*corev1.Pod, error) {
	list, err := c.kube.CoreV1().Pods(home).List(c.ctx, metav1.ListOptions{LabelSelector: managed})
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
	c.until("companions on "+strings.Join(on, ", "), func() error { return c.runOn(on...) })
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

// intervalIn is the one of a companion's file.
func intervalIn(pod *corev1.Pod) time.Duration {
	c, err := v1alpha1.DecodeReporter([]byte(pod.Annotations[configAnnotation]))
	if err != nil {
		return 0
	}
	return c.Probe.Interval.Duration
}

// pids are the process ids of the reporters, by node.
func (c *cluster) pids() map[string]int {
	pods, err := c.companions()
	c.must(err)
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
			c.fail("the reporter on %s is process %d, and was %d", node, now[node], before[node])
		}
	}
}

// ended waits until processes have ended.
func (c *cluster) ended(pids map[string]int) {
	c.until("the reporters' processes are deleted", func() error {
		for node, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("that on %s, %d, is there", node, pid)
			}
		}
		return nil
	})
}

// awaitSecrets waits until the operator may read exactly these Secrets.
func (c *cluster) awaitSecrets(names ...string) {
	c.until("the operator may read "+strings.Join(names, " and "), func() error {
		role, err := c.kube.RbacV1().Roles(target).Get(c.ctx, secretRole, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var may []string
		for _, r := range role.Rules {
			may = append(may, r.ResourceNames...)
		}
		if slices.Sort(may); !slices.Equal(slices.Compact(may), names) {
			return fmt.Errorf("it may read %v", may)
		}
		return nil
	})
}

// awaitDegraded waits until ClusterOperator/kms-health is Degraded or not.
func (c *cluster) awaitDegraded(status string) {
	c.awaitStatus("Degraded", status, func() (*unstructured.Unstructured, error) {
		return c.client.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators)).Get(c.ctx, "kms-health", metav1.GetOptions{})
	})
}

func (c *cluster) awaitStatus(kind, status string, read func() (*unstructured.Unstructured, error)) {
	c.until(kind+" is "+status, func() error {
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

// secretRole is the operator's right to read the target's encryption configs.
const secretRole = "kms-health-operator-kube-apiserver"

// keptWhileOff is what the operator keeps of a target while KMS is off: its record, in the
// reporters' ClusterRole, and that right.
var keptWhileOff = []string{"clusterroles kms-health-reporter-kube-apiserver", "roles " + secretRole}

// onlyLeft waits until nothing is left of the operator's but this. It lists every kind
// that is served, whether we know that the operator makes it or not.
func (c *cluster) onlyLeft(want ...string) {
	c.until("left of the operator's: "+cmp.Or(strings.Join(want, ", "), "nothing"), func() error {
		left, err := c.traces()
		if err == nil && !slices.Equal(left, want) {
			err = errors.New("there are " + strings.Join(left, ", "))
		}
		return err
	})
}

// traces are what the operator has made, and has written into objects of others.
// Events are the record of that, and stay.
func (c *cluster) traces() ([]string, error) {
	lists, err := c.kube.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			// Its own state, on an object that came with the manifests, stays as well.
			if r.Name == "events" || r.Name == controlplane.ClusterOperators || !slices.Contains(r.Verbs, "list") {
				continue
			}
			objects, err := c.client.Resource(version.WithResource(r.Name)).List(c.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for i := range objects.Items {
				if o := &objects.Items[i]; isOperators(o) {
					found = append(found, r.Name+" "+o.GetName())
				}
			}
		}
	}
	return found, nil
}

func isOperators(o *unstructured.Unstructured) bool {
	label, value, _ := strings.Cut(managed, "=")
	return o.GetLabels()[label] == value || slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return strings.HasPrefix(f.Manager, "kms-health-operator")
	})
}
