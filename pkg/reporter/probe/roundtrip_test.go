package probe

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// trip makes a round trip after a probe that must find the plugin healthy.
func trip(t *testing.T, p *Plugin, kept ...*Sample) Trip {
	t.Helper()
	keyID := healthy(t, p)
	return p.RoundTrip(t.Context(), writer(generous), keyID, kept)
}

func healthyTrip(made Trip) bool {
	return made.Made && made.Status == contract.Healthy && made.Sealed != nil
}

func TestStatusThatLagsBehindARotationIsHealthy(t *testing.T) {
	real, plugin := startProbed(t, "lagging-status")
	if made := trip(t, plugin); !healthyTrip(made) {
		t.Fatalf("%+v", made)
	}
	_, err := real.Rotate()
	must.Succeed(t, err)
	if made := trip(t, plugin); !healthyTrip(made) {
		t.Errorf("Status names the former key, Encrypt the new one: %+v", made)
	}
}

// The verdict on new data is separate from the verdict on the kept sample.
func TestKeptSampleIsDecrypted(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  string // set after the sample was made
		rotate bool
		reason contract.Reason
		detail string
	}{
		"the same key": {"", false, "", ""},
		"a former key": {"", true, "", ""},
		"a key that was replaced under its key ID": {"replaced-key", false, contract.ReportedUnhealthy, "Decrypt: "},
		"a former key that was replaced":           {"replaced-key", true, contract.ReportedUnhealthy, "Decrypt: "},
		"a former key at which the process ends":   {"ends-at former-decrypt 1ms", true, contract.Unavailable, "Decrypt: Unavailable: "},
	} {
		t.Run(name, func(t *testing.T) {
			real, plugin := startProbed(t)
			first := trip(t, plugin)
			if !healthyTrip(first) || first.Kept != nil {
				t.Fatalf("%+v", first)
			}
			if tt.fault != "" {
				set(t, real, tt.fault)
			}
			if tt.rotate {
				_, err := real.Rotate()
				must.Succeed(t, err)
			}
			for range 2 {
				made := trip(t, plugin, first.Sealed)
				ended := tt.reason == contract.Unavailable
				if got := made.Kept[0]; !healthyTrip(made) || got.Sample != first.Sealed || got.Ended != ended || got.Reason != tt.reason ||
					!strings.HasPrefix(got.Detail, tt.detail) || (got.Detail == "") != (tt.detail == "") {
					t.Errorf("%+v", made)
				}
				if ended {
					wait.Eventually(t, generous, "the process returns", func() error {
						if got := ask(t, plugin, writer(generous)); got.Status != contract.Healthy {
							return fmt.Errorf("%+v", got)
						}
						return nil
					})
				}
			}
		})
	}
}

// A sample that could never be decrypted is useless for later checks.
func TestSampleThatNeverCouldBeDecryptedIsNotKept(t *testing.T) {
	_, plugin := startProbed(t, "refuse-decrypt")
	if made := trip(t, plugin); made.Reason != contract.PermissionDenied || made.Sealed != nil {
		t.Fatalf("%+v", made)
	}
}

func TestKeptSampleForWhichNoTimeIsLeftShowsNothing(t *testing.T) {
	t.Parallel() // it waits
	real, plugin := startProbed(t)
	ask(t, plugin, writer(generous))
	set(t, real, "slow 700ms encrypt decrypt")
	kept := []*Sample{{KeyID: "k"}}
	made := plugin.RoundTrip(t.Context(), Settings{Timeout: 5 * time.Second, Bound: 6 * time.Second}, real.KeyID(), kept)
	if !healthyTrip(made) || made.Kept != nil {
		t.Errorf("%+v", made)
	}
}

func TestTripNamesTheKeyIDThatStatusHasDuringIt(t *testing.T) {
	real, plugin := startProbed(t)
	before := ask(t, plugin, writer(generous)).KEKID
	after, err := real.Rotate()
	must.Succeed(t, err)
	if made := plugin.RoundTrip(t.Context(), writer(generous), before, nil); !healthyTrip(made) || made.KEKID != after {
		t.Errorf("%+v", made)
	}
	if made := plugin.RoundTrip(t.Context(), writer(generous), after, nil); !healthyTrip(made) || made.KEKID != after {
		t.Errorf("%+v", made)
	}
}

func TestRoundTripIsNotMadeWithoutAConnection(t *testing.T) {
	_, plugin := startProbed(t, "crash")
	if made := plugin.RoundTrip(t.Context(), writer(generous), "", nil); made.Made {
		t.Errorf("before the first probe: %+v", made)
	}
	ask(t, plugin, writer(generous))
	if made := plugin.RoundTrip(t.Context(), writer(generous), "", nil); made.Made {
		t.Errorf("to a plugin that is not there: %+v", made)
	}
}

// The next probe reports the lost connection. A verdict of the round trip would outlast the recovery.
func TestConnectionLostDuringARoundTripIsNoVerdict(t *testing.T) {
	real, plugin := startProbed(t, "hang encrypt")
	healthy(t, plugin)
	trips := make(chan Trip, 1)
	go func() { trips <- plugin.RoundTrip(context.Background(), writer(generous), real.KeyID(), nil) }()
	must.Succeed(t, real.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, 1))
	must.Succeed(t, real.Crash())
	if made := <-trips; made.Made || !strings.HasPrefix(made.Detail, "Encrypt: Unavailable: ") {
		t.Errorf("%+v", made)
	}
}
