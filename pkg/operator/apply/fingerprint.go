package apply

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// shared are the kinds that others write to as well, by right: controllers,
// kubelets, admission, a Deployment's owner. Of those, only what was applied
// counts. Of all others everything does: a user who adds a subject to a binding
// of ours has changed it.
var shared = map[string]bool{"Pod": true, "DaemonSet": true, "Deployment": true}

// fingerprint is the hash of all of a live object that matters for a desired one:
// never its status, nor what an API server keeps of it.
func fingerprint(desired, live *unstructured.Unstructured) string {
	var content any
	if shared[desired.GetKind()] {
		content = project(desired.Object, live.Object)
	} else {
		content = withoutServersPart(live.Object)
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return "" // never equal to one that was kept
	}
	return string(live.GetUID()) + v1alpha1.FileHash(raw)
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

// project is the part of live whose fields are in desired, with live's values.
func project(desired, live any) any {
	switch desired := desired.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return live
		}
		part := make(map[string]any, len(desired))
		for name, value := range desired {
			if v, there := live[name]; there {
				part[name] = project(value, v)
			}
		}
		return part
	case []any:
		list, ok := live.([]any)
		if !ok {
			return live
		}
		part := make([]any, 0, len(desired))
		for _, element := range desired {
			key := keyOf(element)
			if key == "" {
				return live // a list without keys is of one piece
			}
			for _, l := range list {
				if keyOf(l) == key {
					part = append(part, project(element, l))
				}
			}
		}
		return part
	default:
		return live
	}
}

// keyOf is what an element of a list of a pod is merged by.
func keyOf(element any) string {
	m, _ := element.(map[string]any)
	for _, name := range []string{"mountPath", "name"} {
		if key, ok := m[name].(string); ok {
			return name + "=" + key
		}
	}
	return ""
}
