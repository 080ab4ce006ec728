// Package nodes simulates nodes for a control plane of package controlplane, which has none. It does what kubelets and
// the scheduler do in the API: DaemonSets become ready, Deployments roll out and static pods have mirror pods, in
// milliseconds and without root.
//
//   - Nodes are Ready, and have the labels of a control-plane node.
//   - A pod without a node is bound to one that its nodeSelector or its DaemonSet permits.
//   - A bound pod becomes Running and Ready.
//   - A deleted pod is removed at once, whatever its grace period.
//   - Static pods have mirror pods, under the rules of NodeRestriction: a node writes as
//     system:node:<name>, by impersonation.
//
// Nothing really runs: no container, no probe, no volume. No address answers. Unlike a real static pod, a simulated one
// starts only while the API server is up, since the mirror pod is all there is. The end-to-end tests have real
// kubelets.
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
	// The backoff after an error, such as a conflict, a stopped API server, or an authorizer that has not seen the pod.
	retryAtFirst = 20 * time.Millisecond
	retryAtMost  = time.Second
	// workers is how many pods are synced concurrently. A sync is a few API calls.
	workers = 4
)

// Nodes are simulated nodes. Their methods may be called from any goroutine.
type Nodes struct {
	config *rest.Config
	admin  *kubernetes.Clientset

	ctx      context.Context // cancelled by Stop
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	queue    workqueue.TypedRateLimitingInterface[string] // namespace/name of pods
	pods     *watched
	nodes    *watched
	kubelets map[string]*kubelet // by node; it does not change after Start

	mu      sync.Mutex
	podsYet int                // how many pods ever got an address
	statics map[string]*static // by the key of the mirror pod
	assumed map[string]placed  // by pod UID: bound, but the watch does not show it yet
}

// Start registers nodes with these names and simulates their kubelets and the scheduler until Stop. ctx
// bounds the start only. config must be an administrator's (system:masters), to impersonate nodes.
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
	for i, name := range names {
		if n.kubelets[name], err = n.newKubelet(ctx, name, i); err != nil {
			return nil, fmt.Errorf("register node %s: %w", name, err)
		}
	}
	n.pods = n.watch("pods", &corev1.Pod{}, n.queue.Add)
	n.nodes = n.watch("nodes", &corev1.Node{}, func(string) { n.queueUnbound() })
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

// Stop ends all goroutines. It does not delete API objects. It may be called again.
func (n *Nodes) Stop() {
	n.cancel()
	n.queue.ShutDown()
	n.wg.Wait()
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

// queueUnbound queues the pods that have no node.
func (n *Nodes) queueUnbound() {
	for _, object := range n.pods.List() {
		if pod := object.(*corev1.Pod); unbound(pod) {
			n.queue.Add(keyOf(pod))
		}
	}
}

// sync does the next step for one pod. A step that changes an object causes a watch event, and so the next sync.
func (n *Nodes) sync(ctx context.Context, key string) error {
	pod, err := get[*corev1.Pod](n.pods, key)
	if err != nil {
		return err
	}
	// 1. A static pod gets its mirror pod. A mirror pod without a static pod is deleted below.
	manifest := n.static(key)
	if manifest != nil {
		if done, err := n.mirror(ctx, manifest, pod); !done || err != nil {
			return err
		}
	}
	if pod == nil {
		return nil
	}
	// 2. A pod without a node is scheduled.
	if unbound(pod) {
		return n.schedule(ctx, pod)
	}
	k := n.kubelets[pod.Spec.NodeName]
	if k == nil {
		return nil
	}
	if pod.DeletionTimestamp != nil || isMirror(pod) && manifest == nil {
		return deleteNow(ctx, k.client, pod)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	// 3. The status of the pod is written.
	status := podStatus(pod, k.ip, n.podIP(k, pod), metav1.Now())
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

// podIP returns the pod's address, or a new one if it has none.
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
