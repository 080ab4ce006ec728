package informers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestFailureIsTheLastEventOfAnObjectThatIsOne(t *testing.T) {
	all := &Cluster{Failures: &Informer[Failure]{convert: readFailure}}
	objects := []any{}
	for _, e := range [][4]string{
		{"a.17", "FailedMount", "pod", "not a directory"}, {"a.16", "FailedMount", "pod", "timed out"},
		{"a.18", "BackOff", "pod", "restarting"}, {"b.1", "FailedCreate", "set", "exceeded quota"},
		{"c.1", "Unhealthy", "other", "probe failed"},
	} {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": e[0]}, "reason": e[1], "message": e[3],
			"involvedObject": map[string]any{"uid": e[2]},
		}})
	}
	if err := (store[Failure]{all.Failures}).Replace(objects, ""); err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]string{"pod": "not a directory", "set": "exceeded quota"}
	if diff := cmp.Diff(want, all.LastFailures()); diff != "" {
		t.Error(diff)
	}
}
