//go:build e2e

// Package e2e runs kms-health on real clusters: package cluster has the cluster, package
// fixture what is on it. Each Test function has a cluster of its own, and its parts run on it
// one after another.
package e2e

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
)

const (
	root    = "../.." // of the checkout
	logsDir = root + "/.logs/e2e"
)

// times is how long things took.
var times []string

func TestMain(m *testing.M) {
	code := m.Run()
	text := strings.Join(times, "\n") + "\n"
	fmt.Print(text)
	if err := os.MkdirAll(logsDir, 0o755); err == nil {
		_ = os.WriteFile(filepath.Join(logsDir, "times.txt"), []byte(text), 0o644)
	}
	os.Exit(code)
}

// atOnce bounds what waits for no interval. The benchmark measures how long it takes; on a busy
// machine that is more.
const atOnce = interval * 9 / 10

// waitLimit bounds what waits for others and measures nothing. A kubelet starts a pod up to 2 minutes after its API
// server is back: of restarts within 2 minutes of each other, its informers wait 30 to 60 s before they ask again, and
// the first request may come too early (client-go's defaultBackoffMax, Jitter and Reset); 98 s were seen. So do the
// informers of API servers and of kube-controller-manager. kube-apiserver reads its certificate each minute.
const waitLimit = 5 * time.Minute

// retryBound is less than the 10 s after which a write that cannot succeed soon is tried again: what took no longer
// was tried again after 2 s, or at once, and the rest was a busy machine.
const retryBound = 8 * time.Second

// took notes how long something took, and fails the test where that is more than a bound; 0: there is none.
func (h *scenario) took(what string, took, bound time.Duration) {
	h.t.Helper()
	line := fmt.Sprintf("%s: %s: %s", h.t.Name(), what, took.Round(time.Millisecond))
	if bound > 0 {
		line += " of at most " + bound.String()
	}
	times = append(times, line)
	if bound > 0 && took > bound {
		h.t.Error(line)
	}
}

// start starts a cluster of this checkout's kms-health with an operator's configuration, KMS off, which
// ends with the test, and by Ctrl-C.
func start(t *testing.T, nodes int, config string) *scenario {
	t.Helper()
	return startWith(t, cluster.Options{Nodes: nodes, Ahead: ahead}, config)
}

func startWith(t *testing.T, o cluster.Options, config string) *scenario {
	t.Helper()
	o.Assets, o.Log = os.Getenv("KUBEBUILDER_ASSETS"), os.Stderr
	s, err := fixture.New(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
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

// ends stops a cluster with the test, and by Ctrl-C.
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
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// part is one of a test. A long one is left to the full run.
type part struct {
	name string
	run  func(*scenario)
	long bool
}

// parts runs parts in their order, and keeps the logs of those that fail. Each of a chain begins with the
// state in which the previous one ended.
func (h *scenario) parts(chain bool, all ...part) {
	for _, p := range all {
		if p.long && testing.Short() {
			continue
		}
		if good := h.t.Run(p.name, func(t *testing.T) { p.run(h.sub(t)) }); chain && !good {
			return
		}
	}
}

// TestSingleNode runs what leaves the cluster as it found it, with KMS on: one part alone turns it on
// itself, -run TestSingleNode/plugin. The first turns it on, and the last off.
func TestSingleNode(t *testing.T) {
	h := start(t, 1, fixture.Configuration)
	on := func(run func(*scenario)) func(*scenario) {
		return func(h *scenario) {
			if h.state.broken != "" {
				h.t.Skipf("%s left the cluster in an unknown state", h.state.broken)
			}
			if !h.state.on {
				h.must(h.TurnOn(h.ctx))
				h.state.on = true
			}
			h.awaitHealthy()
			run(h)
		}
	}
	h.parts(false,
		part{name: "KMS turned on", run: testKMSTurnedOn},
		part{name: "plugin unhealthy", run: on(testPluginUnhealthy)},
		part{name: "commands of pages and of status", run: on(testCommands)},
		part{name: "restarts while a plugin is unhealthy", run: on(testRestartsWhilePluginUnhealthy)},
		part{name: "node rebooted while the plugin is unhealthy", run: on(testNodeRebooted)},
		part{name: "key migration", run: on(testKeyMigration)},
		part{name: "API server down", run: on(testAPIServerDown)},
		part{name: "manifest moved away and back", run: on(testManifestMovedAwayAndBack)},
		part{name: "reporter cut off", run: on(testReporterCutOff), long: true},
		part{name: "reporter does no harm", run: on(testReporterDoesNoHarm)},
		part{name: "credential rotation", run: on(testCredentialRotation)},
		part{name: "operator killed in each step", run: on(testOperatorKilledInEachStep), long: true},
		part{name: "upgrade and back", run: on(testUpgradeAndBack), long: true},
		part{name: "KMS turned off", run: on(testKMSTurnedOff)},
	)
}

// TestThreeNodes has three control-plane nodes, with a companion each and an operator of two replicas.
func TestThreeNodes(t *testing.T) {
	start(t, 3, kubeOnly).parts(true,
		part{name: "turned on", run: testThreeOn},
		part{name: "leader killed", run: testLeaderKilled},
		part{name: "network cut", run: testNetworkCut, long: true},
		part{name: "node replaced", run: testNodeReplaced},
		part{name: "API server of one node held", run: testAPIServerOfOneNodeHeld},
		part{name: "node drained", run: testNodeDrained},
	)
}
