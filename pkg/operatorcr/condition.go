package operatorcr

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Condition is a condition of an operator resource.
type Condition struct {
	Type, Status, Reason, Message string
	// LastTransitionTime is when Status last changed, to the second.
	LastTransitionTime time.Time
}

// Fields are the condition as it is applied.
func (c Condition) Fields() map[string]any {
	return map[string]any{
		"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
	}
}

// Settle sets the condition's transition time: that of the previous condition if the
// status is the same.
func (c *Condition) Settle(previous map[string]Condition, now time.Time) {
	c.LastTransitionTime = now.UTC().Truncate(time.Second)
	if was, had := previous[c.Type]; had && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
		c.LastTransitionTime = was.LastTransitionTime
	}
}

// The values of a Condition's Status.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// ReadConditions returns all conditions of a resource, by type.
func ReadConditions(o *unstructured.Unstructured) map[string]Condition {
	all := map[string]Condition{}
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		fields, _ := c.(map[string]any)
		if condition := readCondition(fields); condition.Type != "" {
			all[condition.Type] = condition
		}
	}
	return all
}

func readCondition(fields map[string]any) Condition {
	text := func(name string) string { s, _ := fields[name].(string); return s }
	at, _ := time.Parse(time.RFC3339, text("lastTransitionTime"))
	return Condition{text("type"), text("status"), text("reason"), text("message"), at}
}
