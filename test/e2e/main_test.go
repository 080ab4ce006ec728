//go:build e2e

// Package e2e runs kms-health on real clusters. Package cluster makes the cluster, package fixture installs kms-health
// on it. Each Test function has its own cluster. Its parts run there one after another.
package e2e

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/must"
)

const (
	root    = "../.." // of the checkout
	logsDir = root + "/.logs/e2e"
)

// waitLimit bounds waits that measure nothing. A kubelet may start a pod up to 2 minutes after its API server is back;
// 98 s were seen. If restarts are less than 2 minutes apart, its informers wait 30 to 60 s before they retry, and the
// first retry may be too early (client-go's defaultBackoffMax, Jitter and Reset). The informers of API servers and of
// kube-controller-manager wait as long. kube-apiserver reads its certificate each minute.
const waitLimit = 5 * time.Minute

// retryBound is less than 10 s, after which a write that cannot succeed soon is retried. What took less was retried at
// once or after 2 s, on a busy machine.
const retryBound = 8 * time.Second

// took logs a duration, and fails the test if it is greater than bound.
func (h *scenario) took(what string, took, bound time.Duration) {
	h.t.Helper()
	log := h.t.Logf
	if took > bound {
		log = h.t.Errorf
	}
	log("%s: %s of at most %s", what, took.Round(time.Millisecond), bound)
}

// start starts a cluster with KMS off and, if there is a config, with this checkout's operator. The cluster ends with
// the test, or by Ctrl-C.
func start(t *testing.T, nodes int, config string) *scenario {
	return startWith(t, cluster.Options{Nodes: nodes, Ahead: ahead}, config)
}

func startWith(t *testing.T, o cluster.Options, config string) *scenario {
	o.Assets, o.Log = os.Getenv("KUBEBUILDER_ASSETS"), os.Stderr
	s, err := fixture.New(t.Context(), t.TempDir(), o)
	must.Succeed(t, err)
	ends(t, s.Stop)
	h := &scenario{Cluster: s, t: t, ctx: t.Context(), state: &state{writeKey: "1"}}
	h.seen, err = s.Observe(t.Context())
	h.must(err)
	t.Cleanup(func() {
		if err := h.seen.Close(); err != nil && !t.Failed() {
			t.Errorf("the observer missed something: %v", err)
		}
	})
	h.version, err = s.Build(t.Context(), "this", root)
	h.must(err)
	if config != "" {
		h.must(h.Install(h.ctx, h.version, config))
		h.must(h.AwaitOperator(h.ctx))
	}
	return h
}

// ends stops a cluster at the end of the test, or by Ctrl-C.
func ends(t *testing.T, stop func() error) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-interrupted
		fmt.Fprintln(os.Stderr, "interrupted: the cluster ends")
		_ = stop()
		os.Exit(130)
	}()
	t.Cleanup(func() {
		signal.Stop(interrupted)
		must.Succeed(t, stop())
	})
}

// inShort returns the first duration with -short, else the second.
func inShort(short, long time.Duration) time.Duration {
	if testing.Short() {
		return short
	}
	return long
}

// part is a part of a test. -short skips the long ones.
type part struct {
	name string
	run  func(*scenario)
	long bool
}

// parts runs parts in their order, until one fails: each part begins with the state in which the previous one ended.
// The logs of a failed one are kept.
func (h *scenario) parts(all ...part) {
	for _, p := range all {
		if p.long && testing.Short() {
			continue
		}
		if !h.t.Run(p.name, func(t *testing.T) { p.run(h.sub(t)) }) {
			return
		}
	}
}

// TestSingleNode runs parts that leave KMS on, except for the last one, which turns it off. A part can run alone, since
// it turns KMS on if that is off: -run TestSingleNode/plugin.
func TestSingleNode(t *testing.T) {
	h := start(t, 1, fixture.Configuration)
	on := func(run func(*scenario)) func(*scenario) {
		return func(h *scenario) {
			if !h.state.on {
				h.must(h.TurnOn(h.ctx))
				h.state.on = true
			}
			h.awaitHealthy()
			run(h)
		}
	}
	h.parts(
		part{name: "KMS turned on", run: testKMSTurnedOn},
		part{name: "plugin unhealthy", run: on(testPluginUnhealthy)},
		part{name: "commands of pages and of status", run: on(testCommands)},
		part{name: "node rebooted, with the plugin healthy or unhealthy", run: on(testNodeRebooted)},
		part{name: "key migration", run: on(testKeyMigration)},
		part{name: "API server down", run: on(testAPIServerDown)},
		part{name: "manifest moved away and back", run: on(testManifestMovedAwayAndBack)},
		part{name: "reporter does no harm", run: on(testReporterDoesNoHarm)},
		part{name: "credential rotation", run: on(testCredentialRotation)},
		part{name: "operator killed in each step", run: on(testOperatorKilledInEachStep), long: true},
		part{name: "upgrade and back", run: on(testUpgradeAndBack), long: true},
		part{name: "KMS turned off", run: on(testKMSTurnedOff)},
	)
}

// TestThreeNodes has three control-plane nodes, with a companion each and an operator of two replicas.
func TestThreeNodes(t *testing.T) {
	start(t, 3, kubeOnly).parts(
		part{name: "turned on", run: testThreeOn},
		part{name: "leader killed", run: testLeaderKilled},
		part{name: "network cut", run: testNetworkCut, long: true},
		part{name: "node replaced", run: testNodeReplaced},
		part{name: "API server of one node held", run: testAPIServerOfOneNodeHeld},
		part{name: "node drained", run: testNodeDrained},
	)
}
