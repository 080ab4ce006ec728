package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// ControlPlaneLabel is on every node.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// kubelet is the state of a simulated node.
type kubelet struct {
	name   string
	client *kubernetes.Clientset // as system:node:<name>
	ip     string                // in TEST-NET-1: nothing answers there
}

// newKubelet registers a Ready node. It has no taints, and the labels of a control-plane node: ControlPlaneLabel,
// kubernetes.io/hostname, os and arch. It adopts an existing Node of this name.
func (n *Nodes) newKubelet(ctx context.Context, name string, i int) (*kubelet, error) {
	config := rest.CopyConfig(n.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes"}}
	k := &kubelet{name: name, client: kubernetes.NewForConfigOrDie(config), ip: fmt.Sprintf("192.0.2.%d", i+1)}
	return k, n.register(ctx, k)
}

// register writes as an administrator: a node must not set these labels itself.
func (n *Nodes) register(ctx context.Context, k *kubelet) error {
	labels := map[string]string{
		ControlPlaneLabel: "", corev1.LabelHostname: k.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	api := n.admin.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: labels}}
	_, err := api.Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := api.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		maps.Copy(node.Labels, labels)
		// An admission plugin adds this taint to a new node, and the node controller removes it once the node is ready.
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady
		})
		if node, err = api.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		node.Status = k.status()
		_, err = api.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

func (k *kubelet) status() corev1.NodeStatus {
	now := metav1.Now()
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods:   resource.MustParse("250"),
	}
	return corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: k.ip},
			{Type: corev1.NodeHostName, Address: k.name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
}

// deleteNow deletes this pod, and not another pod of the same name. The pod may already be deleted.
func deleteNow(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", keyOf(pod), err)
	}
	return nil
}
