package doctor

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// MetricsPrefix begins the names of kube-apiserver's metrics about KMS
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics).
const MetricsPrefix = "apiserver_envelope_encryption_"

const (
	callsMetric   = MetricsPrefix + "kms_operations_latency_seconds"
	invalidMetric = MetricsPrefix + "invalid_key_id_from_status_total"
	lastMetric    = MetricsPrefix + "key_id_hash_status_last_timestamp_seconds"
	usedMetric    = MetricsPrefix + "key_id_hash_last_timestamp_seconds"

	statusMethod = "/v2.KeyManagementService/Status"
)

// unanswered is how old the last answer of Status may be that kube-apiserver got: it asks
// every minute (k8s.io/apiserver/pkg/server/options/encryptionconfig).
const unanswered = 5 * time.Minute

// metrics checks the metrics of the API server that answered: its own calls of its plugins.
func (e *evaluation) metrics() []Finding {
	if !e.expected() {
		return nil
	}
	look := view.Step{Text: fmt.Sprintf("In the monitoring, look at %s by provider_name, method_name and grpc_status_code, at %s, and at %s, for each API server.", callsMetric, invalidMetric, lastMetric)}
	if e.KMSMetrics == nil {
		why, found := NotGathered, "the files have no metrics of kube-apiserver"
		if u := e.cannotRead(KMSMetrics, ""); u != nil {
			why = u.Why
		}
		if why != NotGathered {
			found = "the metrics of kube-apiserver could not be read"
		}
		if why == Forbidden {
			found = "no right to get /metrics of kube-apiserver"
		}
		next := []view.Step{look}
		if why == NotGathered {
			next = []view.Step{{Text: "Gather them, too: docs/operate/must-gather.md."}, look}
		}
		return []Finding{{Check: Metrics, Status: Unknown, Reason: string(why), Found: found, Next: next}}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(e.KMSMetrics))
	if err != nil {
		return []Finding{{Check: Metrics, Status: Unknown, Reason: string(Failed), Found: "the metrics of kube-apiserver could not be parsed", Next: []view.Step{look}}}
	}
	calls, failed, by := failures(families[callsMetric])
	var invalid float64
	for _, m := range families[invalidMetric].GetMetric() {
		invalid += m.GetCounter().GetValue()
	}
	f := Finding{Check: Metrics, Status: OK, Found: fmt.Sprintf("the API server that answered made %d calls of KMS plugins since it started, and none failed", calls)}
	switch {
	case failed > 0:
		f.Status, f.Reason = Warning, "CallsFailed"
		f.Found = fmt.Sprintf("of %d calls of KMS plugins by the API server that answered, since it started, %d failed: %s", calls, failed, list(by))
	case invalid > 0:
		f.Status, f.Reason = Warning, "InvalidKeyID"
		f.Found = fmt.Sprintf("the API server that answered got an invalid key_id from Status %.0f times since it started", invalid)
	case calls == 0:
		f.Found = "the API server that answered made no call of a KMS v2 plugin since it started"
	}
	switch {
	case f.Status == OK:
	case !e.recovered():
		f.Next = []view.Step{look}
	default: // the counters do not recover: they begin anew with the API server
		silent := e.silent(families)
		if len(silent) == 0 {
			f.Status, f.Reason = OK, ""
			f.Found += "; its plugins report healthy now"
			break
		}
		f.Reason = "NoAnswer"
		f.Found += "; " + list(silent) + ", though the reporters call its plugins healthy"
		f.Next = []view.Step{{Text: "On the node of that API server, compare the sockets of kube-apiserver and of the reporter: both must be the plugin's. A provider that the API server no longer has may be ignored."}, look}
	}
	return []Finding{f}
}

// recovered reports whether all plugins that kube-apiserver may call are healthy, by fresh
// reports.
func (e *evaluation) recovered() bool {
	healthy := false
	for i := range e.targets {
		status := e.targets[i].status
		if slices.Contains(contract.ResourceNames()[1:], status.Target) { // those of the other API servers
			continue
		}
		for _, p := range status.Plugins {
			if healthy = p.State == rollup.Healthy; !healthy {
				return false
			}
		}
	}
	return healthy
}

// silent are the providers whose Status failed, or gave an invalid key_id, and has not answered
// kube-apiserver since.
func (e *evaluation) silent(families map[string]*dto.MetricFamily) (all []string) {
	failed := map[string]bool{}
	for _, m := range families[callsMetric].GetMetric() {
		l := labelsOf(m)
		if l["method_name"] == statusMethod && failedCalls(m) > 0 {
			failed[l["provider_name"]] = true
		}
	}
	for _, m := range families[invalidMetric].GetMetric() {
		if m.GetCounter().GetValue() > 0 {
			failed[labelsOf(m)["provider_name"]] = true
		}
	}
	answered := map[string]float64{}
	for _, m := range families[lastMetric].GetMetric() {
		provider := labelsOf(m)["provider_name"]
		answered[provider] = max(answered[provider], m.GetGauge().GetValue())
	}
	scraped := e.scraped(families)
	for _, provider := range slices.Sorted(maps.Keys(failed)) {
		at, ever := answered[provider]
		age := scraped.Sub(time.Unix(int64(at), 0))
		switch {
		case !ever:
			all = append(all, provider+" has never answered its Status with a valid key_id")
		case age > unanswered:
			all = append(all, provider+" has not answered its Status for "+duration.HumanDuration(age))
		}
	}
	return all
}

// scraped is when the metrics are from. Those in files may be older than the reports: they are
// from the newest time in them, since each use of a key has one, too.
func (e *evaluation) scraped(families map[string]*dto.MetricFamily) time.Time {
	if !e.Files {
		return e.Now
	}
	newest := 0.0
	for _, name := range []string{lastMetric, usedMetric} {
		for _, m := range families[name].GetMetric() {
			newest = max(newest, m.GetGauge().GetValue())
		}
	}
	return time.Unix(int64(newest), 0)
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// failedCalls are those of a series of callsMetric.
func failedCalls(m *dto.Metric) uint64 {
	if code := labelsOf(m)["grpc_status_code"]; code == "" || code == "OK" {
		return 0
	}
	return m.GetHistogram().GetSampleCount()
}

// failures counts calls, those that failed, and by what: provider, method and gRPC code.
func failures(family *dto.MetricFamily) (calls, failed uint64, by []string) {
	for _, m := range family.GetMetric() {
		calls += m.GetHistogram().GetSampleCount()
		if n := failedCalls(m); n > 0 {
			failed += n
			l := labelsOf(m)
			by = append(by, fmt.Sprintf("%s %s %s %d", l["provider_name"], l["method_name"], l["grpc_status_code"], n))
		}
	}
	slices.Sort(by)
	return calls, failed, by
}
