package probe

import (
	"context"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// trip makes a round trip after a probe that must find the plugin healthy.
func trip(t *testing.T, p *Plugin, s Settings) Trip {
	t.Helper()
	r := ask(t, p, s)
	if r.Status != health.Healthy {
		t.Fatalf("Status: %+v", r)
	}
	return p.RoundTrip(t.Context(), s, r.KEKID)
}

func healthyTrip(made Trip) bool { return made.Made && made.Status == health.Healthy }

func TestReadPluginEncryptsOnceAndDecryptsThatSample(t *testing.T) {
	real := start(t, "refuse-encrypt")
	plugin := probed(t, real.Endpoint())
	reads := Settings{Timeout: generous}
	for range 3 {
		if made := trip(t, plugin, reads); made.Made {
			t.Fatalf("a reader that does not encrypt: %+v", made)
		}
	}
	if e, d := real.Calls(kmsplugin.CallEncrypt).Count, real.Calls(kmsplugin.CallDecrypt).Count; e != 1 || d != 0 {
		t.Fatalf("%d Encrypt and %d Decrypt calls", e, d)
	}

	// Under another key it has to encrypt again.
	if err := real.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	if _, err := real.Rotate(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if made := trip(t, plugin, reads); !healthyTrip(made) {
			t.Fatalf("a reader that encrypts: %+v", made)
		}
	}
	if e, d := real.Calls(kmsplugin.CallEncrypt).Count, real.Calls(kmsplugin.CallDecrypt).Count; e != 2 || d != 3 {
		t.Errorf("%d Encrypt and %d Decrypt calls", e, d)
	}

	// Only samples of a former key exist.
	set(t, real, "refuse-encrypt")
	if _, err := real.Rotate(); err != nil {
		t.Fatal(err)
	}
	if made := trip(t, plugin, reads); !healthyTrip(made) {
		t.Errorf("with a sample under the key before: %+v", made)
	}
	set(t, real, "refuse-decrypt")
	if made := trip(t, plugin, reads); made.Status != health.Unhealthy || made.Reason != health.PermissionDenied {
		t.Errorf("a reader that may not decrypt: %+v", made)
	}
}

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
		if made.Reason != health.RoundTripMismatch || !strings.HasPrefix(made.Detail, "what was encrypted at 2") {
			t.Errorf("%+v", made)
		}
	}
	// Under a new key id there is no earlier sample.
	if _, err := real.Rotate(); err != nil {
		t.Fatal(err)
	}
	if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
		t.Errorf("%+v", made)
	}
}

func TestSamplesOfFourKeysAreKept(t *testing.T) {
	real := start(t)
	plugin := probed(t, real.Endpoint())
	for range 10 {
		if made := trip(t, plugin, writer(generous)); !healthyTrip(made) {
			t.Fatalf("%+v", made)
		}
		if _, err := real.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(plugin.samples.byKey); n != maxKeys || len(plugin.samples.keys) != maxKeys {
		t.Errorf("samples of %d keys", n)
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
	if r := ask(t, plugin, writer(generous)); r.Status != health.Healthy {
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
	if made := <-trips; made.Made {
		t.Errorf("%+v", made)
	}
}

func TestReadPluginWhoseEncryptGotNoAnswerEncryptsAgain(t *testing.T) {
	real := start(t, "hang encrypt")
	plugin := probed(t, real.Endpoint())
	if made := trip(t, plugin, Settings{Timeout: short}); made.Made {
		t.Fatalf("%+v", made)
	}
	if err := real.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	if made := trip(t, plugin, Settings{Timeout: generous}); !healthyTrip(made) {
		t.Errorf("%+v", made)
	}
}

// A plugin that ends cancels its calls, and some return that code to their client.
func TestReadPluginThatEndedDuringEncryptEncryptsAgain(t *testing.T) {
	real := start(t, "refuse-encrypt Canceled context canceled")
	plugin := probed(t, real.Endpoint())
	reads := Settings{Timeout: generous}
	if made := trip(t, plugin, reads); made.Made {
		t.Fatalf("%+v", made)
	}
	for _, restart := range []func() error{real.Crash, real.ClearFaults} {
		if err := restart(); err != nil {
			t.Fatal(err)
		}
	}
	if made := trip(t, plugin, reads); !healthyTrip(made) {
		t.Errorf("%+v", made)
	}
}
