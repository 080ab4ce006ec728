//go:build integration

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
)

// waitLimit bounds each wait.
const waitLimit = 60 * time.Second

var (
	// cluster serves all tests, which run one after another, each with nodes of
	// its own.
	cluster *controlplane.ControlPlane
	// binary is the reporter, with the race detector where the tests have it.
	binary string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	dir, err := os.MkdirTemp("", "kms-health-nodes")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binary, err = program.Build(dir, "cmd/kms-health-reporter"); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.Default})
	if err != nil {
		return fail(err)
	}
	code = 1
	if err = cluster.StartControllerManager(ctx, controlplane.ControllerManagerOptions{}); err == nil {
		code = m.Run()
	}
	err = errors.Join(err, cluster.Stop())
	if code == 0 && err == nil {
		err = goleak.Find()
	}
	if err != nil {
		return fail(err)
	}
	return code
}

// fixture is a test's nodes with a namespace.
type fixture struct {
	*Nodes
	t         *testing.T
	client    *kubernetes.Clientset
	namespace string
}

// newFixture starts nodes that end with the test, and leave no Node behind.
func newFixture(t *testing.T, options Options, names ...string) *fixture {
	t.Helper()
	config := cluster.RESTConfig()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	n, err := StartWith(soon(t), config, options, names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes after %v", len(names), time.Since(start).Round(time.Millisecond))
	w := &fixture{Nodes: n, t: t, client: client}
	t.Cleanup(func() {
		nodes, err := client.CoreV1().Nodes().List(soon(t), metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		} else {
			for _, node := range nodes.Items {
				if err := n.RemoveNode(soon(t), node.Name); err != nil {
					t.Error(err)
				}
			}
		}
		n.Stop()
		n.Stop() // again is nothing
	})
	created, err := client.CoreV1().Namespaces().Create(soon(t), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nodes-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.namespace = created.Name
	// Without it no pod is admitted.
	w.eventually("the default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return w
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// eventually returns how long it took.
func (w *fixture) eventually(what string, check func(context.Context) error) time.Duration {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	start := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return time.Since(start)
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

func (w *fixture) get(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(soon(w.t), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

func (w *fixture) create(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Create(soon(w.t), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// becomes waits until describePod describes a pod so, and returns it.
func (w *fixture) becomes(name, want string) *corev1.Pod {
	w.t.Helper()
	var pod *corev1.Pod
	took := w.eventually(name+" becomes "+want, func(ctx context.Context) (err error) {
		if pod, err = w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if got := describePod(pod); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	w.t.Logf("%s becomes %s: %v", name, want, took.Round(time.Millisecond))
	return pod
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "any"}}},
	}
}
