//go:build integration

package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// revoke removes verbs on resources from every role that the operator ships with, and
// returns what gives them back, which is also done when the test ends. No verbs: all.
// What the operator already watches it goes on watching, so it must start afterwards.
func revoke(t *testing.T, verbs []string, resources ...string) (restore func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
	defer cancel()
	objects, err := install.Render(ctx, install.OpenShift, fixture.Components...)
	if err != nil {
		t.Fatal(err)
	}
	var whole, reduced []*unstructured.Unstructured
	var rights []authorizationv1.ResourceAttributes
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.Role{} // a ClusterRole's rules stand at the same place
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		rules, lost := withoutRights(role, verbs, resources)
		if len(lost) == 0 {
			continue
		}
		less := o.DeepCopy()
		less.Object["rules"] = rules
		whole, reduced, rights = append(whole, o), append(reduced, less), append(rights, lost...)
	}
	if len(rights) == 0 {
		t.Fatalf("no role has rights on %v", resources)
	}
	from := time.Now()
	change := func(to []*unstructured.Unstructured, allowed bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
		defer cancel()
		if err := install.Objects(ctx, fixture.Cluster.RESTConfig(), to...); err != nil {
			t.Fatal(err)
		}
		fixture.Eventually(t, fmt.Sprintf("the authorizer follows: %v allowed: %v", resources, allowed), func() error {
			for _, right := range rights {
				if is, err := operatorMay(ctx, right); err != nil || is != allowed {
					return errors.Join(err, fmt.Errorf("%+v: %v", right, is))
				}
			}
			return nil
		})
	}
	change(reduced, false)
	restored := false
	restore = func() {
		if restored {
			return
		}
		restored = true
		change(whole, true)
		until := time.Now()
		fixture.Excuse(func(e *auditv1.Event) bool {
			return e.StageTimestamp.After(from) && e.StageTimestamp.Time.Before(until.Add(time.Second))
		})
	}
	t.Cleanup(restore)
	return restore
}

// withoutRights returns the rules of a role without verbs on resources, and a right of
// each rule that became less.
func withoutRights(role *rbacv1.Role, verbs, resources []string) (rules []any, lost []authorizationv1.ResourceAttributes) {
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources { // one rule for each, which is the same
			less := rule
			less.Resources = []string{resource}
			if slices.Contains(resources, resource) {
				less.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return verbs == nil || slices.Contains(verbs, v) })
			}
			if len(less.Verbs) < len(rule.Verbs) {
				right := authorizationv1.ResourceAttributes{Namespace: role.Namespace, Group: rule.APIGroups[0], Resource: resource}
				for _, v := range rule.Verbs {
					if !slices.Contains(less.Verbs, v) {
						right.Verb = v
					}
				}
				if len(rule.ResourceNames) > 0 {
					right.Name = rule.ResourceNames[0]
				}
				lost = append(lost, right)
			}
			if len(less.Verbs) > 0 {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&less)
				if err != nil {
					panic(err) // nothing in it fails to convert
				}
				rules = append(rules, content)
			}
		}
	}
	return rules, lost
}

func operatorMay(ctx context.Context, right authorizationv1.ResourceAttributes) (bool, error) {
	answer, err := fixture.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: controlplane.ServiceAccountUser(fixture.Namespace, install.ServiceAccount), ResourceAttributes: &right,
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
