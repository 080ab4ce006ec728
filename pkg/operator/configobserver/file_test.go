package configobserver

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

const valid = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"

// keys are the enqueued keys.
type keys []string

func (k *keys) Enqueue(name string) { *k = append(*k, name) }

func newTestFile() (f *File, events, enqueued *keys) {
	events, enqueued = &keys{}, &keys{}
	return NewFile(FileOptions{
		Path: "config.yaml", Image: "reporter:1", Valid: prometheus.NewGauge(prometheus.GaugeOpts{Name: "valid"}),
		Event: func(about, eventType, reason, message string) {
			events.Enqueue(strings.Join([]string{about, eventType, reason, message}, " "))
		},
		Enqueue: []informers.Key{{Queue: enqueued, Name: "all"}},
	}), events, enqueued
}

// On a cluster without ClusterOperators only the Event shows the error. A replica that waits for the Lease has the same
// file, and reports nothing until it leads.
func TestRejectedFileIsAnEventOfTheReplicaThatLeads(t *testing.T) {
	f, events, _ := newTestFile()
	want := func(n int, about string) {
		t.Helper()
		got := *events
		if len(got) != n {
			t.Fatalf("got %d events, want %d: %q", len(got), n, got)
		}
		if n > 0 && (!strings.HasPrefix(got[n-1], "configuration Warning ConfigurationInvalid ") ||
			!strings.Contains(got[n-1], about)) {
			t.Errorf("got %q, want one about %q", got[n-1], about)
		}
	}
	f.observe(filewatch.Content{Data: []byte(valid + "intervall: 1s")})
	want(0, "")
	f.Lead(true)
	want(1, "intervall")
	f.observe(filewatch.Content{Data: []byte(valid + "managementstate: Removed")})
	want(2, "managementstate")
	f.observe(filewatch.Content{Data: []byte(valid + "managementstate: Removed")})
	want(2, "managementstate")
	f.Lead(false)
	f.observe(filewatch.Content{Data: []byte(valid + "intervall: 1s")})
	want(2, "managementstate")
}

func TestLastValidFileStaysActive(t *testing.T) {
	f, _, enqueued := newTestFile()
	if f.Current() != nil || f.Problem() != "" {
		t.Errorf("got %v, %q before the first file", f.Current(), f.Problem())
	}
	f.observe(filewatch.Content{Data: []byte(valid + "managementState: Unmanaged\napiServers: []")})
	f.observe(filewatch.Content{Data: []byte(valid + "managementstate: Removed")})
	if got := f.Current(); got == nil || got.ManagementState != "Unmanaged" {
		t.Errorf("got %+v, want the valid one", got)
	}
	if f.Problem() == "" || testutil.ToFloat64(f.Valid) != 0 {
		t.Errorf("got %q and %v, want a problem and 0", f.Problem(), testutil.ToFloat64(f.Valid))
	}
	f.observe(filewatch.Content{Data: []byte(valid + "apiServers: []")})
	if f.Problem() != "" || testutil.ToFloat64(f.Valid) != 1 || len(*enqueued) != 3 {
		t.Errorf("got %q, %v and %q, want no problem, 1 and three keys", f.Problem(), testutil.ToFloat64(f.Valid), *enqueued)
	}
}
