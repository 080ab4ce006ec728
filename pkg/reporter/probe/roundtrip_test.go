package probe

import (
	"context"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// trip makes a round trip after a probe that must find the plugin healthy.
func trip(t *testing.T, p *Plugin, s Settings) Trip {
	t.Helper()
	r := ask(t, p, s)
	if r.Status != contract.Healthy {
		t.Fatalf("Status: %+v", r)
	}
	return p.RoundTrip(t.Context(), s, r.KEKID)
}

func healthyTrip(made Trip) bool { return made.Made && made.Status == contract.Healthy }

func TestStatusThatLagsBehindARotationIsHealthy(t *testing.T) {
	real := start(t, "lagging-status")
	plugin := probed(t, real.Endpoint())
	if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
		t.Fatalf("%+v", made)
	}
	if _, err := real.Rotate(); err != nil {
		t.Fatal(err)
	}
	if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
		t.Errorf("Status names the former key, Encrypt the new one: %+v", made)
	}
}

func TestKeyReplacedUnderItsKeyIDIsDetectedByEveryLaterTrip(t *testing.T) {
	real := start(t)
	plugin := probed(t, real.Endpoint())
	for range 2 {
		if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
			t.Fatalf("%+v", made)
		}
	}
	set(t, real, "replaced-key")
	for range 2 {
		made := trip(t, plugin, writer(generous))
		if made.Reason != contract.RoundTripMismatch || !strings.HasPrefix(made.Detail, "what was encrypted at 2") {
			t.Errorf("%+v", made)
		}
	}
	// Nothing can have been encrypted again by the time at which the key id changes.
	if _, err := real.Rotate(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		made := trip(t, plugin, writer(generous))
		if made.Reason != contract.RoundTripMismatch || !strings.Contains(made.Detail, "under the former key_id ") {
			t.Errorf("%+v", made)
		}
	}
	if err := real.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
		t.Errorf("%+v", made)
	}
}

// What never could be decrypted shows nothing about what was written: it is not compared later.
func TestSampleThatNeverCouldBeDecryptedIsNotKept(t *testing.T) {
	real := start(t, "refuse-decrypt")
	plugin := probed(t, real.Endpoint())
	if made := trip(t, plugin, writer(generous)); made.Reason != contract.PermissionDenied {
		t.Fatalf("%+v", made)
	}
	if err := real.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	set(t, real, "replaced-key")
	if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
		t.Errorf("%+v", made)
	}
}

func TestTripNamesTheKeyIDThatStatusHasDuringIt(t *testing.T) {
	real := start(t)
	plugin := probed(t, real.Endpoint())
	before := ask(t, plugin, writer(generous)).KEKID
	after, err := real.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if made := plugin.RoundTrip(t.Context(), writer(generous), before); !healthyTrip(made) || made.KEKID != after {
		t.Errorf("%+v", made)
	}
	if made := plugin.RoundTrip(t.Context(), writer(generous), after); !healthyTrip(made) || made.KEKID != "" {
		t.Errorf("%+v", made)
	}
}

func TestRoundTripIsNotMadeWithoutAConnection(t *testing.T) {
	real := start(t, "crash")
	plugin := probed(t, real.Endpoint())
	if made := plugin.RoundTrip(t.Context(), writer(generous), ""); made.Made {
		t.Errorf("before the first probe: %+v", made)
	}
	ask(t, plugin, writer(generous))
	if made := plugin.RoundTrip(t.Context(), writer(generous), ""); made.Made {
		t.Errorf("to a plugin that is not there: %+v", made)
	}
}

// The next probe reports a lost connection; a round trip's verdict on it would be kept
// after the connection has recovered.
func TestConnectionLostDuringARoundTripIsNoVerdict(t *testing.T) {
	real := start(t, "hang encrypt")
	plugin := probed(t, real.Endpoint())
	if r := ask(t, plugin, writer(generous)); r.Status != contract.Healthy {
		t.Fatalf("%+v", r)
	}
	trips := make(chan Trip, 1)
	go func() { trips <- plugin.RoundTrip(context.Background(), writer(generous), real.KeyID()) }()
	if err := real.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, 1); err != nil {
		t.Fatal(err)
	}
	if err := real.Crash(); err != nil {
		t.Fatal(err)
	}
	if made := <-trips; made.Made || !strings.HasPrefix(made.Detail, "Encrypt: Unavailable: ") {
		t.Errorf("%+v", made)
	}
}
