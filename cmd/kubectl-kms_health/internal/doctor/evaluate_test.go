package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

var now = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// resource is an operator resource with conditions, as type, status and reason.
func resource(plural string, conditions ...string) view.Target {
	var all []any
	for _, c := range conditions {
		words := strings.Fields(c)
		all = append(all, map[string]any{"type": words[0], "status": words[1], "reason": words[2], "message": strings.Join(words[3:], " ")})
	}
	return view.Read(plural, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": all}}})
}

const healthyReport = `KMSHealthReporter_a True AsExpected [{"keyID":"2","kekID":"k","status":"healthy","lastChecked":"2026-05-08T12:34:50Z"}]`

func TestTheStatusOfADelivery(t *testing.T) {
	for condition, want := range map[string]Status{
		"True AsExpected":             OK,
		"True ReasonOfALaterVersion":  OK,
		"False ReporterNotRunning":    Error,
		"False ReasonOfALaterVersion": Error,
		"False Progressing":           Warning,
		"False ReporterStale":         Warning,
		"Unknown ReasonOfALater":      Unknown,
		"Perhaps ReasonOfALater":      Unknown,
	} {
		s := &Snapshot{Now: now, Targets: []view.Target{resource("kubeapiservers", healthyReport, "KMSHealthReporting "+condition+" said")}}
		d := Evaluate(s)
		at := slices.IndexFunc(d.Findings, func(f Finding) bool { return f.Check == Delivery })
		if f := d.Findings[at]; f.Status != want || !strings.HasSuffix(f.Found, ": said") || (want == OK) != (len(f.Next) == 0) {
			t.Errorf("%s: %+v", condition, f)
		}
	}
}

func TestTheVerdictIsThatOfTheWorstFinding(t *testing.T) {
	for status, want := range map[Status]view.Verdict{OK: view.AllHealthy, Unknown: view.CannotTell, Warning: view.Unhealthy, Error: view.Unhealthy} {
		if d := (Diagnosis{Status: status}); d.Verdict() != want {
			t.Errorf("%s: %d", status, d.Verdict())
		}
	}
}

func TestWhatOnlyTheOperatorKnowsIsReported(t *testing.T) {
	s := &Snapshot{Now: now, Targets: []view.Target{resource("kubeapiservers", healthyReport, "KMSPluginsDegraded True PluginNotRunning container kms-plugin-2 cannot start")}}
	if f := Evaluate(s).Findings; !slices.ContainsFunc(f, func(f Finding) bool { return f.Check == Reports && f.Status == Error && f.Reason == "PluginNotRunning" }) {
		t.Errorf("%+v", f)
	}
}

func TestSkewedReportsAreNotNoReports(t *testing.T) {
	for name, tt := range map[string]struct {
		reports []string
		status  Status
		want    string
	}{
		"all skewed": {[]string{`KMSHealthReporter_a True AsExpected [{"keyID":"2","kekID":"k","status":"healthy","lastChecked":"2026-05-08T13:34:50Z"}]`}, Unknown, "the age of every report is not known, see Clocks"},
		"some skewed": {[]string{`KMSHealthReporter_a True AsExpected [{"keyID":"2","kekID":"k","status":"healthy","lastChecked":"2026-05-08T13:34:50Z"}]`,
			`KMSHealthReporter_b True AsExpected [{"keyID":"2","kekID":"k","status":"healthy","lastChecked":"2026-05-08T12:34:50Z"}]`}, OK, "1 plugin on 1 node, all healthy by fresh reports"},
		"none": {[]string{"KMSPluginsDegraded False AsExpected m"}, OK, "no plugin is reported, as the operator expects"},
	} {
		d := Evaluate(&Snapshot{Now: now, Targets: []view.Target{resource("authentications", tt.reports...)}})
		at := slices.IndexFunc(d.Findings, func(f Finding) bool { return f.Check == Reports })
		if f := d.Findings[at]; f.Status != tt.status || f.Found != tt.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Whatever objects have, there is a result, with each check in its order, and no
// more of them are OK than without these objects.
func TestMalformedObjectsAreEvaluated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []any{nil, "", "text", int64(-1), 1.5, true, []any{}, []any{nil, "x", map[string]any{}}, map[string]any{}, map[string]any{"containers": "x", "name": int64(3)}, strings.Repeat("x", 5000), "\x1b[2J\u202e\n\xff"}
	fields := []string{"metadata", "spec", "status", "data", "labels", "annotations", "name", "namespace", "conditions", "containers", "nodeName", "volumes", "config.yaml", "replicas", "renewTime", contract.APIServerLabel, contract.ConfigHashAnnotation}
	var object func(depth int) map[string]any
	object = func(depth int) map[string]any {
		o := map[string]any{}
		for _, field := range fields {
			switch n := random.IntN(4); {
			case n == 0:
				o[field] = values[random.IntN(len(values))]
			case n == 1 && depth < 3:
				o[field] = object(depth + 1)
			}
		}
		return o
	}
	for i := range 300 {
		s := &Snapshot{Now: now, Namespaces: []string{"a"}, Targets: []view.Target{resource("kubeapiservers", healthyReport)}, KMSMetrics: []byte(strings.Repeat("x{", i))}
		for _, kind := range []string{"Deployment", "Lease", "ClusterOperator", "ConfigMap", "Pod", "Pod", ""} {
			o := &unstructured.Unstructured{Object: object(0)}
			o.Object["kind"], o.Object["apiVersion"] = kind, "v1"
			relevant(o)
			s.Objects = append(s.Objects, o)
		}
		d := Evaluate(s)
		if len(d.Findings) < 4 {
			t.Fatalf("%d: %+v", i, d)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
	}
}

// reader is a Reader of nothing, that records what is read.
type reader struct {
	read    []string
	err     error
	targets []view.Target
	found   map[string]*unstructured.Unstructured
	listed  map[string][]*unstructured.Unstructured
}

func (r *reader) Targets(context.Context, func(string) bool) ([]view.Target, []*Unread) {
	return r.targets, nil
}

func (r *reader) Get(_ context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	r.read = append(r.read, fmt.Sprintf("%s %s/%s", resource.Resource, namespace, name))
	return r.found[resource.Resource+" "+namespace], r.err
}

func (r *reader) List(_ context.Context, resource schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error) {
	r.read = append(r.read, fmt.Sprintf("%s %s", resource.Resource, namespace))
	return r.listed[resource.Resource+" "+namespace], r.err
}

func (r *reader) Metrics(context.Context) ([]byte, error) { return nil, r.err }

func TestWhatIsRead(t *testing.T) {
	r := &reader{found: map[string]*unstructured.Unstructured{"deployments b": {Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"namespace": "b"}}}}}
	Collect(t.Context(), r, &Snapshot{Namespaces: []string{"a", "b", "c"}})
	want := []string{"deployments a/kms-health-operator", "deployments b/kms-health-operator", "clusteroperators /kms-health", "leases b/kms-health-operator", "configmaps b", "pods b"}
	if !slices.Equal(r.read, want) {
		t.Errorf("%q", r.read)
	}
	// A plain control plane has no ClusterOperators.
	r = &reader{found: map[string]*unstructured.Unstructured{"deployments kms-health": r.found["deployments b"]}}
	Collect(t.Context(), r, &Snapshot{Namespaces: []string{"kms-health", "b"}})
	if slices.ContainsFunc(r.read, func(what string) bool { return strings.HasPrefix(what, "clusteroperators") }) {
		t.Errorf("%q", r.read)
	}
	// The reporters of a target may run in the pods of its API server, whatever they report to.
	file := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": contract.OperatorConfigMap, "namespace": "b"}, "data": map[string]any{
		contract.ConfigFile: "apiServers: [{name: one, resource: kubeapiservers, namespace: c}, {name: two, resource: kmshealths, namespace: d}, {name: three, resource: kmshealths, namespace: e}]",
	}}}
	r = &reader{targets: []view.Target{{Name: "kubeapiservers"}, {Name: "kmshealths/two"}}, found: r.found, listed: map[string][]*unstructured.Unstructured{"configmaps kms-health": {file}}}
	Collect(t.Context(), r, &Snapshot{Namespaces: []string{"kms-health"}})
	if want := []string{"deployments kms-health/kms-health-operator", "leases kms-health/kms-health-operator", "configmaps kms-health", "pods kms-health", "configmaps c", "pods c", "configmaps d", "pods d"}; !slices.Equal(r.read, want) {
		t.Errorf("%q", r.read)
	}
	s := &Snapshot{Namespaces: []string{"a"}}
	Collect(t.Context(), &reader{err: errors.New("odd")}, s)
	if d := Evaluate(s); d.Status == OK || len(s.Unread) < 5 || slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Status == OK }) {
		t.Errorf("%+v, %+v", s.Unread, d)
	}
}
