package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
)

// applyPod creates a pod, or patches the metadata of one that exists. A spec is written once:
// admission may change it at creation, and writing it again is then refused for as long as
// the pod lives. A pod that should have another spec has another name.
func (a *applier) applyPod(ctx context.Context, desired, live *unstructured.Unstructured) (written,
	*unstructured.Unstructured, error) {
	key := Key(desired)
	if live == nil {
		a.mu.Lock()
		r, known := a.applied[key]
		a.mu.Unlock()
		if known && a.clock.Since(r.at) < lag {
			return lagging, nil, nil
		}
		result, err := a.resource(desired).Create(ctx, desired, metav1.CreateOptions{FieldManager: contract.OperatorName})
		if err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.applied[key] = record{version: result.GetResourceVersion(), at: a.clock.Now()}
			return applied, result, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", nil, fmt.Errorf("create %s: %w", key, err)
		}
		// No watch shows it, for example since a label that selects it was removed.
	}
	part := metadataPatch(desired, live)
	if part == nil {
		return unchanged, nil, nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": part})
	if err != nil {
		return "", nil, fmt.Errorf("patch %s: %w", key, err)
	}
	options := metav1.PatchOptions{FieldManager: contract.OperatorName}
	result, err := a.resource(desired).Patch(ctx, desired.GetName(), types.MergePatchType, raw, options)
	if err != nil {
		return "", nil, fmt.Errorf("patch %s: %w", key, err)
	}
	return applied, result, nil
}

// metadataPatch is what the metadata of a live pod lacks of the desired one's; nil: nothing.
func metadataPatch(desired, live *unstructured.Unstructured) map[string]any {
	if live == nil {
		live = &unstructured.Unstructured{Object: map[string]any{}}
	}
	part := map[string]any{}
	lacking := func(name string, desired, live map[string]string) {
		missing := maps.Clone(desired)
		maps.DeleteFunc(missing, func(key, value string) bool { is, exists := live[key]; return exists && is == value })
		if len(missing) > 0 {
			part[name] = missing
		}
	}
	lacking("labels", desired.GetLabels(), live.GetLabels())
	lacking("annotations", desired.GetAnnotations(), live.GetAnnotations())
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if !slices.EqualFunc(desired.GetOwnerReferences(), live.GetOwnerReferences(), sameOwner) {
		part["ownerReferences"] = desired.GetOwnerReferences()
	}
	if len(part) == 0 {
		return nil
	}
	if uid := live.GetUID(); uid != "" {
		part["uid"] = uid // not of another pod that has the name by now
	}
	return part
}
