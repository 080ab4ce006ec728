// Package ssa writes the operator's objects, and parts of the status of others, by Server-Side Apply.
package ssa

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Applier writes the operator's objects by Server-Side Apply under the field manager contract.OperatorName. It sends
// nothing for an object that has not changed since it was applied. Pods are created, and later only their metadata is
// patched. Several goroutines may use it if no two of them write the same object.
type Applier struct {
	client  dynamic.Interface
	applied sync.Map // by Describe: the hash of what was sent, with the changeToken of the result
}

// changeToken differs after each change that matters. For an object with a generation it is the generation, since
// others may write its status and metadata. For any other object it is the resourceVersion: a user may have added a
// subject to a managed binding.
func changeToken(o *unstructured.Unstructured) string {
	if generation := o.GetGeneration(); generation > 0 {
		return fmt.Sprintf("%s generation %d", o.GetUID(), generation)
	}
	return o.GetResourceVersion()
}

// New returns an Applier.
func New(client dynamic.Interface) *Applier { return &Applier{client: client} }

// Apply brings an object to its desired state, and reports whether that changed it. live is the object as the
// informer last saw it, nil if it saw none. The result is nil if nothing was sent.
func (a *Applier) Apply(ctx context.Context, desired, live *unstructured.Unstructured) (changed bool,
	result *unstructured.Unstructured, err error) {
	if desired.GetKind() == "Pod" {
		return a.applyPod(ctx, desired, live)
	}
	if a.Applied(desired, live) {
		klog.V(4).InfoS("Not applied: unchanged since the last apply", "object", Describe(desired))
		return false, nil, nil
	}
	raw := contract.Body(desired.Object)
	result, err = a.patch(ctx, desired, types.ApplyPatchType, raw, new(true))
	if apierrors.IsInvalid(err) && a.takeOver(ctx, live) {
		result, err = a.patch(ctx, desired, types.ApplyPatchType, raw, new(true))
	}
	if err != nil {
		return false, nil, err
	}
	after := contract.FileHash(raw) + changeToken(result)
	before, _ := a.applied.Swap(Describe(desired), after)
	// An apply that changes nothing does not change the resourceVersion.
	return before != after && (live == nil || live.GetResourceVersion() != result.GetResourceVersion()), result, nil
}

// Applied reports whether an object is as it was applied last, so that Apply sends nothing.
func (a *Applier) Applied(desired, live *unstructured.Unstructured) bool {
	last, exists := a.applied.Load(Describe(desired))
	return exists && live != nil && last == contract.FileHash(contract.Body(desired.Object))+changeToken(live)
}

// takeOver makes the operator own the fields that others wrote into an object, so that the next apply removes them.
// It reports whether it did. An apply alone keeps such fields, and is invalid if they exclude its own: the command
// `kubectl rollout undo` restores the volume source of an earlier version.
func (a *Applier) takeOver(ctx context.Context, live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	o, others := live.DeepCopy(), sets.New[string]()
	entries := o.GetManagedFields()
	for i, m := range entries {
		if m.Subresource == "" && m.Manager != contract.OperatorName {
			others.Insert(m.Manager)
			entries[i].Operation = metav1.ManagedFieldsOperationUpdate // UpgradeManagedFieldsPatch takes only these
		}
	}
	o.SetManagedFields(entries)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(o, others, contract.OperatorName)
	if err != nil || len(others) == 0 {
		return false
	}
	_, err = a.patch(ctx, o, types.JSONPatchType, patch, nil)
	return err == nil
}

// applyPod creates a pod, or patches the metadata of one that exists. A spec is written once: admission may change it
// at creation, and each later write is then refused. A pod that should have another spec has another name.
func (a *Applier) applyPod(ctx context.Context, desired, live *unstructured.Unstructured) (changed bool,
	result *unstructured.Unstructured, err error) {
	if live == nil {
		result, err = a.resource(desired).Create(ctx, desired, metav1.CreateOptions{FieldManager: contract.OperatorName})
		if err == nil {
			return true, result, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, nil, fmt.Errorf("create %s: %w", Describe(desired), err)
		}
		// The informer has not seen it yet, or never will, since the label that selects it was removed.
		live = &unstructured.Unstructured{Object: map[string]any{}}
	}
	part := MetadataPatch(desired, live)
	if len(part) == 0 {
		return false, nil, nil
	}
	body := contract.Marshal(map[string]any{"metadata": part})
	result, err = a.patch(ctx, desired, types.MergePatchType, []byte(body), nil)
	return err == nil && live.GetUID() != "" && live.GetResourceVersion() != result.GetResourceVersion(), result, err
}

func (a *Applier) patch(ctx context.Context, o *unstructured.Unstructured, kind types.PatchType, body []byte,
	force *bool) (*unstructured.Unstructured, error) {
	result, err := a.resource(o).Patch(ctx, o.GetName(), kind, body,
		metav1.PatchOptions{FieldManager: contract.OperatorName, Force: force})
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", Describe(o), err)
	}
	return result, nil
}

// MetadataPatch returns a patch that gives a live pod the desired metadata; nil if the pod has it.
func MetadataPatch(desired, live *unstructured.Unstructured) map[string]any {
	owners := desired.GetOwnerReferences()
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	contains := func(all, wanted map[string]string) bool {
		return labels.SelectorFromSet(wanted).Matches(labels.Set(all))
	}
	if contains(live.GetLabels(), desired.GetLabels()) && contains(live.GetAnnotations(), desired.GetAnnotations()) &&
		slices.EqualFunc(owners, live.GetOwnerReferences(), sameOwner) {
		return nil
	}
	patch := map[string]any{"labels": desired.GetLabels(), "annotations": desired.GetAnnotations(),
		"ownerReferences": owners}
	if uid := live.GetUID(); uid != "" {
		patch["uid"] = uid // fails for a later pod of the same name
	}
	return patch
}

// Delete deletes the object with the UID of live, and reports whether it did: not if the object is gone or is already
// being deleted.
func (a *Applier) Delete(ctx context.Context, live *unstructured.Unstructured) (deleted bool, err error) {
	a.applied.Delete(Describe(live))
	if live.GetDeletionTimestamp() != nil {
		return false, nil
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = a.resource(live).Delete(ctx, live.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", Describe(live), err)
	}
	return true, nil
}

func (a *Applier) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind()) // right for every kind that the operator writes
	return a.client.Resource(plural).Namespace(o.GetNamespace())
}

// Describe returns the kind, namespace and name of an object: a key that people can read.
func Describe(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + cache.MetaObjectToName(o).String()
}

// AtLeast reports whether a resourceVersion is at least as new as one that was written. It is true if they cannot be
// compared, as when nothing was written (empty).
func AtLeast(version, written string) bool {
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err != nil || order >= 0
}
