package doctor

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// credentialReasons are the reasons of KMSHealthReporting about credentials.
var credentialReasons = []string{contract.CredentialsExpired, contract.RenewalFailed}

// delivery checks the condition KMSHealthReporting of each target.
func (e *evaluation) delivery() (all []Finding) {
	off := Finding{Check: Delivery, Status: OK, Found: "nothing is delivered or reported: KMS is off, or this API server is not configured"}
	state := e.managementState()
	switch state {
	case v1alpha1.Unmanaged:
		all = append(all, Finding{Check: Delivery, Status: Warning, Reason: "Unmanaged", Found: "managementState is Unmanaged: the operator changes no workload, and only renews credentials and CA bundles",
			Next: []view.Step{{Text: "To resume, set managementState: Managed in ConfigMap " + contract.OperatorConfigMap + "."}}})
	case v1alpha1.Removed:
		off.Found = "managementState is Removed: nothing is delivered"
	default:
		if !e.works() {
			off.Status, off.Reason, off.Found = Unknown, "OperatorNotAvailable", "nothing is delivered or reported, and the operator is not available, so whether KMS is on is not known"
		}
	}
	for i := range e.targets {
		t := &e.targets[i]
		c, is := t.resource.Conditions[contract.HealthReporting]
		switch {
		case is:
			all = append(all, t.delivered(c))
		case len(t.status.Plugins) == 0 && state == v1alpha1.Removed: // reported once, below
		case len(t.status.Plugins) == 0:
			off.Target = t.status.Target
			all = append(all, off)
		case e.deployment != nil && t.configured != nil:
			all = append(all, t.finding(Delivery, Warning, "NoCondition", "there are reports, and no condition "+contract.HealthReporting+" of the operator", operatorLog(e.namespace)))
		}
	}
	if state == v1alpha1.Removed && len(all) == 0 {
		all = append(all, off)
	}
	return append(all, e.missing()...)
}

// missing are the operator resources that the operator is configured for, and that do not
// exist.
func (e *evaluation) missing() (all []Finding) {
	configured, read := e.configuredIn()
	if !read || e.deployment == nil {
		return nil
	}
	for _, c := range configured {
		exists := slices.ContainsFunc(e.targets, func(t target) bool { return t.status.Target == c.object() })
		unread := e.cannotRead(contract.ResourceNamed(c.object()).GVR(), "") != nil
		if exists || unread || contract.ResourceNamed(c.object()).PerAPIServer() || !e.Wanted(c.Resource) {
			continue
		}
		f := Finding{Check: Delivery, Status: Warning, Target: c.Resource, Reason: "ResourceMissing", Found: "the operator is configured for it, and it does not exist, so that nothing can be reported",
			Next: []view.Step{{Text: "Remove the target from ConfigMap " + contract.OperatorConfigMap + ", or create the resource."}}}
		if e.Files {
			f.Status, f.Reason, f.Found, f.Next = Unknown, string(NotGathered), "the operator is configured for it, and the files do not have it", nil
		}
		all = append(all, f)
	}
	return all
}

func (t *target) delivered(c operatorcr.Condition) Finding {
	f, row := t.finding(Delivery, OK, c.Reason, full(c)), contract.RollupReasonOf(c.Reason)
	switch {
	case c.Status == operatorcr.True:
		f.Reason = ""
		return f
	case row.UnderWay:
		f.Status = Warning
		f.Next = []view.Step{{Text: "Wait; if it stays so, see the operator's Events:", Command: "kubectl get events -n " + named(t.namespace, "NAMESPACE")}}
		return f
	case c.Status == operatorcr.False && row.NeedsAction:
		f.Status = Error
	case c.Status == operatorcr.False:
		f.Status = Warning
	default:
		f.Status = Unknown
	}
	f.Next = []view.Step{{Text: "What to do for each reason is in docs/operate/conditions.md."}, operatorLog(t.namespace)}
	return f
}

// expiryMetric is the operator's metric with the expiry of credentials in Secrets.
const expiryMetric = "kms_health_operator_credential_expiry_timestamp_seconds"

// credentials checks what is known of the reporters' credentials without reading a Secret.
func (e *evaluation) credentials() (all []Finding) {
	for i := range e.targets {
		t := &e.targets[i]
		if t.configured == nil {
			continue
		}
		c, is := t.resource.Conditions[contract.HealthReporting]
		if is && c.Status != operatorcr.True && slices.Contains(credentialReasons, c.Reason) {
			all = append(all, t.finding(Credentials, Error, c.Reason, full(c), view.Step{Text: "What to do for each reason is in docs/operate/conditions.md."}, operatorLog(t.namespace)))
			continue
		}
		if len(t.pods) == 0 && !is {
			continue
		}
		metric := view.Step{Text: fmt.Sprintf("See the operator's metric %s{api_server=%q}.", expiryMetric, t.configured.Name)}
		switch {
		case t.podsUnread != nil:
			all = append(all, t.finding(Credentials, Unknown, string(t.podsUnread.Why), t.podsUnread.what()+" could not be read, so the kind of the credentials is not known", metric))
		case len(t.pods) > 0 && !slices.ContainsFunc(t.pods, func(pod *unstructured.Unstructured) bool { return !hasToken(pod) }):
			all = append(all, t.finding(Credentials, OK, "", "tokens of the reporters' own pods, which the kubelet renews"))
		default:
			all = append(all, t.finding(Credentials, Unknown, "InSecret", "when the credential expires is in a Secret, which is not read; the operator reports no problem with it", metric))
		}
	}
	return all
}

// hasToken reports whether a reporter's pod has its credential from the kubelet.
func hasToken(pod *unstructured.Unstructured) bool {
	if pod.GetLabels()[contract.APIServerLabel] == "" { // another's pod, into which the reporter was injected
		return false
	}
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	return slices.ContainsFunc(volumes, func(v any) bool {
		volume, _ := v.(map[string]any)
		sources, _, _ := unstructured.NestedSlice(volume, "projected", "sources")
		return volume["name"] == "credentials" && slices.ContainsFunc(sources, func(s any) bool {
			source, _ := s.(map[string]any)
			return source["serviceAccountToken"] != nil
		})
	})
}
