package operatorstatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

// object decodes YAML by way of JSON, as a client of the API server decodes.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	var o unstructured.Unstructured
	must.Succeed(t, json.Unmarshal(raw, &o.Object))
	return &o
}

const kubeAPIServer = `
apiVersion: operator.openshift.io/v1
kind: KubeAPIServer
metadata:
  name: cluster
  resourceVersion: "42"
  annotations: {kmshealth.openshift.io/probe-requested: two words}
  managedFields: [{manager: kms-health-reporter-a}]
status:
  conditions:
  - {type: NodeInstallerDegraded, status: "False", reason: AsExpected, message: fine,
    lastTransitionTime: "2026-05-08T10:00:00Z"}
  - {type: KMSHealthReporter_b, status: "True", reason: AsExpected, message: "[{]",
    lastTransitionTime: "2026-05-08T10:00:01Z"}
  - {type: KMSPluginsDegraded, status: "True", reason: PluginError, message: x}
  - type: KMSHealthReporter_a
    status: "True"
    message: >-
      [{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T11:59:55Z",
      "intervalSeconds":10,"reporter":"8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10","socket":"@kms",
      "since":"2026-05-08T10:00:00Z","roundTrip":"2026-05-08T11:55:00Z","requested":"r-1","lost":["k-6","k-5"]},
      {"keyID":"1","status":"error","lastChecked":"2026-05-08T11:59:54Z","detail":"refused"}]
    lastTransitionTime: "2026-05-08T10:00:02Z"
  - {type: KMSHealthReporter_c, status: "True", message: "[]"}
  nodeStatuses:
  - {nodeName: a, currentRevision: 7, targetRevision: 8}
  - {nodeName: b, currentRevision: 8, targetRevision: 0}
  - {nodeName: c, currentRevision: 8, targetRevision: 8}
  - {nodeName: d, targetRevision: 8}
  - {currentRevision: 8}
  - x
  encryptionStatus:
    preflight: {}
    healthReports:
    - {nodeName: b, keyID: "1", status: Unhealthy, lastCheckedTime: "2026-05-08T11:57:00Z", remoteKeyID: k-6,
      detail: sealed}
    - {nodeName: a, keyID: "2", status: Healthy, lastCheckedTime: "2026-05-08T11:59:55Z", remoteKeyID: k-7}
    - {nodeName: c, keyID: "2", status: Healthy, lastCheckedTime: "2026-05-08T11:59:55Z", remoteKeyID: k-7}
    - {nodeName: a, keyID: "1", status: Error, lastCheckedTime: "2026-05-08T13:59:54+02:00", remoteKeyID: unknown,
      detail: refused}
    - {nodeName: c, keyID: "1", status: Odd, lastCheckedTime: "2026-05-08T11:59:55Z", remoteKeyID: k-7}
`

func TestReadDecodesAResource(t *testing.T) {
	got := Read(object(t, kubeAPIServer))
	clock := func(h, m, s int) time.Time { return time.Date(2026, 5, 8, h, m, s, 0, time.UTC) }
	if diff := cmp.Diff(map[string]Condition{
		"KMSPluginsDegraded": {"KMSPluginsDegraded", "True", "PluginError", "x", time.Time{}},
	}, got.Conditions); diff != "" {
		t.Error(diff)
	}
	k2 := contract.Entry{KeyID: "2", KEKID: "k-7", Status: contract.Healthy, LastChecked: clock(11, 59, 55)}
	k1 := contract.Entry{KeyID: "1", Status: contract.Error, LastChecked: clock(11, 59, 54), Detail: "refused"}
	every10 := k2
	every10.Interval, every10.Reporter = 10*time.Second, "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10"
	every10.Socket, every10.Requested, every10.Lost = "@kms", "r-1", []string{"k-6", "k-5"}
	every10.Since, every10.RoundTrip = clock(10, 0, 0), clock(11, 55, 0) // by the node's clock
	want := []Report{
		{Node: "a", Form: FormCondition, Entries: []contract.Entry{every10, k1}},
		{Node: "a", Form: FormTyped, Entries: []contract.Entry{k2, k1}},
		{Node: "b", Form: FormCondition},
		{Node: "b", Form: FormTyped, Entries: []contract.Entry{
			{KeyID: "1", KEKID: "k-6", Status: contract.Unhealthy, LastChecked: clock(11, 57, 0), Detail: "sealed"}}},
		{Node: "c", Form: FormCondition, Entries: []contract.Entry{}},
		{Node: "c", Form: FormTyped},
	}
	errs := map[int]string{2: "message is not a JSON array of entries: ", 5: `status: "Odd" is none of Healthy, Unhealthy, Error`}
	for i := range got.Reports {
		r := &got.Reports[i]
		if (r.Err != nil) != (errs[i] != "") || r.Err != nil && !strings.Contains(r.Err.Error(), errs[i]) {
			t.Errorf("report %d: %v, want %s", i, r.Err, errs[i])
		}
		r.Err = nil
	}
	if diff := cmp.Diff(want, got.Reports); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]NodeStatus{{"a", "7", true}, {"b", "8", false}, {"c", "8", false}, {"d", "", true}}, got.Nodes); diff != "" {
		t.Error(diff)
	}
	if got.Reports[0].Reporter() != every10.Reporter || got.Reports[1].Reporter()+got.Reports[2].Reporter() != "" ||
		got.Version != "42" || got.Requested != "two words" {
		t.Errorf("version %q, requested %q, reporters of %+v", got.Version, got.Requested, got.Reports)
	}
}

// The three kinds have the typed form in different fields.
func TestReadSupportsAllKinds(t *testing.T) {
	const reports = `{healthReports: [{nodeName: a, keyID: "2", status: Healthy, lastCheckedTime: ` +
		`"2026-05-08T11:59:55Z", remoteKeyID: k-7}]}`
	for kind, where := range map[string]string{
		"KubeAPIServer": "%s", "OpenShiftAPIServer": "%s", "Authentication": `{oauthAPIServer: %s}`,
	} {
		status := fmt.Sprintf(where, `{encryptionStatus: `+reports+`}`)
		got := Read(object(t, "kind: "+kind+"\nstatus: "+status))
		if len(got.Reports) != 1 {
			t.Fatalf("%s: %+v", kind, got.Reports)
		}
		if r := got.Reports[0]; r.Node != "a" || r.Form != FormTyped || len(r.Entries) != 1 ||
			r.Entries[0].LastChecked != time.Date(2026, 5, 8, 11, 59, 55, 0, time.UTC) {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

var longNode = strings.Repeat("n", 200)

func managedBy(manager, fields string) string {
	return fmt.Sprintf("  - {manager: %q, fieldsV1: {'f:status': %s}}\n", manager, fields)
}
func ofNode(node string) string {
	return fmt.Sprintf(`{'f:conditions': {'k:{"type":"KMSHealthReporter_%s"}': {}}}`, node)
}

const oursA = "kms-health-reporter-a"

var oursOfLong, malformedFields = contract.ConditionManager(longNode), `{'f:conditions': {'k:{': {}, 'k:7': {}, ` +
	`'k:{"type":7}': {}, 'v:"KMSHealthReporter_a"': {}, 'k:{"type":"KMSHealthReporter_"}': {}}}`

var writerCases = []struct {
	name, node, fields string
	ours               bool
}{
	{"no writer", "a", "", false},
	{"ours", "a", managedBy(oursA, ofNode("a")), true},
	{"a long name", longNode, managedBy(oursOfLong, ofNode(longNode)), true},
	// The admission policy sees only the beginning of a long name.
	{"a long name, with a hash of another", longNode + "x", managedBy(oursOfLong, ofNode(longNode+"x")), true},
	{"a name that need not be cut", longNode[:100], managedBy(oursOfLong, ofNode(longNode[:100])), true},
	{"a long name, of another node", "b" + longNode, managedBy(oursOfLong, ofNode("b"+longNode)), false},
	{"ours of another node", "b", managedBy(oursA, ofNode("b")), false},
	{"ours, and then a human's", "a", managedBy(oursA, ofNode("a")) + managedBy("kubectl-edit", ofNode("a")), true},
	{"the spec alone is no report", "a", "  - {manager: " + oursA + ", fieldsV1: {'f:spec': {}}}\n", false},
	{"a list that is owned as a whole", "a", managedBy(oursA, `{'f:conditions': {}}`), false},
	{"what is malformed", "a", "  - 7\n  - {manager: 7, fieldsV1: 7}\n" + managedBy(oursA, malformedFields), false},
	{"ours, after what is malformed", "a", "  - 7\n  - {manager: 7, fieldsV1: 7}\n" + managedBy("x", malformedFields) +
		managedBy(oursA, ofNode("a")), true},
}

// The operator removes only what its own reporters wrote.
func TestAReportsManagersAreFound(t *testing.T) {
	for _, tt := range writerCases {
		t.Run(tt.name, func(t *testing.T) {
			o := object(t, "metadata:\n  managedFields:\n"+tt.fields)
			writes := func(manager string) bool { return contract.WritesFor(manager, tt.node) }
			if managers := Managers(o, contract.ConditionType(tt.node)); slices.ContainsFunc(managers, writes) != tt.ours {
				t.Errorf("managers %q", managers)
			}
		})
	}
}

var malformed = map[string]struct {
	text       string
	reports    []string // node, form, error
	conditions int
}{
	"nothing":              {`{}`, nil, 0},
	"no status":            {`{metadata: {name: cluster}}`, nil, 0},
	"status is a word":     {`{status: x}`, nil, 0},
	"conditions are a map": {`{status: {conditions: {a: b}}}`, nil, 0},
	"elements of other types": {`{status: {conditions: [x, 7, null, [], {}, {type: 7}, {status: "True"}, ` +
		`{type: KMSPluginsDegraded}]}}`, nil, 1},
	"managedFields is a word": {`{metadata: {managedFields: x}, status: {conditions: [{type: KMSHealthReporter_a, ` +
		`message: "[]"}]}}`, []string{"a Condition "}, 0},
	"a message that is none": {`{status: {conditions: [{type: KMSHealthReporter_a, message: 7}]}}`,
		[]string{"a Condition message is not a JSON array of entries: unexpected end of JSON input"}, 0},
	"a time that is none": {`{status: {conditions: [{type: KMSHealthReporter_a, message: "[]", ` +
		`lastTransitionTime: noon}]}}`, []string{"a Condition "}, 0},
	"no node's report":           {`{status: {conditions: [{type: KMSHealthReporter_, message: "[]"}]}}`, nil, 1},
	"encryptionStatus is a word": {`{status: {encryptionStatus: x}}`, nil, 0},
	"oauthAPIServer is a list":   {`{status: {oauthAPIServer: []}}`, nil, 0},
	"healthReports is a map":     {`{status: {encryptionStatus: {healthReports: {}}}}`, nil, 0},
	"elements of no node":        {`{status: {encryptionStatus: {healthReports: [x, null, {}, {keyID: "1"}]}}}`, nil, 0},
	"an element without fields": {`{status: {encryptionStatus: {healthReports: [{nodeName: a}]}}}`,
		[]string{`a HealthReports status: "" is none of Healthy, Unhealthy, Error`}, 0},
	"an element without a time": {`{status: {encryptionStatus: {healthReports: [{nodeName: a, status: Healthy, ` +
		`lastCheckedTime: x}]}}}`, []string{`a HealthReports lastCheckedTime: "x" is not an RFC 3339 time`}, 0},
	"one bad element, and good ones": {`{status: {encryptionStatus: {healthReports: [{nodeName: a, status: Healthy, ` +
		`lastCheckedTime: "2026-05-08T11:59:55Z"}, {nodeName: a}, {nodeName: a, status: Healthy, ` +
		`lastCheckedTime: "2026-05-08T11:59:55Z"}]}}}`,
		[]string{`a HealthReports status: "" is none of Healthy, Unhealthy, Error`}, 0},
}

func TestReadSkipsMalformedParts(t *testing.T) {
	for name, tt := range malformed {
		t.Run(name, func(t *testing.T) {
			got := Read(object(t, tt.text))
			var reports []string
			for _, r := range got.Reports {
				text := ""
				if r.Err != nil {
					text = r.Err.Error()
					if len(r.Entries) > 0 {
						t.Errorf("%s: an error, and yet entries", r.Node)
					}
				}
				reports = append(reports, fmt.Sprintf("%s %s %s", r.Node, r.Form, text))
			}
			if !slices.Equal(reports, tt.reports) || len(got.Conditions) != tt.conditions {
				t.Errorf("%q and %v", reports, got.Conditions)
			}
		})
	}
}

func TestReadConditionsReturnsAllConditions(t *testing.T) {
	got := ReadConditions(object(t, `{status: {conditions: [x, {}, {type: Degraded, status: "True", reason: R, `+
		`message: m, lastTransitionTime: "2026-05-08T10:00:00Z"}, {type: KMSHealthReporter_a}]}}`))
	want := map[string]Condition{
		"Degraded":            {"Degraded", "True", "R", "m", time.Date(2026, 5, 8, 10, 0, 0, 0, time.UTC)},
		"KMSHealthReporter_a": {Type: "KMSHealthReporter_a"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// lastTransitionTime changes only with the status, and has whole seconds.
func TestSettle(t *testing.T) {
	now := time.Date(2026, 5, 8, 12, 0, 0, 123456789, time.UTC)
	before := now.Add(-time.Hour).Truncate(time.Second)
	for name, tt := range map[string]struct {
		was   Condition
		moves bool
	}{
		"there was none":      {Condition{}, true},
		"as before":           {Condition{Type: "A", Status: True, Reason: "R", LastTransitionTime: before}, false},
		"another reason":      {Condition{Type: "A", Status: True, Reason: "Q", LastTransitionTime: before}, false},
		"another status":      {Condition{Type: "A", Status: Unknown, Reason: "R", LastTransitionTime: before}, true},
		"its time is not set": {Condition{Type: "A", Status: True, Reason: "R"}, true},
		// Until then, a StatusSyncer would ignore the condition.
		"its time is to come: a clock was set back": {Condition{Type: "A", Status: True, Reason: "R",
			LastTransitionTime: before.Add(2 * time.Hour)}, true},
	} {
		c := Condition{Type: "A", Status: True, Reason: "R"}
		c.Settle(map[string]Condition{tt.was.Type: tt.was}, now)
		want := before
		if tt.moves {
			want = now.Truncate(time.Second)
		}
		if c.LastTransitionTime != want {
			t.Errorf("%s: since %s, want %s", name, c.LastTransitionTime, want)
		}
	}
}

// The policy kms-health-operator-status denies other formats of a time. kube-apiserver admits them to other writers.
func TestTimeThatIsKeptIsWrittenInTheFormThatThePolicyAdmits(t *testing.T) {
	for was, want := range map[string]string{
		"2026-05-08T10:00:00.5Z": "2026-05-08T10:00:00Z", "2026-05-08T12:00:00.123+02:00": "2026-05-08T10:00:00Z",
		"2026-05-08t10:00:00Z": "2026-05-09T00:00:00Z", "0001-01-01T00:00:00Z": "2026-05-09T00:00:00Z",
	} {
		previous := ReadConditions(object(t, `{status: {conditions: [{type: KMSPluginsDegraded, status: "True", lastTransitionTime: "`+was+`"}]}}`))
		c := Condition{Type: "KMSPluginsDegraded", Status: True}
		c.Settle(previous, time.Date(2026, 5, 9, 0, 0, 0, 7, time.UTC))
		raw, err := json.Marshal(c.LastTransitionTime)
		if err != nil || string(raw) != `"`+want+`"` {
			t.Errorf("%s: %s, want %s (%v)", was, raw, want, err)
		}
	}
}
