//go:build integration

package nodes

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ready = "Running, main:running, ready"

func TestNodesAreReadyControlPlaneNodes(t *testing.T) {
	w := newFixture(t, Options{}, "one", "two")
	nodes, err := w.client.CoreV1().Nodes().List(soon(t), metav1.ListOptions{LabelSelector: ControlPlaneLabel})
	if err != nil || len(nodes.Items) != 2 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) > 0 || nodeReady(&node) != corev1.ConditionTrue {
			t.Errorf("%s: taints %v, ready %s", node.Name, node.Spec.Taints, nodeReady(&node))
		}
	}
	if err := w.SetNodeReady(soon(t), "one", corev1.ConditionUnknown); err != nil {
		t.Fatal(err)
	}
	node, err := w.client.CoreV1().Nodes().Get(soon(t), "one", metav1.GetOptions{})
	if err != nil || nodeReady(node) != corev1.ConditionUnknown {
		t.Errorf("one is ready: %s, %v", nodeReady(node), err)
	}
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func TestAPodRunsAndEndsAndGoes(t *testing.T) {
	w := newFixture(t, Options{}, "one")
	w.create(pod("service"))
	running := w.becomes("service", ready)
	if running.Spec.NodeName != "one" || running.Status.PodIP == "" || running.Status.StartTime == nil {
		t.Errorf("it is on %q at %q since %v", running.Spec.NodeName, running.Status.PodIP, running.Status.StartTime)
	}
	job := pod("job")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(job)
	w.becomes("job", "Succeeded, main:ended 0")
	for _, name := range []string{"service", "job"} {
		if err := w.client.CoreV1().Pods(w.namespace).Delete(soon(t), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.gone(name)
	}
}

func (w *fixture) gone(name string) {
	w.t.Helper()
	took := w.eventually(name+" is deleted", func(ctx context.Context) error {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	w.t.Logf("%s is gone: %v", name, took)
}

func TestAPodThatFitsNowhereWaitsForANode(t *testing.T) {
	w := newFixture(t, Options{}, "one")
	choosy := pod("choosy")
	choosy.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "two"}
	w.create(choosy)
	w.eventually("it is unschedulable", func(context.Context) error {
		for _, c := range w.get("choosy").Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("its status lacks it")
	})
	if err := w.AddNode(soon(t), "two"); err != nil {
		t.Fatal(err)
	}
	if got := w.becomes("choosy", ready).Spec.NodeName; got != "two" {
		t.Errorf("it is on %s", got)
	}
}

func TestABehaviourIsPlayedOnItsNode(t *testing.T) {
	w := newFixture(t, Options{}, "one", "two")
	w.PodBehaviour(func(pod *corev1.Pod) *Behaviour {
		if pod.Spec.NodeName != "two" || pod.Namespace != w.namespace {
			return nil
		}
		return &Behaviour{Does: CannotPull, Message: "no such image"}
	})
	w.daemonSet("agent", nil)
	w.agents(map[string]string{"one": ready, "two": "Pending, main:ImagePullBackOff"})
	w.PodBehaviour(nil)
	w.agents(map[string]string{"one": ready, "two": ready})
}

var selector = map[string]string{"app": "agent"}

func (w *fixture) daemonSet(name string, spec *corev1.PodSpec) {
	w.t.Helper()
	if spec == nil {
		spec = &pod("").Spec
	}
	if _, err := w.client.AppsV1().DaemonSets(w.namespace).Create(soon(w.t), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: *spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// agents waits until the DaemonSet's pods are these, by their nodes.
func (w *fixture) agents(want map[string]string) {
	w.t.Helper()
	took := w.eventually(fmt.Sprintf("the pods become %v", want), func(ctx context.Context) error {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, pod := range pods.Items {
			got[pod.Spec.NodeName] = describePod(&pod)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
	w.t.Logf("the pods become %v: %v", want, took)
}

func TestADaemonSetFollowsTheNodes(t *testing.T) {
	w := newFixture(t, Options{}, "one", "two")
	w.daemonSet("agent", nil)
	w.agents(map[string]string{"one": ready, "two": ready})
	if err := w.AddNode(soon(t), "three"); err != nil {
		t.Fatal(err)
	}
	w.agents(map[string]string{"one": ready, "two": ready, "three": ready})
	if err := w.RemoveNode(soon(t), "one"); err != nil {
		t.Fatal(err)
	}
	w.agents(map[string]string{"two": ready, "three": ready})
	w.eventually("the DaemonSet counts them", func(ctx context.Context) error {
		set, err := w.client.AppsV1().DaemonSets(w.namespace).Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (set.Status.NumberReady != 2 || set.Status.DesiredNumberScheduled != 2) {
			return fmt.Errorf("it counts %+v", set.Status)
		}
		return err
	})
}

func TestADeploymentRollsOverTheNodes(t *testing.T) {
	w := newFixture(t, Options{}, "one", "two", "three")
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: pod("").Spec}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: template},
	}
	api := w.client.AppsV1().Deployments(w.namespace)
	if _, err := api.Create(soon(t), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.agents(map[string]string{"one": ready, "two": ready, "three": ready})
	if _, err := api.Patch(soon(t), "apiserver", "application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"hash":"2"}}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	took := w.eventually("it is rolled out", func(ctx context.Context) error {
		d, err := api.Get(ctx, "apiserver", metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 3 || d.Status.AvailableReplicas != 3 || d.Status.Replicas != 3) {
			return fmt.Errorf("%+v", d.Status)
		}
		return err
	})
	t.Logf("rolled out in %v", took)
}

func TestNodesGoOnWhenTheAPIServerComesBack(t *testing.T) {
	w := newFixture(t, Options{}, "one")
	if err := cluster.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAPIServer(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.AwaitReady(soon(t)); err != nil {
		t.Fatal(err)
	}
	// The nodes recover by themselves; the controllers are restarted.
	w.create(pod("late"))
	defer func() {
		if err := cluster.RestartControllerManager(soon(t)); err != nil {
			t.Error(err)
		}
	}()
	w.becomes("late", ready)
}
