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

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// RequestTimeout bounds the requests for one object, or one write of a status, so that a hanging request does not
// delay others for longer. It exceeds the default timeout of webhooks, 10 s: one with failurePolicy Ignore only
// delays a request.
const RequestTimeout = 15 * time.Second

// ApplyStatus applies conditions and other fields as the operator's part of an object's status, and returns the
// object. It removes what the operator applied before and does not apply now. Without force, a field that another
// manager owns with another value is a conflict. It adds the conditions to fields.
func ApplyStatus(ctx context.Context, client dynamic.Interface, to contract.Resource,
	conditions map[string]operatorstatus.Condition, fields map[string]any, force bool,
) (*unstructured.Unstructured, error) {
	if len(conditions) > 0 {
		byType := func(a, b operatorstatus.Condition) int { return strings.Compare(a.Type, b.Type) }
		fields["conditions"] = slices.SortedFunc(maps.Values(conditions), byType)
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	o, err := client.Resource(to.GVR()).Patch(ctx, to.Name, types.ApplyPatchType, contract.Body(to.WithStatus(fields)),
		metav1.PatchOptions{FieldManager: contract.OperatorName, Force: &force}, "status")
	if err != nil {
		return nil, fmt.Errorf("apply the status of %s: %w", to, err)
	}
	return o, nil
}

// IsOther reports whether a field manager is neither the operator nor kubectl, which people use.
func IsOther(manager string) bool {
	return manager != contract.OperatorName && !strings.HasPrefix(manager, "kubectl")
}

// OwnerOf returns the manager that owns a condition, by the conflict that an apply had; empty: none, or kubectl.
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
