// Package nodes simulates the nodes of a control plane that has none (package controlplane): the
// kubelets and the scheduler as far as the API shows them, so that DaemonSets become ready,
// Deployments roll and static pods have their mirrors, in milliseconds and without root.
//
//   - Nodes are Ready, and labelled as a control plane's.
//   - A pod without a node is bound to one that its nodeSelector or its DaemonSet names.
//   - A bound pod becomes Running and Ready, or what PodBehaviour makes of its containers.
//   - A deleted pod is removed at once, whatever its grace period.
//   - Static pods have mirror pods, under the rules of NodeRestriction: all writes of a node are
//     made as system:node:<name>, by impersonation.
//
// Nothing runs: no container, no probe, no volume, and nothing has an address that answers. A mirror
// pod is made through the API server, so unlike a real one a static pod begins with the API server up.
// What depends on a real kubelet is for the end-to-end tests.
package nodes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
)

const (
	// What is in the way of a write (a conflict, a stopped API server, an
	// authorizer that has not seen the pod) is tried again between these.
	retryAtFirst = 20 * time.Millisecond
	retryAtMost  = time.Second
	// Pods that are looked after at once. Each is a few API calls.
	workers = 4
)

// Behaviour returns the status of a container that does not run, of which State,
// LastTerminationState and RestartCount count. Nil: it runs. It is called from several goroutines,
// often, with a pod that it must not change.
type Behaviour func(pod *corev1.Pod, container string) *corev1.ContainerStatus

// Nodes are simulated nodes. Their methods may be called from any goroutine.
type Nodes struct {
	config *rest.Config
	admin  *kubernetes.Clientset

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
	queue  workqueue.TypedRateLimitingInterface[string] // namespace/name of pods
	pods   *watched
	nodes  *watched

	mu          sync.Mutex
	behaviour   Behaviour
	kubelets    map[string]*kubelet
	kubeletsYet int                // that there have ever been
	podsYet     int                // that have got an address
	statics     map[string]*static // by the key of the mirror pod
	assumed     map[string]placed  // by the UID of a pod whose binding we have not seen yet
}

// Start registers nodes of these names (see AddNode), and simulates their kubelets
// and the scheduler until Stop. ctx bounds the start only. config is an
// administrator's (system:masters), for it must impersonate nodes.
func Start(ctx context.Context, config *rest.Config, names ...string) (_ *Nodes, err error) {
	n := &Nodes{
		config:   rest.CopyConfig(config),
		kubelets: map[string]*kubelet{}, statics: map[string]*static{}, assumed: map[string]placed{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtMost)),
	}
	n.config.QPS = -1
	n.config.WarningHandlerWithContext = rest.NoWarnings{}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	n.admin = kubernetes.NewForConfigOrDie(n.config)
	n.pods = n.watch("pods", &corev1.Pod{}, n.queue.Add)
	n.nodes = n.watch("nodes", &corev1.Node{}, func(string) { n.queueAll(unbound) })
	for _, name := range names {
		if err := n.AddNode(ctx, name); err != nil {
			return nil, err
		}
	}
	for _, w := range []*watched{n.pods, n.nodes} {
		select {
		case <-w.synced:
		case <-ctx.Done():
			return nil, fmt.Errorf("nodes: wait for the first list: %w", context.Cause(ctx))
		}
	}
	for range workers {
		n.wg.Go(n.work)
	}
	return n, nil
}

// Stop ends everything that runs. What is on the API stays. It may be called again.
func (n *Nodes) Stop() {
	n.cancel()
	n.queue.ShutDown()
	n.wg.Wait()
}

// PodBehaviour sets what the pods of these nodes do from now on; nil: they run.
func (n *Nodes) PodBehaviour(of Behaviour) {
	n.mu.Lock()
	n.behaviour = of
	n.mu.Unlock()
	n.queueAll(func(*corev1.Pod) bool { return true })
}

func (n *Nodes) work() {
	for {
		key, shutdown := n.queue.Get()
		if shutdown {
			return
		}
		if err := n.sync(n.ctx, key); err == nil {
			n.queue.Forget(key)
		} else if n.ctx.Err() == nil {
			n.queue.AddRateLimited(key)
		}
		n.queue.Done(key)
	}
}

// queueAll queues the pods that are meant.
func (n *Nodes) queueAll(meant func(*corev1.Pod) bool) {
	for _, object := range n.pods.List() {
		if pod := object.(*corev1.Pod); meant(pod) {
			n.queue.Add(keyOf(pod))
		}
	}
}

// sync takes one pod a step further. Every step that changes something is followed by an event
// that leads here again.
func (n *Nodes) sync(ctx context.Context, key string) error {
	pod, err := get[*corev1.Pod](n.pods, key)
	if err != nil {
		return err
	}
	// 1. A static pod has a mirror, and no other pod has one.
	manifest := n.static(key)
	if manifest != nil {
		if done, err := n.mirror(ctx, manifest, pod); !done || err != nil {
			return err
		}
	}
	if pod == nil {
		return nil
	}
	// 2. A pod without a node is the scheduler's.
	if unbound(pod) {
		return n.schedule(ctx, pod)
	}
	k := n.kubelet(pod.Spec.NodeName)
	if k == nil {
		return nil
	}
	if pod.DeletionTimestamp != nil || isMirror(pod) && manifest == nil {
		return deleteNow(ctx, k.client, pod)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	// 3. It runs, and its status shows it.
	n.mu.Lock()
	behaviour := n.behaviour
	n.mu.Unlock()
	status := podStatus(pod, k.ip, n.podIP(k, pod), behaviour, metav1.Now())
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return nil
	}
	next := pod.DeepCopy()
	next.Status = status
	if _, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of pod %s: %w", key, err)
	}
	return nil
}

// podIP is the address of a pod, which keeps the one that it has.
func (n *Nodes) podIP(k *kubelet, pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return k.ip
	}
	if pod.Status.PodIP != "" {
		return pod.Status.PodIP
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.podsYet++
	return fmt.Sprintf("10.128.%d.%d", n.podsYet/250%250, n.podsYet%250+1)
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func unbound(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" }
