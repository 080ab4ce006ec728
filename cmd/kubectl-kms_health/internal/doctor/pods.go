package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// isOperators reports whether a pod is the operator's.
func isOperators(pod *unstructured.Unstructured) bool {
	return pod.GetLabels()["app.kubernetes.io/name"] == contract.OperatorName
}

// whyNotAvailable is what keeps the operator's pods from running, or from being created; empty:
// not known.
func (e *evaluation) whyNotAvailable() string {
	var all []string
	for _, o := range e.Objects {
		if o.GetKind() == "Pod" && isOperators(o) && o.GetNamespace() == e.namespace && o.GetDeletionTimestamp() == nil {
			all = append(all, whyNotReady(o))
		}
	}
	if c, is := operatorcr.ReadConditions(e.deployment)["ReplicaFailure"]; is && c.Status == operatorcr.True {
		all = append(all, full(c))
	}
	slices.Sort(all)
	return strings.Join(slices.DeleteFunc(slices.Compact(all), func(why string) bool { return why == "" }), "; ")
}

// whyNotReady is what keeps a pod from running, without its name; empty: it is ready, or nothing
// shows that it is not. pkg/podspec reads more of a status, and would make this program larger by
// a quarter, with the types of the core group.
func whyNotReady(pod *unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", field)
		for _, s := range statuses {
			status, _ := s.(map[string]any)
			text := func(path ...string) string {
				value, _, _ := unstructured.NestedString(status, path...)
				return value
			}
			reason, message := text("state", "waiting", "reason"), text("state", "waiting", "message")
			switch reason {
			case "":
				continue
			case "CrashLoopBackOff": // its message counts seconds
				code, _, _ := unstructured.NestedInt64(status, "lastState", "terminated", "exitCode")
				reason, message = fmt.Sprintf("%s, exit code %d", reason, code), text("lastState", "terminated", "message")
			case "ContainerCreating":
				if needs := volumesOf(pod); message == "" && len(needs) > 0 {
					message = "its volumes need " + list(needs)
				}
			}
			return joined("container "+text("name")+": "+reason, message)
		}
	}
	conditions := operatorcr.ReadConditions(pod)
	for _, conditionType := range []string{"PodScheduled", "Ready"} {
		if c, is := conditions[conditionType]; is && c.Status == operatorcr.False {
			return full(c)
		}
	}
	return ""
}

// volumesOf are the Secrets and ConfigMaps without which a pod does not start.
func volumesOf(pod *unstructured.Unstructured) (all []string) {
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		for _, source := range [][3]string{{"Secret", "secret", "secretName"}, {"ConfigMap", "configMap", "name"}} {
			name, _, _ := unstructured.NestedString(volume, source[1], source[2])
			if optional, _, _ := unstructured.NestedBool(volume, source[1], "optional"); name != "" && !optional {
				all = append(all, source[0]+" "+name)
			}
		}
	}
	return all
}
