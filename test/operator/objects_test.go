//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/podspec"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// applyObject writes as an administrator.
func applyObject(t *testing.T, gvr schema.GroupVersionResource, namespace string, content map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := apiservers.Apply(ctx, client, "the-test", gvr, namespace, content); err != nil {
		t.Fatal(err)
	}
}

// kind is one whose objects can be listed.
type kind struct {
	schema.GroupVersionResource
	name string
}

// kinds are all of them but events and leases. No test adds one.
var kinds = sync.OnceValues(func() (all []kind, err error) {
	lists, err := kube.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && !slices.Contains([]string{"events", "leases", "componentstatuses", "endpoints"}, r.Name) {
				all = append(all, kind{gv.WithResource(r.Name), r.Kind})
			}
		}
	}
	return all, nil
})

// usualKind are the kinds of what the operator makes. What must be true of all kinds is
// looked for among these first: that takes a fraction of the time.
func usualKind(k kind) bool {
	return slices.Contains([]string{
		"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment", "Pod", "Role", "Secret", "ServiceAccount",
	}, k.name)
}

func anyKind(kind) bool { return true }

// listMade lists the objects of kinds that the operator has labelled, and all
// Deployments: it injects its reporter into some of them.
func listMade(ctx context.Context, among func(kind) bool) (all []unstructured.Unstructured, err error) {
	listed, err := kinds()
	if err != nil {
		return nil, err
	}
	for _, k := range listed {
		if !among(k) || strings.HasPrefix(k.name, "ValidatingAdmissionPolicy") { // the manifests make those
			continue
		}
		options := metav1.ListOptions{LabelSelector: manifests.ManagedBy + "=" + manifests.Manager}
		if k.name == "Deployment" {
			options = metav1.ListOptions{}
		}
		objects, err := client.Resource(k.GroupVersionResource).List(ctx, options)
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.Resource, err)
		}
		all = append(all, objects.Items...)
	}
	return all, nil
}

// tracesOn are the signs on an object that this project wrote it or a part of it.
func tracesOn(o *metav1.PartialObjectMetadata) string {
	var why []string
	if strings.Contains(o.GetName(), "kms-health") {
		why = append(why, "name")
	}
	for _, m := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for k, v := range m {
			if strings.Contains(k, "kmshealth.openshift.io") || k == manifests.ManagedBy && v == manifests.Manager {
				why = append(why, k)
			}
		}
	}
	for _, m := range o.GetManagedFields() {
		if strings.HasPrefix(m.Manager, "kms-health-") {
			why = append(why, "field manager "+m.Manager)
		}
	}
	slices.Sort(why)
	return strings.Join(slices.Compact(why), ", ")
}

// trace is an object that shows a trace of ours.
type trace struct {
	kind kind
	text string
}

// sweep finds every one of some kinds. It needs the objects' metadata alone, which of
// some is a hundredth.
func sweep(t *testing.T, among func(kind) bool) (found []trace) {
	t.Helper()
	all, err := kinds()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if !among(k) {
			continue
		}
		objects, err := metadataClient.Resource(k.GroupVersionResource).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			t.Fatalf("list %s: %v", k.Resource, err)
		}
		for i := range objects.Items {
			o := &objects.Items[i]
			if why := tracesOn(o); why != "" {
				found = append(found, trace{k, fmt.Sprintf("%s %s/%s: %s", k.name, o.Namespace, o.Name, why)})
			}
		}
	}
	slices.SortFunc(found, func(a, b trace) int { return strings.Compare(a.text, b.text) })
	return found
}

// awaitNothingLeft waits until no trace is left but those that were there before the
// operator was, and those that are named.
func (op *operatorProcess) awaitNothingLeft(but ...string) {
	op.t.Helper()
	left := func(among func(kind) bool) []trace {
		return slices.DeleteFunc(sweep(op.t, among), func(found trace) bool {
			// The manifests' own, like the operator's Deployment: it reports that everything is removed.
			return slices.Contains(op.before, found.text) || strings.HasPrefix(found.text, "ClusterOperator /kms-health: ") ||
				slices.ContainsFunc(but, func(b string) bool { return strings.HasPrefix(found.text, b) })
		})
	}
	var last []trace
	eventually(op.t, "nothing is left", func() error {
		// While there is something, one list is enough.
		if len(last) > 0 {
			last = left(func(k kind) bool { return slices.ContainsFunc(last, func(l trace) bool { return l.kind == k }) })
		}
		if len(last) == 0 {
			last = left(anyKind)
		}
		if len(last) > 0 {
			var all []string
			for _, l := range last {
				all = append(all, l.text)
			}
			return errors.New(strings.Join(all, "\n"))
		}
		return nil
	})
}

// describe is what matters of the objects that the operator made, a line each.
func describe(ctx context.Context, among func(kind) bool) ([]string, error) {
	all, err := listMade(ctx, among)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := range all {
		if line := describeOne(&all[i]); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

func describeOne(o *unstructured.Unstructured) string {
	name := o.GetKind() + " " + o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	switch o.GetKind() {
	case "ConfigMap":
		file, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
		return name + ": " + describeFile(file)
	case "Pod":
		if o.GetDeletionTimestamp() != nil {
			return ""
		}
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		switch {
		case phase == "Failed":
			return "failed pod on " + node
		case o.GetLabels()[manifests.DeliveryLabel] == "DaemonSet":
			return "agent on " + node
		case o.GetLabels()["app.kubernetes.io/name"] == manifests.ProofName:
			return "proof on " + node
		}
		image, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
		return fmt.Sprintf("companion on %s, %v: %s", node, image[0].(map[string]any)["image"], describeFile(o.GetAnnotations()[manifests.ConfigAnnotation]))
	case "Role":
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		var may []string
		for _, r := range rules {
			names, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resourceNames")
			may = append(may, names...)
		}
		return name + ": " + strings.Join(may, " ")
	case "Secret":
		data, _, _ := unstructured.NestedMap(o.Object, "data")
		keys := make([]string, 0, len(data))
		for k := range data {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		return name + ": " + strings.Join(keys, " ")
	case "ClusterRoleBinding":
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		var who []string
		for _, s := range subjects {
			s := s.(map[string]any)
			who = append(who, strings.Trim(fmt.Sprint(s["namespace"], "/", s["name"]), "<nil>/"))
		}
		return name + ": " + strings.Join(who, " ")
	case "Deployment":
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			c := c.(map[string]any)
			if c["name"] == podspec.ContainerName {
				volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
				for _, v := range volumes {
					v := v.(map[string]any)
					if v["name"] == podspec.ConfigVolume {
						config, _, _ := unstructured.NestedString(v, "configMap", "name")
						return fmt.Sprintf("%s: injected %v, %s", name, c["image"], config)
					}
				}
			}
		}
		return ""
	case "ReplicaSet", "ControllerRevision", "EndpointSlice", "Lease":
		return ""
	}
	return name
}

// describeFile is a reporter's file on one line.
func describeFile(file string) string {
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		return err.Error()
	}
	parts := []string{}
	for _, p := range c.Plugins {
		parts = append(parts, p.KeyID+string(p.Role[0]))
	}
	text := strings.Join(parts, "+") + " every " + c.Probe.Interval.Duration.String() + " to " + string(c.Destination.Resource)
	if c.Serving != nil && c.Serving.TLS != nil {
		text += fmt.Sprintf(", %s with %d suites", c.Serving.TLS.MinVersion, len(c.Serving.TLS.CipherSuites))
	}
	return text
}

// awaitObjects waits until what the operator made is exactly this.
func awaitObjects(t *testing.T, step string, before []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, step, func() error {
		for _, among := range []func(kind) bool{usualKind, anyKind} {
			got, err := describe(t.Context(), among)
			if err != nil {
				return err
			}
			got = slices.DeleteFunc(got, func(s string) bool { return slices.Contains(before, s) })
			if !slices.Equal(got, want) {
				return fmt.Errorf("there are\n  %s\nmust be\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		}
		return nil
	})
}

// condition is KMSHealthDelivery.
func condition(ctx context.Context, resource string) (status, reason, message string) {
	o, err := client.Resource(controlplane.OperatorGVR(resource)).Get(ctx, "cluster", metav1.GetOptions{})
	if err != nil {
		return "", err.Error(), ""
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c := c.(map[string]any)
		if c["type"] == "KMSHealthDelivery" {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return "", "", ""
}

func awaitCondition(t *testing.T, resource, status, reason string) {
	t.Helper()
	eventually(t, "the condition of "+resource+" is "+status+" "+reason, func() error {
		if s, r, m := condition(t.Context(), resource); s != status || r != reason {
			return fmt.Errorf("%s %s: %s", s, r, m)
		}
		return nil
	})
}

// ready waits until pods of a namespace are as many as wanted, and run.
func awaitPods(t *testing.T, namespace, selector string, want int) []corev1.Pod {
	t.Helper()
	var list *corev1.PodList
	eventually(t, fmt.Sprintf("%d pods of %s run", want, selector), func() (err error) {
		if list, err = kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector}); err != nil {
			return err
		}
		running := 0
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != want || len(list.Items) != want {
			return fmt.Errorf("%d of %d run", running, len(list.Items))
		}
		return nil
	})
	return list.Items
}

// gvrOf is an object's place in the API.
func gvrOf(t *testing.T, o *unstructured.Unstructured) schema.GroupVersionResource {
	t.Helper()
	list, err := kube.Discovery().ServerResourcesForGroupVersion(o.GetAPIVersion())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Kind == o.GetKind() && !strings.Contains(r.Name, "/") {
			return o.GroupVersionKind().GroupVersion().WithResource(r.Name)
		}
	}
	t.Fatalf("no resource of kind %s", o.GetKind())
	return schema.GroupVersionResource{}
}
