//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

var (
	cutsSeed = flag.Uint64("cuts-seed", 1, "what the moments of the power cuts are drawn with")
	cuts     = flag.Int("cuts", 0, "power cuts of each kind; 0: 5, with -short 1")
)

// change is one of which the power cut is in the middle: steps that an operator of
// OpenShift repeats until they succeed.
type change struct {
	name   string
	length time.Duration // without a power cut, about
	steps  []func(context.Context) error
	ended  func() error // has nothing against the state in which it must end
}

// The power is cut at a random moment of each change. Everything ends as without it. In
// every second case the plugin is unhealthy for a time after the power is back.
func testPowerCuts(t *testing.T) {
	h := newScenario(t, false)
	if shared.on {
		t.Fatal("KMS is on: this test turns it on itself")
	}
	h.must(h.Configure(h.ctx, kubeOnly))
	h.must(h.AwaitOperator(h.ctx))
	rounds := *cuts
	if rounds == 0 {
		rounds = 5
		if testing.Short() {
			rounds = 1
		}
	}
	random := rand.New(rand.NewPCG(*cutsSeed, 0))
	t.Logf("seed %d, %d power cuts of each kind", *cutsSeed, rounds)
	for range rounds {
		for i, c := range h.powerCutChanges() {
			h.cutDuring(c, time.Duration(random.Int64N(int64(c.length))), (random.IntN(2)+i)%2 == 0)
		}
		h.must(h.Configure(h.ctx, kubeOnly))
	}
}

func (h *scenario) powerCutChanges() []change {
	roll := func(encryption string, plugins ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			return h.Roll(ctx, fixture.Roll{Encryption: encryption, Plugins: plugins})
		}
	}
	slower := strings.Replace(kubeOnly, "probe: {interval: 1s}", "probe: {interval: 2s}", 1)
	reported := func(keys ...string) func() error {
		return func() error {
			s, err := h.Now(h.ctx, apiservers.Kube)
			if err != nil {
				return err
			}
			_, err = h.companion()
			others, _, unencrypted := h.Unencrypted(h.ctx, "k8s:enc:kms:v2:"+keys[0]+"_")
			if len(others) > 0 {
				unencrypted = fmt.Errorf("not encrypted with key %s: %q", keys[0], others)
			}
			return errors.Join(err, unencrypted, s.Healthy(), s.SameKeys(h.node().Name, keys...), s.Fresh(h.node().Name, time.Now().Add(-10*interval)))
		}
	}
	return []change{
		{"first enablement", 45 * time.Second, []func(context.Context) error{
			roll(apiservers.Encryption("identity", "1"), "1"), roll(apiservers.Encryption("1", "identity"), "1"), h.WriteAnew,
		}, reported("1")},
		{"key migration", 75 * time.Second, []func(context.Context) error{
			roll(apiservers.Encryption("1", "2", "identity"), "1", "2"), roll(apiservers.Encryption("2", "1", "identity"), "1", "2"), h.WriteAnew,
			roll(apiservers.Encryption("2", "identity"), "2"),
		}, reported("2")},
		{"another interval", 5 * time.Second, []func(context.Context) error{
			func(ctx context.Context) error { return h.Configure(ctx, slower) },
		}, func() error {
			line, err := h.lastLogged(reporterLogs(apiservers.Kube), `"Configuration active"`)
			if err == nil && !strings.Contains(line.text, `interval="2s"`) {
				err = errors.New(line.text)
			}
			return errors.Join(err, reported("2")())
		}},
		{"removal", 60 * time.Second, []func(context.Context) error{
			roll(apiservers.Encryption("identity", "2"), "2"), h.WriteAnew, roll(""),
		}, func() error { return errors.Join(h.nothingLeft(), h.nothingLeftOnNode()) }},
	}
}

func (h *scenario) cutDuring(c change, after time.Duration, unhealthy bool) {
	h.t.Helper()
	name := fmt.Sprintf("%s, cut after %.1f s, plugin healthy after it: %t", c.name, after.Seconds(), !unhealthy)
	h.t.Log(name)
	ctx, cancel := context.WithTimeout(h.ctx, 10*time.Minute)
	defer cancel()
	changed := make(chan error, 1)
	start := time.Now()
	go func() { changed <- repeat(ctx, c.steps) }()
	time.Sleep(after)
	keys := []string{"1", "2"}
	if unhealthy {
		for _, key := range keys {
			h.must(h.FaultsAtStart(key, sealed[0]))
		}
	}
	h.must(h.node().PowerCut())
	on := time.Now()
	h.must(h.node().PowerOn(h.ctx))
	h.awaitAnswers()
	if unhealthy {
		time.Sleep(15 * interval)
		for _, key := range keys {
			h.must(h.FaultsAtStart(key))
		}
		healed := time.Now()
		for _, key := range keys {
			// Which of them run is up to the moment of the power cut.
			if p, err := h.Plugin(h.node(), key); err == nil {
				_, _ = p.Do(h.ctx, "heal")
			}
		}
		h.truthful(on, healed)
	} else {
		defer h.neverDegraded(apiservers.Kube, name, on)
	}
	if err := <-changed; err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	h.await(4*time.Minute, name+": everything is as without the power cut", c.ended)
	times.took("power cuts", name, time.Since(start), noTime, "")
}

// repeat makes each step, again and again until it succeeds.
func repeat(ctx context.Context, steps []func(context.Context) error) error {
	for _, step := range steps {
		for {
			err := step(ctx)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// neverDegraded requires that no plugin was reported as unhealthy since a time.
func (h *scenario) neverDegraded(server apiservers.Server, name string, since time.Time) {
	h.t.Helper()
	for _, s := range h.seen.States(server, since) {
		if c := s.Conditions[contract.PluginsDegraded]; c.Status == operatorcr.True {
			h.t.Errorf("%s: %s after it began, KMSPluginsDegraded of %s is True: %s", name, s.At.Sub(since).Round(time.Millisecond), server.Name, c.Message)
			return
		}
	}
}
