//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/sidecar"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
)

// applyObject writes as an administrator.
func applyObject(t *testing.T, gvr schema.GroupVersionResource, namespace string, content map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := apiservers.Apply(ctx, client, "the-test", gvr, namespace, content); err != nil {
		t.Fatal(err)
	}
}

// listAll lists all objects of all kinds, but for those that tell of events and
// measure time.
func listAll(ctx context.Context) ([]unstructured.Unstructured, error) {
	lists, err := kube.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "leases" || r.Name == "componentstatuses" || r.Name == "endpoints" {
				continue
			}
			objects, err := client.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			all = append(all, objects.Items...)
		}
	}
	return all, nil
}

// ours says why an object shows a trace of ours, empty where it does not.
func ours(o *unstructured.Unstructured) string {
	var why []string
	if strings.Contains(o.GetName(), "kms-health") {
		why = append(why, "name")
	}
	for _, m := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for k, v := range m {
			if strings.Contains(k, "kmshealth.openshift.io") || k == render.ManagedBy && v == render.Manager {
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

// sweep finds every trace of ours in the cluster.
func sweep(t *testing.T) []string {
	t.Helper()
	all, err := listAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i := range all {
		if why := ours(&all[i]); why != "" {
			found = append(found, fmt.Sprintf("%s %s/%s: %s", all[i].GetKind(), all[i].GetNamespace(), all[i].GetName(), why))
		}
	}
	slices.Sort(found)
	return found
}

// left are the traces that were not there before the operator was.
func (h *house) left() []string {
	h.t.Helper()
	return slices.DeleteFunc(sweep(h.t), func(s string) bool {
		// The manifests' own, like the operator's Deployment: it says that all is gone.
		return slices.Contains(h.before, s) || strings.HasPrefix(s, "ClusterOperator /kms-health: ")
	})
}

// awaitNothingLeft waits until no trace is left but those that are named.
func (h *house) awaitNothingLeft(but ...string) {
	h.t.Helper()
	eventually(h.t, "nothing is left", func() error {
		left := slices.DeleteFunc(h.left(), func(s string) bool {
			return slices.ContainsFunc(but, func(b string) bool { return strings.HasPrefix(s, b) })
		})
		if len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
}

// describe is what matters of the objects that the operator made, a line each.
func describe(ctx context.Context) ([]string, error) {
	all, err := listAll(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := range all {
		o := &all[i]
		made := o.GetLabels()[render.ManagedBy] == render.Manager
		if line := describeOne(o); line != "" && (made || o.GetKind() == "Deployment") {
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
		switch {
		case o.GetLabels()[render.DeliveryLabel] == "DaemonSet":
			return "agent on " + node
		case o.GetLabels()["app.kubernetes.io/name"] == render.ProofName:
			return "proof on " + node
		}
		image, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
		return fmt.Sprintf("companion on %s, %v: %s", node, image[0].(map[string]any)["image"], describeFile(o.GetAnnotations()[render.ConfigAnnotation]))
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
			if c["name"] == sidecar.ContainerName {
				volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
				for _, v := range volumes {
					v := v.(map[string]any)
					if v["name"] == sidecar.ConfigVolume {
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
		got, err := describe(t.Context())
		if err != nil {
			return err
		}
		got = slices.DeleteFunc(got, func(s string) bool { return slices.Contains(before, s) })
		if !slices.Equal(got, want) {
			return fmt.Errorf("there are\n  %s\nmust be\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		return nil
	})
}

// condition is the operator's word on a delivery.
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
	eventually(t, "the condition of "+resource+" says "+status+" "+reason, func() error {
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
