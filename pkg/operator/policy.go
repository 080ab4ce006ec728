package operator

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/render"
)

// keepPolicy keeps the policy that bounds the reporters, before any of them is
// given a right.
func (o *Operator) keepPolicy(ctx context.Context, c *cluster) error {
	objects, err := render.Policy()
	if err != nil {
		return err
	}
	for _, p := range objects {
		live, _ := c.policies.Get("", p.GetName())
		if p.GetKind() != "ValidatingAdmissionPolicy" {
			live, _ = c.policyBinding.Get("", p.GetName())
		}
		outcome, _, err := o.executor.Applier.Apply(ctx, p, live)
		if err != nil {
			return err
		}
		switch outcome {
		case apply.Lagging:
			o.lookAgain(time.Second)
		case apply.Applied:
			o.executor.Event("all", "Applied", apply.Key(p))
		}
	}
	return nil
}

func (o *Operator) dropPolicy(ctx context.Context, c *cluster) error {
	var all []*unstructured.Unstructured
	for _, live := range slices.Concat(c.policyBinding.All(), c.policies.All()) {
		if live.GetLabels()["app.kubernetes.io/name"] == "kms-health-reporter" {
			all = append(all, live)
		}
	}
	for _, live := range all {
		deleted, err := o.executor.Applier.Delete(ctx, live)
		if err != nil {
			return err
		}
		if deleted {
			o.executor.Event("all", "Deleted", apply.Key(live))
		}
	}
	return nil
}
