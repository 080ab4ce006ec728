package apiserver

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
)

// shared are the kinds that others write to as well, by right: controllers, admission, a
// Deployment's owner. A change of their spec has a new generation, and then they are applied
// once more, which changes nothing of what others own. Of all other kinds everything counts:
// a user who adds a subject to a binding of ours has changed it.
var shared = map[string]bool{"DaemonSet": true, "Deployment": true}

// fingerprint is the hash of all of a live object that matters for a desired one:
// never its status, nor what an API server keeps of it.
func fingerprint(desired, live *unstructured.Unstructured) string {
	if shared[desired.GetKind()] {
		return fmt.Sprintf("%s generation %d", live.GetUID(), live.GetGeneration())
	}
	raw, err := json.Marshal(withoutServersPart(live.Object))
	if err != nil {
		return "" // never equal to one that was kept
	}
	return string(live.GetUID()) + contract.FileHash(raw)
}

func withoutServersPart(object map[string]any) map[string]any {
	content := make(map[string]any, len(object))
	for name, value := range object {
		if name != "status" && name != "metadata" {
			content[name] = value
		}
	}
	meta := map[string]any{}
	all, _ := object["metadata"].(map[string]any)
	for name, value := range all {
		switch name {
		case "resourceVersion", "managedFields", "generation", "creationTimestamp":
		default:
			meta[name] = value
		}
	}
	content["metadata"] = meta
	return content
}
