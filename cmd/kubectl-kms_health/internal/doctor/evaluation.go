package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// evaluation is what the checks share.
type evaluation struct {
	*Snapshot
	deployment, lease, operator *unstructured.Unstructured // nil: not there, or not read
	namespace                   string                     // the operator's; a placeholder where it is not known
	targets                     []target
}

// target is an operator resource with what the operator delivers for it.
type target struct {
	status     *view.TargetStatus
	resource   *operatorcr.Status
	namespace  string      // the operator's
	configured *Configured // nil: the operator has no such target
	pods       []*unstructured.Unstructured
	configMaps []*unstructured.Unstructured
	unread     *Unread // why not all pods and ConfigMaps are known
	podsUnread *Unread // why not all pods are known
}

func newEvaluation(s *Snapshot) *evaluation {
	e := &evaluation{Snapshot: s, namespace: "NAMESPACE"}
	for _, o := range s.Objects {
		switch o.GetKind() {
		case "Deployment":
			e.deployment, e.namespace = o, o.GetNamespace()
		case "Lease":
			e.lease = o
		case "ClusterOperator":
			e.operator = o
		}
	}
	status, _ := view.Of(s.Targets, s.Now)
	configured := s.configured()
	for i := range status.Targets {
		t := target{status: &status.Targets[i], resource: s.Targets[i].Resource, namespace: e.namespace}
		at := slices.IndexFunc(configured, func(c Configured) bool { return c.object() == t.status.Target })
		if at >= 0 {
			t.configured = &configured[at]
			t.find(s, e.deployment)
		}
		e.targets = append(e.targets, t)
	}
	return e
}

// find finds the pods and ConfigMaps of a target.
func (t *target) find(s *Snapshot, deployment *unstructured.Unstructured) {
	namespaces := []string{t.configured.Namespace}
	if deployment != nil {
		namespaces = append(namespaces, deployment.GetNamespace())
	} else {
		namespaces = append(namespaces, s.Namespaces...)
	}
	for _, namespace := range namespaces {
		pods, configMaps := s.cannotRead(Pods, namespace), s.cannotRead(ConfigMaps, namespace)
		t.podsUnread = cmp.Or(t.podsUnread, pods)
		t.unread = cmp.Or(t.unread, configMaps, pods)
	}
	for _, o := range s.Objects {
		ours := o.GetLabels()[contract.APIServerLabel] == t.configured.Name ||
			o.GetLabels()[contract.APIServerLabel] == "" && o.GetNamespace() == t.configured.Namespace
		switch {
		case !ours || isOperators(o):
		case o.GetKind() == "ConfigMap" && o.GetName() != contract.OperatorConfigMap:
			t.configMaps = append(t.configMaps, o)
		case o.GetKind() == "Pod" && runs(o):
			t.pods = append(t.pods, o)
		}
	}
}

// runs reports whether a pod is not at its end.
func runs(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return pod.GetDeletionTimestamp() == nil && phase != "Succeeded" && phase != "Failed" && nodeOf(pod) != ""
}

func nodeOf(pod *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return node
}

// finding is one about the target.
func (t *target) finding(check Check, status Status, reason, found string, next ...view.Step) Finding {
	return Finding{Check: check, Status: status, Target: t.status.Target, Reason: reason, Found: found, Next: next}
}

// expected reports whether any target has reports, or should have.
func (e *evaluation) expected() bool {
	return slices.ContainsFunc(e.targets, func(t target) bool { return t.status.Expected() })
}

func operatorLog(namespace string) view.Step {
	return view.Step{Text: "See the operator's log:", Command: "kubectl logs -n " + named(namespace, "NAMESPACE") + " deployment/" + contract.OperatorName}
}

// named is a name in a command that is copied; a placeholder for one that is not a name.
func named(name, placeholder string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return placeholder
	}
	return name
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
