package nodes

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of a mirror pod (k8s.io/kubernetes/pkg/kubelet/types).
const (
	ConfigMirrorAnnotation = corev1.MirrorPodAnnotationKey
	ConfigHashAnnotation   = "kubernetes.io/config.hash"
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"
)

const (
	staticTimeout = 30 * time.Second
	staticPoll    = 5 * time.Millisecond
)

// static is a static pod on a node: a file in a kubelet's manifest folder.
type static struct {
	node string
	hash string
	pod  *corev1.Pod // its mirror, but for the owner
	err  error       // the last of its mirror, guarded by Nodes.mu
}

func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[ConfigMirrorAnnotation]
	return mirror
}

// RunStaticPod does what a kubelet does with a manifest in its folder, and
// returns the mirror pod as it was created: named <name>-<node>, with the
// kubelet's annotations (config.source is "file"; config.hash is the manifest's
// uid, or a hash of all of it) and owned by the Node. The emptyDirs are there by
// then. A manifest of the same name replaces the former: other content, another
// hash, another mirror and other folders; the same content is no change. A mirror
// that is deleted is created again. The wait is bounded by 30 seconds; what the API
// server will not have as a mirror pod (one with a ServiceAccount, Secrets or
// ConfigMaps) is an error.
func (n *Nodes) RunStaticPod(ctx context.Context, node string, manifest *corev1.Pod) (*corev1.Pod, error) {
	s, err := newStatic(node, manifest)
	if err != nil {
		return nil, err
	}
	key := keyOf(s.pod)
	n.mu.Lock()
	if n.kubelets[node] == nil {
		n.mu.Unlock()
		return nil, fmt.Errorf("static pod %s: there is no node %s", key, node)
	}
	n.statics[key] = s
	n.mu.Unlock()
	n.queue.Add(key)

	var mirror *corev1.Pod
	err = n.await(ctx, func() (bool, error) {
		n.mu.Lock()
		err := s.err
		n.mu.Unlock()
		if refused(err) {
			return false, err
		}
		pod, _ := get[*corev1.Pod](n.pods, key)
		if pod == nil || pod.DeletionTimestamp != nil || pod.Annotations[ConfigMirrorAnnotation] != s.hash || n.find(key) == nil {
			return false, err
		}
		mirror = pod.DeepCopy()
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("static pod %s: %w", key, err)
	}
	return mirror, nil
}

// RemoveStaticPod takes the manifest of this name (the static pod's, not the
// mirror's) out of the node's folder, and waits until its processes, folders and
// mirror are deleted. There need not be one.
func (n *Nodes) RemoveStaticPod(ctx context.Context, node, namespace, name string) error {
	key := namespace + "/" + name + "-" + node
	n.mu.Lock()
	delete(n.statics, key)
	n.mu.Unlock()
	n.queue.Add(key)
	err := n.await(ctx, func() (bool, error) {
		pod, err := get[*corev1.Pod](n.pods, key)
		return pod == nil && n.find(key) == nil, err
	})
	if err != nil {
		return fmt.Errorf("remove static pod %s: %w", key, err)
	}
	return nil
}

// await polls what other goroutines do; err of a check that goes on is what the
// timeout's error has.
func (n *Nodes) await(ctx context.Context, check func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, staticTimeout)
	defer cancel()
	ticker := time.NewTicker(staticPoll)
	defer ticker.Stop()
	for {
		done, err := check()
		if done || refused(err) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not in time: %w", context.Cause(ctx)), err)
		case <-n.ctx.Done():
			return errors.New("the nodes were stopped")
		}
	}
}

// refused returns whether the API server will not have an object however often it is
// asked. NodeRestriction denies requests of a node that it has not
// seen.
func refused(err error) bool {
	young := apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "looking up node") || strings.Contains(err.Error(), "UID mismatch"))
	return !young && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

// newStatic is k8s.io/kubernetes/pkg/kubelet/config applyDefaults.
func newStatic(node string, manifest *corev1.Pod) (*static, error) {
	content, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("static pod %s: %w", manifest.Name, err)
	}
	pod := manifest.DeepCopy()
	hash := string(pod.UID)
	if hash == "" {
		sum := fnv.New128a()
		_, _ = sum.Write(content) // a hash never fails
		_, _ = fmt.Fprintf(sum, "host:%sfile:%s", node, manifest.Name)
		hash = hex.EncodeToString(sum.Sum(nil))
	}
	pod.UID, pod.ResourceVersion = "", ""
	pod.Name += "-" + node
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[ConfigHashAnnotation] = hash
	pod.Annotations[ConfigMirrorAnnotation] = hash
	pod.Annotations[ConfigSourceAnnotation] = "file"
	pod.Annotations[ConfigSeenAnnotation] = time.Now().Format(time.RFC3339Nano)
	pod.Spec.NodeName = node
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	return &static{node: node, hash: hash, pod: pod}, nil
}

func (n *Nodes) static(key string) *static {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.statics[key]
}

// mirror makes the mirror pod what it should be. It is done when pod is.
func (n *Nodes) mirror(ctx context.Context, s *static, pod *corev1.Pod) (done bool, err error) {
	k := n.kubelet(s.node)
	if k == nil {
		return false, nil
	}
	defer func() {
		n.mu.Lock()
		s.err = err
		n.mu.Unlock()
	}()
	switch {
	case pod == nil:
		// The pod runs, whether it has a mirror or not.
		if _, err := n.sandbox(k, s.pod); err != nil {
			return false, err
		}
		return false, n.createMirror(ctx, k, s)
	case pod.DeletionTimestamp != nil || pod.Annotations[ConfigMirrorAnnotation] != s.hash:
		return false, deleteNow(ctx, k.client, pod)
	}
	return true, nil
}

// createMirror is k8s.io/kubernetes/pkg/kubelet/pod CreateMirrorPod.
func (n *Nodes) createMirror(ctx context.Context, k *kubelet, s *static) error {
	node, err := get[*corev1.Node](n.nodes, k.name)
	if err != nil {
		return err
	}
	if node == nil {
		return fmt.Errorf("node %s is not known yet", k.name)
	}
	mirror := s.pod.DeepCopy()
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true),
	}}
	_, err = k.client.CoreV1().Pods(mirror.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// One that we have not seen yet: what it is we shall see.
		return nil
	}
	return err
}
