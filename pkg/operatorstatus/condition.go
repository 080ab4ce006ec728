package operatorstatus

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Condition is a condition of an operator resource.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// LastTransitionTime is when Status last changed, in UTC, to the second.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Settle sets LastTransitionTime: to the previous condition's if the status is the same, else to now. One that is to
// come is by a clock that was set back: a StatusSyncer would ignore the condition until then.
func (c *Condition) Settle(previous map[string]Condition, now time.Time) {
	c.LastTransitionTime = now.UTC().Truncate(time.Second)
	was := previous[c.Type]
	if at := was.LastTransitionTime; was.Status == c.Status && !at.IsZero() && at.Before(c.LastTransitionTime) {
		c.LastTransitionTime = at
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
	for _, e := range elements(o, "status", "conditions") {
		if condition := e.condition(); condition.Type != "" {
			all[condition.Type] = condition
		}
	}
	return all
}

// element is an element of a list; nil if it is no mapping.
type element map[string]any

// elements returns the elements of a list, at the same indexes; none if there is no list.
func elements(o *unstructured.Unstructured, path ...string) []element {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	list, _ := value.([]any)
	all := make([]element, len(list))
	for i := range list {
		all[i], _ = list[i].(map[string]any)
	}
	return all
}

func (e element) text(field string) string { s, _ := e[field].(string); return s }

func (e element) condition() Condition {
	at, _ := time.Parse(time.RFC3339, e.text("lastTransitionTime"))
	return Condition{e.text("type"), e.text("status"), e.text("reason"), e.text("message"), at.UTC().Truncate(time.Second)}
}
