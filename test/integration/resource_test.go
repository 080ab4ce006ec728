//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// administrator returns a client with all rights.
func administrator(t *testing.T) dynamic.Interface {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cluster.RESTConfig())
	return client
}

func operatorResource(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	return administrator(t).Resource(controlplane.OperatorGVR(resource))
}

// object returns an operator resource, nil if it cannot be read.
func object(t *testing.T, resource string) *unstructured.Unstructured {
	t.Helper()
	u, err := operatorResource(t, resource).Get(soon(t), controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			t.Logf("read %s: %v", resource, err)
		}
		return nil
	}
	return u
}

// condition returns a condition of a resource, nil if there is none.
func condition(t *testing.T, resource, conditionType string) map[string]any {
	t.Helper()
	u := object(t, resource)
	if u == nil {
		return nil
	}
	return conditionIn(u, conditionType)
}

func conditionIn(u *unstructured.Unstructured, conditionType string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == conditionType {
			return c
		}
	}
	return nil
}

// entries returns the entries in the node's condition, nil if there is none.
func entries(t *testing.T, resource, node string) []contract.Entry {
	t.Helper()
	return entriesOf(condition(t, resource, contract.ConditionType(node)))
}

func entriesOf(condition map[string]any) []contract.Entry {
	if condition == nil {
		return nil
	}
	decoded, err := contract.DecodeMessage(condition["message"].(string))
	if err != nil {
		return nil // the reporter has not written it yet
	}
	return decoded
}

// freshCondition waits until the reporter's condition has these entries (keyID=status), checked after this call.
func (r *reporter) freshCondition(want ...string) []contract.Entry {
	r.t.Helper()
	since := time.Now().Truncate(time.Second)
	var got []contract.Entry
	eventually(r.t, fmt.Sprintf("a fresh condition of %s reports %v", r.node, want), func() bool {
		got = entries(r.t, controlplane.KubeAPIServers, r.node)
		return entriesAre(got, want...) && got[0].LastChecked.After(since)
	})
	return got
}

// applyCondition writes a condition with its own field manager, as an operator does.
func applyCondition(t *testing.T, resource, manager, conditionType, message string) {
	t.Helper()
	u := object(t, resource)
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": conditionType, "status": "False", "reason": "Test", "message": message, "lastTransitionTime": "2026-05-08T12:34:56Z",
		}}},
	}}
	if _, err := operatorResource(t, resource).ApplyStatus(soon(t), u.GetName(), applied, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		t.Fatal(err)
	}
}
