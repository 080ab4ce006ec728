// Package source reads operator resources: from a cluster, with the rights of the user, or from
// files. It does not evaluate them.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/serverclock"
)

// Cluster reads from an API server.
type Cluster struct {
	client dynamic.Interface
	clock  *serverclock.Clock
	// namespace is the operator's; empty: the first of Namespaces that has its objects.
	namespace string
}

// Namespaces are the operator's in the shipped manifests.
var Namespaces = []string{contract.OperatorNamespace, contract.KubernetesNamespace}

// NewCluster does not connect yet.
func NewCluster(config *rest.Config, namespace string, c clock.PassiveClock) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 300 // as kubectl: a few requests are not slowed down
	server := serverclock.New(c)
	config.Wrap(server.Wrap)
	client, err := dynamic.NewForConfig(config)
	return &Cluster{client, server, namespace}, err
}

// request is one get, or a list if the name is empty.
type request struct {
	schema.GroupVersionResource
	namespace, name string
	options         metav1.ListOptions
	objects         []*unstructured.Unstructured
	err             error
}

var (
	deployments = schema.GroupVersion{Group: "apps", Version: "v1"}.WithResource("deployments")
	leases      = schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}.WithResource("leases")
	configMaps  = schema.GroupVersion{Version: "v1"}.WithResource("configmaps")
	events      = schema.GroupVersion{Version: "v1"}.WithResource("events")
	pods        = schema.GroupVersion{Version: "v1"}.WithResource("pods")
)

// do makes requests at the same time, and returns all objects. What does not exist is no error: all of it is optional.
func (c *Cluster) do(ctx context.Context, all []*request) (objects []*unstructured.Unstructured) {
	var running sync.WaitGroup
	for _, r := range all {
		running.Go(func() {
			client := c.client.Resource(r.GroupVersionResource).Namespace(r.namespace)
			list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, 1)}
			if r.name == "" {
				list, r.err = client.List(ctx, r.options)
			} else if o, err := client.Get(ctx, r.name, metav1.GetOptions{}); err == nil {
				list.Items[0] = *o
			} else {
				r.err = err
			}
			for i := 0; r.err == nil && i < len(list.Items); i++ {
				r.objects = append(r.objects, &list.Items[i])
			}
			if apierrors.IsNotFound(r.err) {
				r.err = nil
			}
		})
	}
	running.Wait()
	for _, r := range all {
		objects = append(objects, r.objects...)
	}
	return objects
}

// Read reads everything. It is an error if no resource with reports can be read.
func (c *Cluster) Read(ctx context.Context) (*view.Snapshot, error) {
	var reports, operator, others []*request
	for _, r := range view.Resources {
		reports = append(reports, &request{GroupVersionResource: r.GVR(), name: r.Name})
	}
	get := func(gvr schema.GroupVersionResource, namespace, name string) *request {
		return &request{GroupVersionResource: gvr, namespace: namespace, name: name}
	}
	namespaces := Namespaces
	if c.namespace != "" {
		namespaces = []string{c.namespace}
	}
	for _, namespace := range namespaces {
		operator = append(operator, get(deployments, namespace, contract.OperatorName),
			get(leases, namespace, contract.OperatorName))
		others = append(others, get(configMaps, namespace, contract.OperatorConfigMap), get(pods, namespace, ""),
			&request{GroupVersionResource: events, namespace: namespace,
				options: metav1.ListOptions{FieldSelector: "source=" + contract.OperatorName}})
	}
	s := &view.Snapshot{Namespace: c.namespace, Objects: c.do(ctx, reports), Problems: problemsOf(reports)}
	if len(s.Problems) > 0 && len(s.Objects) == 0 {
		return nil, errors.Join(s.Problems...)
	}
	s.Objects = append(s.Objects, c.do(ctx, slices.Concat(operator, others))...)
	s.OperatorUnread = slices.ContainsFunc(operator, func(r *request) bool { return r.err != nil })
	// For the names of containers: without the right to read these, only commands to run next are missing.
	var serverPods []*request
	for _, server := range view.APIServers(s) {
		if len(server.PodSelector) > 0 && !slices.Contains(namespaces, server.Namespace) {
			serverPods = append(serverPods, &request{GroupVersionResource: pods, namespace: server.Namespace,
				options: metav1.ListOptions{LabelSelector: labels.FormatLabels(server.PodSelector)}})
		}
	}
	s.Objects = append(s.Objects, c.do(ctx, serverPods)...)
	s.Now = c.clock.Now()
	return s, nil
}

// Request requests a round trip of the reporters that report to a resource.
func (c *Cluster) Request(ctx context.Context, r contract.Resource, text string) error {
	patch := contract.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{contract.ProbeRequestedAnnotation: text}}})
	_, err := c.client.Resource(r.GVR()).Patch(ctx, r.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{
		FieldManager: "kubectl-kms-health"})
	return err
}

// problemsOf returns what could not be read, as one error with the first cause. A cluster need not have both
// OpenShift's resources and KMSHealths. If it has one, a missing right to read the other is no problem.
func problemsOf(reports []*request) []error {
	found := map[bool]bool{}
	isOwn := func(r *request) bool { return r.Resource == contract.KMSHealths.Plural }
	for _, r := range reports {
		found[isOwn(r)] = found[isOwn(r)] || len(r.objects) > 0
	}
	var names []string
	var first error
	for _, r := range reports {
		if r.err != nil && !(apierrors.IsForbidden(r.err) && found[!isOwn(r)]) {
			names, first = append(names, r.GroupResource().String()), cmp.Or(first, r.err)
		}
	}
	if first == nil {
		return nil
	}
	hint := cmp.Or(hints[apierrors.ReasonForError(first)], unreachable)
	return []error{fmt.Errorf("%s cannot be read: %w\n%s", strings.Join(names, ", "), first, hint)}
}

const unreachable = "Check that the API server runs, and that it is the right one (--kubeconfig, --context). If it " +
	"does not run, on its node: crictl ps -a --name kms; crictl logs --tail=20 CONTAINER"

// hints are what to do after an error.
var hints = map[metav1.StatusReason]string{
	metav1.StatusReasonForbidden:     "Request the rights listed by kubectl kms-health status --help",
	metav1.StatusReasonUnauthorized:  "Log in again, or use another kubeconfig or context",
	metav1.StatusReasonInternalError: "The API server may be unable to decrypt: a KMS plugin fails; its log has more",
}
