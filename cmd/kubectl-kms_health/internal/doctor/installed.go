package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// installed checks the operator: its Deployment, its Lease and the ClusterOperator.
func (e *evaluation) installed() []Finding {
	if e.deployment == nil {
		return []Finding{e.notInstalled()}
	}
	all := []Finding{e.available()}
	if lease, expired := e.leaseExpired(); expired {
		all = append(all, Finding{Check: Installed, Status: Error, Reason: "LeaseExpired",
			Found: fmt.Sprintf("the operator has not renewed its Lease for %s: no replica works, and the conditions may be outdated", duration.HumanDuration(e.Now.Sub(lease.Renewed))),
			Next:  []view.Step{operatorLog(e.namespace)}})
	}
	return append(all, e.clusterOperator()...)
}

func (e *evaluation) leaseExpired() (lease view.Lease, expired bool) {
	if e.lease == nil {
		return lease, false
	}
	lease, ok := view.ReadLease(e.lease)
	return lease, ok && e.Now.After(lease.Until)
}

// works reports whether a replica of the operator is known to work.
func (e *evaluation) works() bool {
	_, available := e.replicas()
	_, expired := e.leaseExpired()
	return available > 0 && !expired
}

// replicas of the operator's Deployment; none if that is not there, or was not read.
func (e *evaluation) replicas() (wanted, available int64) {
	if e.deployment == nil {
		return 0, 0
	}
	wanted, found, err := unstructured.NestedInt64(e.deployment.Object, "spec", "replicas")
	if !found || err != nil {
		wanted = 1
	}
	available, _, _ = unstructured.NestedInt64(e.deployment.Object, "status", "availableReplicas")
	return wanted, available
}

func (e *evaluation) notInstalled() Finding {
	for _, namespace := range e.Namespaces {
		if u := e.cannotRead(Deployments, namespace); u != nil {
			return Finding{Check: Installed, Status: Unknown, Reason: string(u.Why), Found: "whether the operator is installed is not known: " + u.what() + " could not be read",
				Next: []view.Step{{Text: "If it is in another namespace, use --operator-namespace."}}}
		}
	}
	f := Finding{Check: Installed, Status: Error, Reason: "NotInstalled",
		Found: fmt.Sprintf("no Deployment %s in namespace %s", contract.OperatorName, strings.Join(e.Namespaces, " or ")),
		Next:  []view.Step{{Text: "If it is in another namespace, use --operator-namespace. Otherwise install it: docs/operate/install.md."}}}
	if e.expected() {
		f.Status = Warning
		f.Found += ": what reporters write is rolled up by nobody"
	}
	return f
}

func (e *evaluation) available() Finding {
	wanted, available := e.replicas()
	f := Finding{Check: Installed, Status: OK, Found: fmt.Sprintf("Deployment %s/%s: %d of %d replicas are available", e.namespace, contract.OperatorName, available, wanted)}
	if available >= wanted && available > 0 {
		return f
	}
	f.Status, f.Reason = Warning, "ReplicasMissing"
	if available == 0 {
		f.Status, f.Reason = Error, "NotAvailable"
	}
	if why := e.whyNotAvailable(); why != "" {
		f.Found += ": " + bounded(why)
	}
	f.Next = []view.Step{
		{Text: "See why its pods are not ready:", Command: fmt.Sprintf("kubectl describe pods -n %s -l app.kubernetes.io/name=%s", named(e.namespace, "NAMESPACE"), contract.OperatorName)},
		operatorLog(e.namespace),
	}
	return f
}

// clusterOperator checks ClusterOperator/kms-health, which exists on OpenShift only.
func (e *evaluation) clusterOperator() []Finding {
	next := view.Step{Text: "See its conditions:", Command: "oc describe clusteroperator " + contract.ClusterOperator}
	if e.operator == nil {
		u := e.cannotRead(ClusterOperators, "")
		switch {
		case u != nil:
			return []Finding{{Check: Installed, Status: Unknown, Reason: string(u.Why), Found: "ClusterOperator " + contract.ClusterOperator + " could not be read"}}
		case e.namespace == contract.OperatorNamespace:
			return []Finding{{Check: Installed, Status: Warning, Reason: "ClusterOperatorMissing", Found: "ClusterOperator " + contract.ClusterOperator + " does not exist", Next: []view.Step{{Text: "Apply the manifests of OpenShift: docs/operate/install.md."}}}}
		default:
			return nil
		}
	}
	conditions := operatorcr.ReadConditions(e.operator)
	var all []Finding
	for _, bad := range []struct {
		conditionType, value string
		status               Status
	}{
		{"Available", operatorcr.False, Error}, {"Available", operatorcr.Unknown, Warning}, {"Degraded", operatorcr.True, Error},
		{"Degraded", operatorcr.Unknown, Warning}, {"Upgradeable", operatorcr.False, Warning},
	} {
		if c, is := conditions[bad.conditionType]; is && c.Status == bad.value {
			all = append(all, Finding{Check: Installed, Status: bad.status, Reason: c.Reason, Found: fmt.Sprintf("ClusterOperator %s has %s", contract.ClusterOperator, full(c)), Next: []view.Step{next}})
		}
	}
	switch {
	case len(all) > 0:
		return all
	case !slices.ContainsFunc([]string{"Available", "Degraded"}, func(name string) bool { _, is := conditions[name]; return is }):
		return []Finding{{Check: Installed, Status: Warning, Reason: "NoConditions", Found: "ClusterOperator " + contract.ClusterOperator + " has no conditions: the operator has not written them yet", Next: []view.Step{operatorLog(e.namespace)}}}
	default:
		return []Finding{{Check: Installed, Status: OK, Found: "ClusterOperator " + contract.ClusterOperator + " is available and not degraded"}}
	}
}

// full is a condition with its message.
func full(c operatorcr.Condition) string {
	return joined(fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason), c.Message)
}

// joined is a text with a message of others, whose lines become parts.
func joined(text, message string) string {
	message = strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		text += ": " + message
	}
	return bounded(text)
}

// bounded shortens a text of others.
func bounded(text string) string {
	const runes = 1000
	if r := []rune(text); len(r) > runes {
		return string(r[:runes-1]) + "…"
	}
	return text
}

// rights reports what could not be read.
func (e *evaluation) rights() []Finding {
	of := map[Why][]string{}
	var messages []string
	for _, u := range e.Unread {
		switch {
		case u.Resource == KMSMetrics.Resource: // see metrics
		case u.Why == NotGathered && u.Resource == Leases.Resource: // no must-gather has them
		case u.Why == Failed:
			of[Failed] = append(of[Failed], u.what())
			messages = append(messages, u.Message)
		default:
			of[u.Why] = append(of[u.Why], u.what())
		}
	}
	var all []Finding
	add := func(why Why, found, text, command string) {
		if len(of[why]) > 0 {
			all = append(all, Finding{Check: Rights, Status: Unknown, Reason: string(why), Found: found + strings.Join(of[why], ", "), Next: []view.Step{{Text: text, Command: command}}})
		}
	}
	add(Forbidden, "no right to read ", "Request the rights of docs/reference/kubectl.md. What needs these is unknown below.", "")
	add(NotGathered, "not in the files: ", "Gather them; what needs these is unknown below:", "oc adm inspect clusteroperator/"+contract.ClusterOperator)
	add(Failed, "could not be read: ", "See why, and try again: "+strings.Join(slices.Compact(messages), "; "), "")
	if len(all) == 0 {
		all = []Finding{{Check: Rights, Status: OK, Found: "everything that the checks need could be read"}}
	}
	return all
}
