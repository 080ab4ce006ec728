//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/stage"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const interval = time.Second

// configuration is the operator's: a probe every second, and each way to deliver.
const configuration = `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe: {interval: 1s}
targets:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
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

// house is a test's view of a stage.
type house struct {
	*stage.Stage
	t       *testing.T
	ctx     context.Context
	version *stage.Version
	seen    *stage.Observer
}

// shared is the single-node cluster that most tests use.
var shared struct {
	stage   *stage.Stage
	version *stage.Version
	on      bool // KMS was turned on
	broken  string
}

// newHouse returns the shared cluster with kms-health on it, and with KMS on unless
// a test is to do that.
func newHouse(t *testing.T, on bool) *house {
	t.Helper()
	if shared.broken != "" {
		t.Skipf("%s left the cluster in a state that nothing can be told by", shared.broken)
	}
	if shared.stage == nil {
		s, err := newStage(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		shared.stage = s
		if shared.version, err = s.Build(t.Context(), "this", root); err != nil {
			t.Fatal(err)
		}
		h := enter(t, s, shared.version)
		h.must(s.Install(t.Context(), shared.version, configuration))
		h.must(s.AwaitOperator(t.Context()))
		if on {
			h.turnOn()
			shared.on = true
		}
		return h
	}
	h := enter(t, shared.stage, shared.version)
	if on && !shared.on {
		h.turnOn()
		shared.on = true
	}
	return h
}

// enter is a test's view of a stage, which keeps its logs when the test fails.
func enter(t *testing.T, s *stage.Stage, v *stage.Version) *house {
	t.Helper()
	h := &house{Stage: s, t: t, ctx: t.Context(), version: v}
	var err error
	if h.seen, err = s.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.seen.Close(); err != nil && !errors.Is(err, context.Canceled) && !t.Failed() {
			t.Errorf("the observer missed something: %v", err)
		}
		if t.Failed() {
			keepLogs(t, s)
		}
	})
	return h
}

func keepLogs(t *testing.T, s *stage.Stage) {
	dir := filepath.Join(root, *logsDir, strings.ReplaceAll(t.Name(), "/", "_"))
	if err := errors.Join(os.RemoveAll(dir), s.KeepLogs(dir)); err != nil {
		t.Logf("keep the logs: %v", err)
	}
	t.Logf("the logs of all nodes are in %s", dir)
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) node() *cluster.Node { return h.Nodes()[0] }

// plugin is that of a key in the pod of the first node's kube-apiserver.
func (h *house) plugin(keyID string) *kmsplugin.Client {
	h.t.Helper()
	p, err := h.Plugin(h.node(), keyID)
	h.must(err)
	return p
}

func (h *house) do(p *kmsplugin.Client, name string, args ...string) {
	h.t.Helper()
	_, err := p.Do(h.ctx, name, args...)
	h.must(err)
}

// turnOn turns KMS on for everything, as OpenShift does: a key that only reads first.
func (h *house) turnOn() {
	h.t.Helper()
	h.must(h.Roll(h.ctx, stage.Roll{Encryption: apiservers.Encryption("identity", "1"), Plugins: []string{"1"}}))
	h.must(h.Roll(h.ctx, stage.Roll{Encryption: apiservers.Encryption("1", "identity"), Plugins: []string{"1"}}))
	h.must(h.WriteAnew(h.ctx))
	h.must(h.Aggregate(h.ctx))
	h.must(h.AggregateOnHost(h.ctx))
	h.awaitAllHealthy()
}

// now is the state of one resource, from etcd.
func (h *house) now(server apiservers.Server) stage.State {
	h.t.Helper()
	found, err := h.Etcd(h.ctx, "/registry/operator.openshift.io/"+server.Resource+"/")
	h.must(err)
	if len(found) != 1 {
		h.t.Fatalf("%d objects of %s", len(found), server.Resource)
	}
	state, err := stage.ReadState(found[0].Value)
	h.must(err)
	state.At, state.Server = time.Now(), server
	return state
}

// healthy has nothing against a state in which all plugins are healthy, everywhere.
func (h *house) healthy(s stage.State) error {
	return errors.Join(
		is(s, rollup.Degraded, "False", "AsExpected"),
		is(s, rollup.Observed, "True", "AsExpected"),
		is(s, rollup.WriteKeyAgreed, "True", "AsExpected"),
		is(s, "KMSHealthDelivery", "True", ""),
	)
}

// is has nothing against a condition of this status, and of this reason where one is
// given.
func is(s stage.State, condition, status, reason string) error {
	c, found := s.Conditions[condition]
	if !found {
		return fmt.Errorf("%s: %s is missing", s.Server.Resource, condition)
	}
	if string(c.Status) != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("%s: %s is %s (%s): %s; wanted %s (%s)", s.Server.Resource, condition, c.Status, c.Reason, c.Message, status, reason)
	}
	return nil
}

func (h *house) await(limit time.Duration, what string, check func() error) {
	h.t.Helper()
	h.must(stage.Eventually(h.ctx, limit, what, func(context.Context) error { return check() }))
}

// awaitHealthy waits until one API server's resource says that all is well.
func (h *house) awaitHealthy(server apiservers.Server) {
	h.t.Helper()
	h.await(2*time.Minute, server.Name+" is healthy", func() error { return h.healthy(h.now(server)) })
}

func (h *house) awaitAllHealthy() {
	h.t.Helper()
	for _, server := range apiservers.All {
		h.awaitHealthy(server)
	}
}
