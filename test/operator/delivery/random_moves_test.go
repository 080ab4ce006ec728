//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// reportInterval is the interval of the reports.
const reportInterval = 30 * time.Second

// anyTime returns a random duration from -most to most.
func (m *model) anyTime(most time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(2*most))) - most
}

// shift makes the API servers' clocks wrong: the clock of the one that answers, and the clocks that write times into
// objects. With a larger shift, tokens would not be accepted.
func (m *model) shift(p *faultyProxy) string {
	date, content := m.anyTime(6*time.Hour), m.anyTime(6*time.Hour)
	p.clocks.Date.Store(int64(date))
	p.clocks.Content.Store(int64(content))
	return fmt.Sprintf("the clock of the API server that answers is %s ahead, in objects %s", date, content)
}

const second = "kube-apiserver-second"

// surge runs a second pod of kube-apiserver on a node, with another encryption config or the node's own. If there is a
// second pod already, it replaces the first.
func (m *model) surge(t *testing.T) string {
	t.Helper()
	node := m.node()
	if m.second[node] != "" {
		m.endSurge(t, node)
		return "the second pod of " + node + " is the only one"
	}
	revision := m.revs[node]
	if m.random.IntN(2) == 0 {
		revision, _ = m.configure(t)
	}
	pod := m.pod(node, revision)
	pod.Name = second
	fixture.RunStatic(t, node, pod)
	m.second[node] = revision
	return fmt.Sprintf("%s has a second pod, revision %s, %v", node, revision, m.sets[revision])
}

func (m *model) endSurge(t *testing.T, node string) {
	t.Helper()
	m.revs[node] = m.second[node]
	m.run(t, node)
	must.Succeed(t, fixture.Workers.RemoveStaticPod(t.Context(), node, apiservers.Kube.Namespace, second))
	delete(m.second, node)
}

func (m *model) endSurges(t *testing.T) {
	t.Helper()
	for node := range m.second {
		m.endSurge(t, node)
	}
}

// awaitOneReporter waits until a node with two pods of kube-apiserver has one companion, and checks what conditions
// claim: its report says nothing about the other pod.
func (m *model) awaitOneReporter(t *testing.T) {
	t.Helper()
	if len(m.second) == 0 || m.unmanaged {
		return
	}
	fixture.Eventually(t, "one companion on each node", func() error {
		m.report(t)
		beside := map[string]string{}
		for _, p := range companions(t) {
			node, uid := p.Spec.NodeName, p.Annotations[contract.BesideAnnotation]
			if other, has := beside[node]; has {
				return fmt.Errorf("%s has companions of %s and %s", node, other, uid)
			}
			beside[node] = uid
		}
		return nil
	})
	m.awaitClaims(t, true)
}

// setFlag removes kube-apiserver's flag for an encryption config on a node, or sets it again. The flag matters only if
// the operator's file has the plugins: without the flag, an encryption config in a Secret may be used all the same.
func (m *model) setFlag(t *testing.T, op *fixture.Operator) string {
	t.Helper()
	if m.file == nil {
		m.file = []string{"1"}
		op.Configure(m.config())
	}
	node := m.node()
	if m.unset[node] {
		delete(m.unset, node)
	} else {
		m.unset[node] = true
	}
	m.run(t, node)
	return fmt.Sprintf("kube-apiserver on %s has no flag for an encryption config: %t", node, m.unset[node])
}

// load restarts the API servers if their plugins are in the operator's file: the operator does not know which plugins
// they loaded before.
func (m *model) load(t *testing.T, want []string) {
	t.Helper()
	if m.file == nil && len(m.unset) == 0 {
		return
	}
	clear(m.unset)
	for _, node := range fixture.NodeNames {
		m.run(t, node)
	}
	fixture.Eventually(t, "the end of the sequence, with API servers that were restarted", func() error {
		return m.arrived(t, want)
	})
}

// restore does another action, and then restores etcd as it was before.
func (m *model) restore(t *testing.T, p *faultyProxy, move func() string) string {
	t.Helper()
	backup := fixture.Resource(t, apiservers.Kube)
	what := move()
	m.report(t)
	time.Sleep(2 * time.Second) // for a roll-up
	m.restoreAs(t, p, backup)
	m.restored = true
	return what + "; then etcd is restored as it was before"
}

// awaitConditions waits for the conditions at the end. A watch does not show that etcd was restored: the operator
// notices it at a write, or once all reports seem stale.
func (m *model) awaitConditions(t *testing.T, what string) {
	t.Helper()
	wait.Eventually(t, 2*contract.StaleIntervals*reportInterval+fixture.Timeout, what, func() error {
		m.report(t)
		return m.differs(t)
	})
}

// restoreOutage restores, at the end, a status that says that a plugin is unhealthy, if etcd was restored before.
func (m *model) restoreOutage(t *testing.T, p *faultyProxy) {
	t.Helper()
	backup := fixture.Resource(t, apiservers.Kube)
	c, had := backup.Conditions[contract.PluginsDegraded]
	if !had || !m.restored {
		return
	}
	c.Status, c.Reason = operatorstatus.True, contract.PluginUnhealthy
	backup.Conditions[c.Type] = c
	m.restoreAs(t, p, backup)
	m.awaitConditions(t, "the conditions of the end, after a restore")
}

// restoreAs simulates a restore of etcd: kube-apiserver's operator resource gets the earlier conditions and reports,
// and lower resource versions, and all watches end.
func (m *model) restoreAs(t *testing.T, p *faultyProxy, backup *operatorstatus.Status) {
	t.Helper()
	var conditions []any
	for _, kind := range rollup.Types {
		if c, had := backup.Conditions[kind]; had {
			conditions = append(conditions, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason,
				"message": c.Message, "lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339)})
		}
	}
	p.away.Store(true)
	defer p.away.Store(false)
	p.CloseClientConnections()
	if len(conditions) > 0 {
		must.Succeed(t, apiservers.Apply(t.Context(), fixture.Client, contract.OperatorName,
			controlplane.OperatorGVR(apiservers.Kube.Resource), "", apiservers.Kube.Status(conditions...), "status"))
	}
	for _, r := range backup.Reports {
		if r.Form == operatorstatus.FormCondition && r.Err == nil {
			fixture.Report(t, apiservers.Kube, r.Node, time.Now(), r.Entries...)
		}
	}
	p.versions.Add(-10_000)
}

// grantMoved gives the operator the same rights for openshift-apiserver in oauth-apiserver's namespace as in the
// API server's namespace. docs/reference/manifests.md requires this of an administrator who moves an API server. The
// policy on the reporters' rights allows one name in each namespace of OpenShift.
func grantMoved(t *testing.T) {
	t.Helper()
	objects, err := install.Render(t.Context(), install.OpenShift, fixture.Components...)
	must.Succeed(t, err)
	from, to := apiservers.OpenShift.Namespace, apiservers.OAuth.Namespace
	var more []*unstructured.Unstructured
	for _, o := range objects {
		switch {
		case (o.GetKind() == "Role" || o.GetKind() == "RoleBinding") && o.GetNamespace() == from:
			o.SetNamespace(to)
			if name := o.GetName(); !strings.Contains(name, from) {
				o.SetName("moved-" + name)
				if o.GetKind() == "RoleBinding" {
					_ = unstructured.SetNestedField(o.Object, "moved-"+name, "roleRef", "name")
				}
			}
			more = append(more, o)
		case o.GetKind() == "ValidatingAdmissionPolicy" && o.GetName() == "kms-health-reporter-rights":
			more = append(more, allowing(t, o, from, to))
		case o.GetKind() == "ClusterRole" && strings.HasPrefix(o.GetName(), "kms-health-"):
			rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
			changed := false
			for _, r := range rules {
				rule := r.(map[string]any)
				names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
				for _, n := range names {
					if moved, ok := strings.CutSuffix(n, "."+from); ok {
						names, changed = append(names, moved+"."+to), true
					}
				}
				if len(names) > 0 {
					_ = unstructured.SetNestedStringSlice(rule, names, "resourceNames")
				}
			}
			_ = unstructured.SetNestedSlice(o.Object, rules, "rules")
			if changed {
				more = append(more, o)
			}
		}
	}
	must.Succeed(t, install.Objects(t.Context(), fixture.Cluster.RESTConfig(), more...))
}

// allowing returns the policy with the reporter of one namespace also allowed in another.
func allowing(t *testing.T, policy *unstructured.Unstructured, from, to string) *unstructured.Unstructured {
	t.Helper()
	raw, err := policy.MarshalJSON()
	must.Succeed(t, err)
	name := "/" + contract.ReporterName(apiservers.OpenShift.Name) + "'"
	text := strings.Replace(string(raw), "'"+from+name, "'"+from+name+", '"+to+name, 1)
	if err := policy.UnmarshalJSON([]byte(text)); err != nil || text == string(raw) {
		t.Fatal("the policy does not have the reporter: ", err)
	}
	return policy
}

// failPod writes the status that a kubelet writes when it ends a pod: at a shutdown of the node, at an eviction, or if
// it does not admit the pod.
func failPod(ctx context.Context, pod *corev1.Pod) error {
	failed := pod.DeepCopy()
	failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "Terminated"
	failed.Status.Message = "Pod was terminated in response to imminent node shutdown."
	for i := range failed.Status.ContainerStatuses {
		failed.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: metav1.Now()}}
	}
	_, err := fixture.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
	return err
}
