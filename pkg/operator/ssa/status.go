package ssa

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// RequestTimeout bounds a write of a status.
const RequestTimeout = 10 * time.Second

// ApplyStatus makes conditions and other fields the operator's part of an object's status. What it applied
// before, and is not among them, is removed. It returns the object's version.
func ApplyStatus(ctx context.Context, client dynamic.Interface, to contract.Resource,
	conditions map[string]operatorstatus.Condition, fields map[string]any) (version string, err error) {
	if len(conditions) > 0 {
		byType := func(a, b operatorstatus.Condition) int { return strings.Compare(a.Type, b.Type) }
		fields["conditions"] = slices.SortedFunc(maps.Values(conditions), byType)
	}
	body, err := applybody.Marshal(to.WithStatus(fields))
	if err != nil {
		return "", fmt.Errorf("marshal the status of %s: %w", to, err)
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	force := true
	o, err := client.Resource(to.GVR()).Patch(ctx, to.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: contract.OperatorName, Force: &force}, "status")
	if err != nil {
		return "", fmt.Errorf("apply the status of %s: %w", to, err)
	}
	return o.GetResourceVersion(), nil
}
