package ssa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// RequestTimeout bounds the requests for one object, and a write of a status, so that one that hangs delays the others
// for no longer. A webhook that does not answer, and may fail, delays a request for its timeout, by default 10 s.
const RequestTimeout = 15 * time.Second

// ApplyStatus makes conditions and other fields the operator's part of an object's status. What it applied
// before, and is not among them, is removed. Without force it is a conflict where another manager owns a field of
// another value. It returns the object.
func ApplyStatus(ctx context.Context, client dynamic.Interface, to contract.Resource,
	conditions map[string]operatorstatus.Condition, fields map[string]any, force bool,
) (*unstructured.Unstructured, error) {
	if len(conditions) > 0 {
		byType := func(a, b operatorstatus.Condition) int { return strings.Compare(a.Type, b.Type) }
		fields["conditions"] = slices.SortedFunc(maps.Values(conditions), byType)
	}
	body, err := applybody.Marshal(to.WithStatus(fields))
	if err != nil {
		return nil, fmt.Errorf("marshal the status of %s: %w", to, err)
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	o, err := client.Resource(to.GVR()).Patch(ctx, to.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: contract.OperatorName, Force: &force}, "status")
	if err != nil {
		return nil, fmt.Errorf("apply the status of %s: %w", to, err)
	}
	return o, nil
}

// IsOther reports whether a manager is neither the operator nor a person's tool.
func IsOther(manager string) bool {
	return manager != contract.OperatorName && !strings.HasPrefix(manager, "kubectl")
}

// OwnerOf is the manager that owns a condition by an apply that was a conflict; empty: none does, or a person's tool.
func OwnerOf(conflict error, condition string) string {
	var status apierrors.APIStatus
	if !errors.As(conflict, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		_, rest, _ := strings.Cut(cause.Message, `conflict with "`)
		manager, _, quoted := strings.Cut(rest, `"`)
		if quoted && strings.Contains(cause.Field, fmt.Sprintf("%q", condition)) && IsOther(manager) {
			return manager
		}
	}
	return ""
}
