// Package apiservers simulates the API servers with encryption that OpenShift's operators deploy. It creates
// only the objects and fields that the operator reads.
package apiservers

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// Server is an API server with encryption. Its container is named after it.
type Server struct {
	Name      string // of the target, in the operator's configuration
	Resource  string // its operator resource
	Kind      string // of that resource
	Namespace string
}

// The API servers of OpenShift. All lists them.
var (
	Kube      = of(controlplane.KubeAPIServers)
	OpenShift = of(controlplane.OpenShiftAPIServers)
	OAuth     = of(controlplane.Authentications)

	All = []Server{Kube, OpenShift, OAuth}
)

// of returns the API server whose reports are in this resource.
func of(resource string) Server {
	r := contract.ResourceOf(resource)
	return Server{r.APIServer.Name, resource, r.Kind, r.APIServer.Namespace}
}

// Delivered matches the message of KMSHealthReporting once all reporters are deployed.
var Delivered = regexp.MustCompile("(" + strings.ReplaceAll(strings.Trim(fmt.Sprint(v1alpha1.Modes), "[]"), " ", "|") +
	"): (as configured|the sockets are in )")

// Target returns the server's entry in the operator's configuration. more are further lines of it.
func (s Server) Target(more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- name: %s\n  resource: %s\n  namespace: %s\n  podSelector: {apiserver: \"true\"}\n  container: %s\n",
		s.Name, s.Resource, s.Namespace, s.Name)
	for _, line := range more {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// Status returns the operator resource with these conditions, for Apply.
func (s Server) Status(conditions ...any) map[string]any {
	return map[string]any{
		"apiVersion": controlplane.OperatorGroup + "/v1", "kind": s.Kind, "metadata": map[string]any{"name": controlplane.ClusterObject},
		"status": map[string]any{"conditions": conditions},
	}
}

// PutNodeStatuses writes status.nodeStatuses as library-go's installer controller does.
func PutNodeStatuses(ctx context.Context, client dynamic.Interface, statuses ...any) error {
	object := Kube.Status()
	object["status"] = map[string]any{"nodeStatuses": append([]any{}, statuses...)} // none: [], not null
	return Apply(ctx, client, "kube-apiserver-InstallerController", controlplane.OperatorGVR(Kube.Resource), "", object,
		"status")
}

// Report writes the condition of a node as its reporter does. since is its lastTransitionTime.
func (s Server) Report(ctx context.Context, client dynamic.Interface, node, message string, since time.Time) error {
	return Apply(ctx, client, contract.ConditionManager(node), controlplane.OperatorGVR(s.Resource), "",
		s.Status(map[string]any{
			"type": contract.ConditionType(node), "status": "True", "reason": "AsExpected", "message": message,
			"lastTransitionTime": since.UTC().Format(time.RFC3339),
		}), "status")
}

// Apply applies an object with force, overriding other managers.
func Apply(ctx context.Context, client dynamic.Interface, manager string, gvr schema.GroupVersionResource,
	namespace string, object map[string]any, subresource ...string) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	_, err = client.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: manager, Force: new(true)}, subresource...)
	return err
}

// CreateNamespaces creates the missing namespaces of OpenShift's API servers.
func CreateNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, r := range contract.Resources {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.APIServer.Namespace}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
