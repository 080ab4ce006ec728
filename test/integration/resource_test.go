//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// resource is kube-apiserver's operator resource, to which most reporters write.
const resource = controlplane.KubeAPIServers

// administrator returns a client with all rights.
func administrator() dynamic.Interface { return dynamic.NewForConfigOrDie(cluster.RESTConfig()) }

// operatorObject returns the operator resource; without conditions if it cannot be read.
func operatorObject(t *testing.T) *unstructured.Unstructured {
	u, err := administrator().Resource(controlplane.OperatorGVR(resource)).Get(soon(t), controlplane.ClusterObject,
		metav1.GetOptions{})
	if err != nil {
		t.Logf("read %s: %v", resource, err)
		return &unstructured.Unstructured{}
	}
	return u
}

// entriesIn returns the entries in the node's condition; none if there is no condition of the reporter yet.
func entriesIn(u *unstructured.Unstructured, node string) []contract.Entry {
	entries, _ := contract.DecodeMessage(operatorstatus.ReadConditions(u)[contract.ConditionType(node)].Message)
	return entries
}

// freshCondition waits until the reporter's condition has these entries (keyID=status), checked after this call.
func (r *reporter) freshCondition(want ...string) (entries []contract.Entry) {
	since := time.Now().Truncate(time.Second)
	eventually(r.t, fmt.Sprintf("a fresh condition of %s reports %v", r.node, want), func() bool {
		entries = entriesIn(operatorObject(r.t), r.node)
		var got []string
		for _, e := range entries {
			got = append(got, e.KeyID+"="+string(e.Status))
		}
		return strings.Join(got, " ") == strings.Join(want, " ") && entries[0].LastChecked.After(since)
	})
	return entries
}
