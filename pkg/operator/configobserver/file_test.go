package configobserver

import (
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

func TestLastValidFileStaysActive(t *testing.T) {
	enqueued := keys{}
	f := &File{Path: "config.yaml", Image: "reporter:1",
		Valid: prometheus.NewGauge(prometheus.GaugeOpts{Name: "valid"}), Enqueue: []informers.Key{{Queue: &enqueued}}}
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
	if f.Problem() != "" || testutil.ToFloat64(f.Valid) != 1 || len(enqueued) != 3 {
		t.Errorf("got %q, %v and %q, want no problem, 1 and three keys", f.Problem(), testutil.ToFloat64(f.Valid), enqueued)
	}
}
