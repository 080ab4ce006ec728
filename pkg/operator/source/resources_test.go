package source

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestReadNode(t *testing.T) {
	ready := func(status string) any {
		return []any{
			map[string]any{"type": "MemoryPressure", "status": "True"},
			map[string]any{"type": "Ready", "status": status},
		}
	}
	for _, tt := range []struct {
		name       string
		conditions any
		want       bool
	}{
		{"Ready", ready("True"), true},
		{"not Ready", ready("False"), false},
		{"the kubelet does not report", ready("Unknown"), false},
		{"no condition yet", nil, false},
		{"another condition alone", ready("True").([]any)[:1], false},
		{"something else", "True", false},
		{"something else in the list", []any{"Ready", map[string]any{}, nil}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "a", "creationTimestamp": "2026-05-08T11:00:00Z"},
				"status":   map[string]any{"conditions": tt.conditions},
			}}
			got := readNode(o)
			if got.Name != "a" || got.Ready != tt.want || !got.Created.Time.Equal(time.Date(2026, 5, 8, 11, 0, 0, 0, time.UTC)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A heartbeat must wake no controller, so its fields are not kept.
func TestHeartbeatChangesNothingOfANode(t *testing.T) {
	at := func(minute int) Node {
		return readNode(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a", "resourceVersion": fmt.Sprint(minute)},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "lastHeartbeatTime": fmt.Sprintf("2026-05-08T11:%02d:00Z", minute),
			}}},
		}})
	}
	if at(1) != at(2) {
		t.Errorf("%+v is not %+v", at(1), at(2))
	}
}
