package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Options of StartWith. The zero value simulates only what the API shows.
type Options struct {
	// Root is the absolute path of the folder used as /var/lib/kubelet of a node: a pod's
	// emptyDir is <root>/pods/<uid>/volumes/kubernetes.io~empty-dir/<volume>,
	// where the uid of a static pod is its kubernetes.io/config.hash. A socket's
	// path has at most 107 bytes, and that is some 90 already: keep it short.
	// Folders are made where needed; those of pods are removed with the pods.
	// Nil: there are no folders.
	Root func(node string) string
	// HostPath maps the other paths of hostPath volumes, so that nodes can have
	// different ones. Nil: as they are.
	HostPath func(node, path string) string
	// Processes are run where this is given. They need Root.
	Processes *Processes
	// Log gets errors that are retried. Nil: nothing is logged.
	Log *slog.Logger
}

// Nodes are simulated nodes. Their methods may be called from any goroutine.
type Nodes struct {
	options Options
	config  *rest.Config
	admin   *kubernetes.Clientset
	log     *slog.Logger

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
	queue  workqueue.TypedRateLimitingInterface[string] // namespace/name of pods
	pods   *watched
	nodes  *watched

	mu                        sync.Mutex
	stopped                   bool
	behaviour                 func(*corev1.Pod) *Behaviour
	kubelets                  map[string]*kubelet
	kubeletsYet, sandboxesYet int                   // that there have ever been
	statics                   map[string]*static    // by the key of the mirror pod
	sandboxes                 map[string]*sandbox   // by identity
	assumed                   map[string]assumption // by the UID of a pod whose binding we have not seen yet
}

// StartWith registers nodes of these names (see AddNode), and simulates their kubelets
// and the scheduler until Stop. ctx bounds the start only. config is an
// administrator's (system:masters), for it must impersonate nodes.
func StartWith(ctx context.Context, config *rest.Config, options Options, names ...string) (_ *Nodes, err error) {
	if options.Processes != nil && options.Root == nil {
		return nil, errors.New("nodes: Processes need a Root")
	}
	n := &Nodes{
		options: options, config: rest.CopyConfig(config), log: options.Log,
		kubelets:  map[string]*kubelet{},
		statics:   map[string]*static{},
		sandboxes: map[string]*sandbox{},
		assumed:   map[string]assumption{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtMost)),
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.config.QPS = -1
	n.config.WarningHandlerWithContext = rest.NoWarnings{}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if n.admin, err = kubernetes.NewForConfig(n.config); err != nil {
		return nil, err
	}
	n.pods = n.watch("pods", &corev1.Pod{}, n.queue.Add)
	n.nodes = n.watch("nodes", &corev1.Node{}, func(string) { n.lookAtAll(unbound) })
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

// Stop ends all processes, by SIGKILL after some seconds where they do not listen,
// and everything else that runs, and removes the folders of the pods. What is on
// the API stays. It may be called again.
func (n *Nodes) Stop() {
	n.mu.Lock()
	n.stopped = true
	sandboxes := n.sandboxes
	n.sandboxes = map[string]*sandbox{}
	n.mu.Unlock()

	n.cancel()
	n.queue.ShutDown()
	n.wg.Wait()
	for _, s := range sandboxes {
		s.removeFolder()
	}
}

// PodBehaviour sets what the pods of these nodes do from now on; pods that it
// returns nil for run, which is also the meaning of a nil function. All pods that have
// not ended are looked at anew. It is called from several goroutines, often, with
// a pod that it must not change.
func (n *Nodes) PodBehaviour(of func(*corev1.Pod) *Behaviour) {
	n.mu.Lock()
	n.behaviour = of
	n.mu.Unlock()
	n.lookAtAll(func(*corev1.Pod) bool { return true })
}

func (n *Nodes) behaviourOf(pod *corev1.Pod) *Behaviour {
	n.mu.Lock()
	of := n.behaviour
	n.mu.Unlock()
	if of == nil {
		return nil
	}
	return of(pod)
}

func (n *Nodes) work() {
	for {
		key, shutdown := n.queue.Get()
		if shutdown {
			return
		}
		err := n.sync(n.ctx, key)
		switch {
		case err == nil:
			n.queue.Forget(key)
		case n.ctx.Err() == nil:
			// Conflicts, and objects that are already deleted, are not logged.
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				n.log.Warn("a pod is tried again", "pod", key, "error", err)
			}
			n.queue.AddRateLimited(key)
		}
		n.queue.Done(key)
	}
}

// lookAtAll queues the pods that are meant.
func (n *Nodes) lookAtAll(meant func(*corev1.Pod) bool) {
	for _, object := range n.pods.List() {
		if pod := object.(*corev1.Pod); meant(pod) {
			n.queue.Add(keyOf(pod))
		}
	}
}

func keyOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
