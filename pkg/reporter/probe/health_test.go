package probe

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

func TestTimeoutIsDiagnosed(t *testing.T) {
	for fault, want := range map[string]string{
		"hang":     "gRPC health is answered, so the process works: it probably waits for its KMS. For the cause see the plugin's log, or run kms-health-reporter --once in the reporter's pod with a longer timeout",
		"hang all": "gRPC health gets no answer either: the process hangs",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel() // it waits
			real := start(t)
			set(t, real, fault)
			plugin := probed(t, real.Endpoint())
			s, began := Settings{Timeout: short}, time.Now()
			r := ask(t, plugin, s)
			want := "Status: no answer within 300ms; " + want
			if r.Status != contract.Error || r.Reason != contract.Timeout || r.KEKID != "" || r.Detail != want {
				t.Errorf("%+v, want %q", r, want)
			}
			// The time of the result is that of the timeout, not of its diagnosis.
			if after := r.At.Sub(began); after < short || r.Took < short || time.Since(r.At) < short && fault == "hang all" {
				t.Errorf("at %s, took %s", after, r.Took)
			}
			if err := real.ClearFaults(); err != nil {
				t.Fatal(err)
			}
			if r := ask(t, plugin, Settings{Timeout: generous}); r.Status != contract.Healthy || r.Detail != "" {
				t.Errorf("after the fault: %+v", r)
			}
		})
	}
}
