package nodes

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// Annotations of a mirror pod (k8s.io/kubernetes/pkg/kubelet/types).
const (
	ConfigMirrorAnnotation = corev1.MirrorPodAnnotationKey
	ConfigHashAnnotation   = "kubernetes.io/config.hash"
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"
)

const staticTimeout = 2 * time.Minute

// static is a static pod on a node. A real one is a file in a kubelet's manifest folder.
type static struct {
	node string
	hash string
	pod  *corev1.Pod // the mirror pod, without the owner
	err  error       // the last error of mirror, guarded by Nodes.mu
}

// identity returns the UID by which a kubelet identifies a pod. For a static pod it is not the UID of the mirror pod,
// which may be deleted and created again.
func identity(pod *corev1.Pod) string {
	if isMirror(pod) {
		return pod.Annotations[ConfigHashAnnotation]
	}
	return string(pod.UID)
}

func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[ConfigMirrorAnnotation]
	return mirror
}

// RunStaticPod does what a kubelet does with a manifest in its folder, and returns the new mirror pod. The mirror pod
// is named <name>-<node>, is owned by the Node, and has the kubelet's annotations: config.source is "file", config.hash
// is the manifest's UID or a hash of the manifest. A manifest of the same name replaces the earlier one: with another
// hash, the mirror pod is replaced, too. A mirror pod that is deleted is created again. RunStaticPod waits up to two
// minutes: the API server refuses some mirror pods (with a ServiceAccount, Secrets or ConfigMaps).
func (n *Nodes) RunStaticPod(ctx context.Context, node string, manifest *corev1.Pod) (*corev1.Pod, error) {
	s, err := newStatic(node, manifest)
	if err != nil {
		return nil, err
	}
	key := keyOf(s.pod)
	if n.kubelets[node] == nil {
		return nil, fmt.Errorf("static pod %s: there is no node %s", key, node)
	}
	n.mu.Lock()
	n.statics[key] = s
	n.mu.Unlock()
	n.queue.Add(key)

	var mirror *corev1.Pod
	err = wait.For(ctx, staticTimeout, "the mirror of static pod "+key, func(context.Context) error {
		pod, err := get[*corev1.Pod](n.pods, key)
		if err == nil && (pod == nil || pod.DeletionTimestamp != nil || pod.Annotations[ConfigMirrorAnnotation] != s.hash) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if s.err != nil {
				return s.err
			}
			return errors.New("it is not there")
		}
		mirror = pod.DeepCopy()
		return err
	})
	return mirror, err
}

// RemoveStaticPod removes the manifest of this name (the name of the static pod, not of the mirror pod) from the node's
// folder, and waits until the mirror pod is deleted. It is no error if there is none.
func (n *Nodes) RemoveStaticPod(ctx context.Context, node, namespace, name string) error {
	key := namespace + "/" + name + "-" + node
	n.mu.Lock()
	delete(n.statics, key)
	n.mu.Unlock()
	n.queue.Add(key)
	return wait.For(ctx, staticTimeout, "static pod "+key+" is removed", func(context.Context) error {
		pod, err := get[*corev1.Pod](n.pods, key)
		if err == nil && pod != nil {
			err = errors.New("its mirror is there")
		}
		return err
	})
}

// newStatic follows applyDefaults in k8s.io/kubernetes/pkg/kubelet/config.
func newStatic(node string, manifest *corev1.Pod) (*static, error) {
	content, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("static pod %s: %w", manifest.Name, err)
	}
	pod := manifest.DeepCopy()
	hash := string(pod.UID)
	if hash == "" {
		sum := fnv.New128a()
		_, _ = sum.Write(content) // a hash returns no error
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
	pod.Spec.Tolerations = append(pod.Spec.Tolerations,
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	return &static{node: node, hash: hash, pod: pod}, nil
}

func (n *Nodes) static(key string) *static {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.statics[key]
}

// mirror creates the mirror pod, or deletes one that is outdated. done means that pod is the current mirror pod.
func (n *Nodes) mirror(ctx context.Context, s *static, pod *corev1.Pod) (done bool, err error) {
	k := n.kubelets[s.node]
	defer func() {
		n.mu.Lock()
		s.err = err
		n.mu.Unlock()
	}()
	switch {
	case pod == nil:
		return false, n.createMirror(ctx, k, s)
	case pod.DeletionTimestamp != nil || pod.Annotations[ConfigMirrorAnnotation] != s.hash:
		return false, deleteNow(ctx, k.client, pod)
	}
	return true, nil
}

// createMirror follows CreateMirrorPod in k8s.io/kubernetes/pkg/kubelet/pod.
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
		// The watch does not show this pod yet. Its event queues another sync.
		return nil
	}
	return err
}
