package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/test/controlplane"
)

// secretRole is what the operator keeps of a target while KMS is off: it lets it
// go on looking.
const secretRole = "kms-health-operator-kube-apiserver"

// kinds are all that the operator makes.
var kinds = []string{
	"pods", "configmaps", "secrets", "serviceaccounts", "daemonsets", "roles", "clusterroles", "clusterrolebindings",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings",
}

// onlyLeft waits until nothing is left of the operator's but this. It asks for
// every kind there is, whether we know that the operator makes it or not.
func (s *stage) onlyLeft(want ...string) error {
	return s.until("left of the operator's: "+orDash(strings.Join(want, ", ")), func() error {
		left, err := s.traces()
		if err == nil && !slices.Equal(left, want) {
			err = errors.New("there are " + orDash(strings.Join(left, ", ")))
		}
		return err
	})
}

// traces are what the operator has made, and has written into objects of others.
// Events are the record of that, and stay.
func (s *stage) traces() ([]string, error) {
	lists, err := s.kube.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			// Its own state, on an object that came with the manifests, stays as well.
			if r.Name == "events" || r.Name == controlplane.ClusterOperators || !slices.Contains(r.Verbs, "list") {
				continue
			}
			objects, err := s.client.Resource(version.WithResource(r.Name)).List(s.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for i := range objects.Items {
				if o := &objects.Items[i]; isOperators(o) {
					found = append(found, r.Name+" "+o.GetName())
				}
			}
		}
	}
	return found, nil
}

func isOperators(o *unstructured.Unstructured) bool {
	label, value, _ := strings.Cut(managed, "=")
	return o.GetLabels()[label] == value || slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return strings.HasPrefix(f.Manager, "kms-health-operator")
	})
}
