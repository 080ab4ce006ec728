package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
)

// Interval is that of the probes.
const Interval = time.Second

// Configuration is the operator's: a probe every second, and each way to deliver.
const Configuration = `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe: {interval: 1s}
targets:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
  serving: {address: 127.0.0.1:9180}
- name: openshift-apiserver
  resource: openshiftapiservers
  namespace: openshift-apiserver
  podSelector: {apiserver: "true"}
  container: openshift-apiserver
  delivery: Deployment
  deployment: apiserver
- name: oauth-apiserver
  resource: authentications
  namespace: openshift-oauth-apiserver
  podSelector: {apiserver: "true"}
  container: oauth-apiserver
`

// State is an operator resource at some time.
type State struct {
	At         time.Time // when we saw it, some milliseconds after the write
	Server     apiservers.Server
	Conditions map[string]rollup.Condition
	Reports    map[string][]health.Entry // by node
}

// readState reads an operator resource, in JSON.
func readState(raw []byte, server apiservers.Server) (State, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return State{}, err
	}
	state := State{At: time.Now(), Server: server, Conditions: rollup.ReadConditions(object), Reports: map[string][]health.Entry{}}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		kind, _ := condition["type"].(string)
		message, _ := condition["message"].(string)
		if node, ours := health.NodeOf(kind); ours {
			entries, err := health.DecodeMessage(message)
			if err != nil {
				return State{}, fmt.Errorf("%s: %w", kind, err)
			}
			state.Reports[node] = entries
		}
	}
	return state, nil
}

// Now reads an operator resource in etcd.
func (s *Stage) Now(ctx context.Context, server apiservers.Server) (State, error) {
	found, err := s.Etcd(ctx, "/registry/operator.openshift.io/"+server.Resource+"/")
	if err != nil {
		return State{}, err
	}
	if len(found) != 1 {
		return State{}, fmt.Errorf("%d objects of %s", len(found), server.Resource)
	}
	return readState(found[0].Value, server)
}

// Healthy has nothing against a state in which every plugin is healthy, on all nodes.
func (s State) Healthy() error {
	return errors.Join(
		s.Is(rollup.Degraded, "False", rollup.AsExpected),
		s.Is(rollup.Observed, "True", rollup.AsExpected),
		s.Is(rollup.WriteKeyAgreed, "True", rollup.AsExpected),
		s.Is("KMSHealthDelivery", "True", ""),
	)
}

// Is has nothing against a condition of this status, and of this reason where one is
// given.
func (s State) Is(condition, status, reason string) error {
	c, found := s.Conditions[condition]
	if !found {
		return fmt.Errorf("%s: %s is missing", s.Server.Resource, condition)
	}
	if c.Status != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("%s: %s is %s (%s): %s; wanted %s (%s)", s.Server.Resource, condition, c.Status, c.Reason, c.Message, status, reason)
	}
	return nil
}

// Fresh has nothing against a node's reports that were all checked after a time, which
// a report tells to the second.
func (s State) Fresh(node string, after time.Time) error {
	entries, found := s.Reports[node]
	if !found {
		return fmt.Errorf("%s: no report of %s", s.Server.Resource, node)
	}
	for _, e := range entries {
		if e.LastChecked.Before(after.Truncate(time.Second)) {
			return fmt.Errorf("%s: key %s was last checked %s", s.Server.Resource, e.KeyID, e.LastChecked.Format(time.TimeOnly))
		}
	}
	return nil
}

// SameKeys has nothing against a report of a node with just these keys, in this order.
func (s State) SameKeys(node string, keys ...string) error {
	var reported []string
	for _, e := range s.Reports[node] {
		reported = append(reported, e.KeyID)
	}
	if !slices.Equal(reported, keys) {
		return fmt.Errorf("%s reports keys %q, want %q", node, reported, keys)
	}
	return nil
}

// AwaitHealthy waits until all is well with these API servers.
func (s *Stage) AwaitHealthy(ctx context.Context, servers ...apiservers.Server) error {
	for _, server := range servers {
		err := Eventually(ctx, 2*time.Minute, server.Name+" is healthy", func(ctx context.Context) error {
			state, err := s.Now(ctx, server)
			if err != nil {
				return err
			}
			return state.Healthy()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TurnOn turns KMS on for everything, as OpenShift does: with a key that only reads
// first. It returns when all is well.
func (s *Stage) TurnOn(ctx context.Context) error {
	for _, providers := range [][]string{{"identity", "1"}, {"1", "identity"}} {
		if err := s.Roll(ctx, Roll{Encryption: apiservers.Encryption(providers...), Plugins: []string{"1"}}); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{s.WriteAnew, s.Aggregate, s.AggregateOnHost} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.say("KMS is on")
	return s.AwaitHealthy(ctx, apiservers.All...)
}
