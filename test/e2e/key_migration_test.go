//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// migrateTo migrates kube-apiserver to another key in OpenShift's steps: the new key first reads, then writes.
// Everything is written again, and the old key is removed. rolled is called after each rollout, with its keys.
func (h *scenario) migrateTo(next string, rolled func(keys ...string)) {
	old := h.state.writeKey
	for _, keys := range [][]string{{old, next}, {next, old}, {next}} {
		if len(keys) == 1 {
			h.must(h.WriteAnew(h.ctx))
		}
		h.must(h.Roll(h.ctx, fixture.Roll{Encryption: apiservers.Encryption(append(slices.Clone(keys), "identity")...),
			Plugins: keys, Pause: 12 * time.Second}))
		rolled(keys...)
	}
	h.state.writeKey = next
}

func testKeyMigration(h *scenario) {
	next := map[string]string{"1": "2", "2": "1"}[h.state.writeKey]
	start := time.Now()
	deployments := h.generation()
	h.migrateTo(next, h.awaitKeys)
	h.awaitHealthy()
	h.noLongAlarm(start)
	h.always(apiservers.Kube, start, func(s fixture.State) error {
		var errs []error
		// A kubelet deletes a mirror pod before it creates the next one. It may start the companion so late that the excuse
		// after a restart has ended.
		if s.Is(contract.PluginsDegraded, "False", contract.NoPods) != nil &&
			s.Is(contract.PluginsDegraded, "False", contract.Progressing) != nil {
			errs = append(errs, asExpected(s))
		}
		for node, entries := range s.Reports {
			for _, e := range entries {
				// Plugins remove their sockets before their pod has ended. The roll-up excuses such reports.
				if e.Status != contract.Healthy && e.Reason != contract.SocketMissing {
					errs = append(errs, fmt.Errorf("%s: key %s is %s: %s", node, e.KeyID, e.Status, e.Detail))
				}
			}
		}
		return errors.Join(errs...)
	})
	companions := h.created(fixture.Home, start)
	if companions != 3 {
		h.t.Errorf("%d companions were made, want one for each rollout of kube-apiserver", companions)
	}
	if now := h.generation(); now != deployments {
		h.t.Errorf("the Deployment of openshift-apiserver is of generation %d, was %d: its plugins did not change", now,
			deployments)
	}
}

// awaitKeys waits until the node's report has these keys, the write key first, and everything is healthy.
func (h *scenario) awaitKeys(keys ...string) {
	h.await(waitLimit, "the report has the new keys", func() error {
		s := h.now(apiservers.Kube)
		if err := s.Healthy(); err != nil {
			return err
		}
		return s.SameKeys(h.node().Name, keys...)
	})
}

// generation returns the generation of openshift-apiserver's Deployment.
func (h *scenario) generation() int64 {
	d, err := h.Kube.AppsV1().Deployments(apiservers.OpenShift.Namespace).Get(h.ctx, "apiserver", metav1.GetOptions{})
	h.must(err)
	return d.Generation
}

// created counts the pods created in a namespace since a time, including deleted ones, by the audit log.
func (h *scenario) created(namespace string, since time.Time) int {
	events, err := h.node().Audit(since)
	h.must(err)
	n := 0
	for _, e := range events {
		if e.ObjectRef != nil && e.ObjectRef.Resource == string(corev1.ResourcePods) && e.ObjectRef.Namespace == namespace &&
			e.ObjectRef.Subresource == "" && e.ResponseStatus != nil && e.ResponseStatus.Code == 201 {
			n++
		}
	}
	return n
}
