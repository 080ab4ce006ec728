package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// fleet simulates kube-apiserver on two nodes, by the clock of synctest. Reporters fulfil a request after 5 s while their
// plugin is healthy, and make a round trip each minute.
type fleet struct {
	absent    bool                                 // the operator is not installed
	elsewhere bool                                 // it is in a namespace that is not read
	denied    bool                                 // to patch
	restarts  bool                                 // its API server at the first request
	absentAPI string                               // "APIVERSION KIND REASON" of another API server, which does not run
	file      string                               // the operator's
	states    []state                              // none: it is always healthy
	change    func(node string, e *contract.Entry) // of what reporters write
	second    map[string]string                    // the KEK IDs of a second provider, key 3, by node
	condition map[string]string                    // TYPE to "STATUS REASON MESSAGE"

	began, requested time.Time
	request          string
}

// state is active from after on. With an error the cluster cannot be read.
type state struct {
	after  time.Duration
	status contract.Status // of the plugins; empty: no report exists
	err    error
}

func (f *fleet) read(context.Context) (*view.Snapshot, error) {
	now, is := time.Now(), state{status: contract.Healthy}
	for _, s := range f.states {
		if now.Sub(f.began) >= s.after {
			is = s
		}
	}
	if is.err != nil {
		return nil, is.err
	}
	var conditions []any
	add := func(conditionType, status, reason, message string) {
		conditions = append(conditions, map[string]any{"type": conditionType, "status": status, "reason": reason,
			"message": message, "lastTransitionTime": f.began.UTC().Format(time.RFC3339)})
	}
	for _, node := range []string{"a", "b"} {
		e := contract.Entry{KeyID: "2", KEKID: "k-7", Status: is.status, LastChecked: now,
			Interval: 30 * time.Second, RoundTrip: f.began.Add(now.Sub(f.began).Truncate(time.Minute))}
		if f.request != "" && is.status == contract.Healthy && now.Sub(f.requested) >= 5*time.Second {
			e.Requested, e.RoundTrip = f.request, f.requested
		}
		if f.change != nil {
			f.change(node, &e)
		}
		entries := []contract.Entry{e}
		if e.KeyID, e.KEKID = "3", f.second[node]; e.KEKID != "" {
			entries = append(entries, e)
		}
		if message, err := contract.EncodeMessage(entries); entries[0].KeyID != "" && is.status != "" && err == nil {
			add(contract.ConditionType(node), "True", "AsExpected", message)
		}
	}
	all := map[string]string{contract.PluginsDegraded: "False AsExpected m", contract.HealthReporting: "True AsExpected m",
		contract.WriteKeyAgreed: `True AsExpected {"keyID":"2","kekID":"k-7","since":"2026-05-08T09:12:00Z"}`}
	for conditionType, text := range f.condition {
		all[conditionType] = text
	}
	if !f.absent {
		for conditionType, text := range all {
			words := strings.SplitN(text, " ", 3)
			add(conditionType, words[0], words[1], words[2])
		}
	}
	objects := fmt.Sprintf("{apiVersion: operator.openshift.io/v1, kind: KubeAPIServer, metadata: {name: cluster}, "+
		"status: {nodeStatuses: [{nodeName: a}, {nodeName: b}], conditions: %s}}\n", contract.Marshal(conditions))
	if !f.absent && !f.elsewhere {
		objects += "---\n{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kms-health-operator}, spec: {holderIdentity: o}}\n" +
			"---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: kms-health-operator}, status: {availableReplicas: 1}}\n"
	}
	if words := strings.Fields(f.absentAPI); len(words) > 0 {
		objects += fmt.Sprintf("---\n{apiVersion: %s, kind: %s, metadata: {name: cluster}, "+
			"status: {conditions: [{type: KMSHealthReporting, status: 'False', reason: %s, message: m}]}}", words[0], words[1], words[2])
	}
	if f.file != "" {
		objects += fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: kms-health-operator-config}, data: {config.yaml: %q}}", f.file)
	}
	s, err := source.ReadFiles("-", strings.NewReader(objects), now)
	if err == nil {
		s.Now, s.FromFiles, s.OperatorUnread = now, false, false
	}
	return s, err
}

func (f *fleet) patch(_ context.Context, r contract.Resource, text string) error {
	if f.restarts {
		f.restarts = false
		return errAway
	}
	if f.denied {
		return apierrors.NewForbidden(schema.GroupResource{}, r.Name, nil)
	}
	if !contract.ValidRequest(text) {
		return fmt.Errorf("%q is no request", text)
	}
	if !f.absent {
		f.request, f.requested = text, time.Now()
	}
	return nil
}

// run runs a command on a terminal until it ends.
func (f *fleet) run(t *testing.T, args ...string) (code int, took time.Duration, stdout, stderr string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.began = time.Now()
		code, stdout, stderr = kubectl(t, environment{clock: clock.RealClock{}, terminal: true, read: f.read, request: f.patch}, args...)
		took = time.Since(f.began)
	})
	return code, took, stdout, stderr
}

func TestPreflight(t *testing.T) {
	onB := func(change func(e *contract.Entry)) func(string, *contract.Entry) {
		return func(node string, e *contract.Entry) {
			if node == "b" {
				change(e)
			}
		}
	}
	for name, tt := range map[string]struct {
		fleet fleet
		code  int
		took  time.Duration
		want  []string // parts of the output or of stderr
	}{
		"good": {fleet{}, 0, 6 * time.Second, []string{"Ready: 7 of 7 checks hold.", "holds   Round trip: 2 of 2 nodes made one", "holds   Former keys: no loss is known; a new reporter has no samples: see stored-keys",
			"holds   Writes with it: KMSWriteKeyAgreed=True (AsExpected)", "kube-apiserver on b: waiting for a new round trip of key 2", "kube-apiserver on b: done"}},
		"one does not report": {fleet{change: onB(func(e *contract.Entry) { e.KeyID = "" }), condition: map[string]string{contract.HealthReporting: "False ReportsMissing m"}}, 1, 3 * time.Minute,
			[]string{"Not ready: 3 of 7 checks hold.", "UNKNOWN Former keys: not every plugin", "UNKNOWN Round trip: 1 of 2 nodes made one; still awaited: a valid report on b", "kube-apiserver on b: missing: no report yet"}},
		"one does not answer the request": {fleet{change: onB(func(e *contract.Entry) { e.Requested, e.RoundTrip = "", time.Unix(1, 0) })}, 2, 3 * time.Minute,
			[]string{"UNKNOWN Round trip: 1 of 2 nodes made one; still awaited: a new round trip of key 2 on b Fix: wait longer"}},
		"round trips are off": {fleet{change: func(_ string, e *contract.Entry) { e.Requested, e.RoundTrip = "", time.Time{} }}, 2, 3 * time.Minute,
			[]string{"UNKNOWN Round trip: 0 of 2 nodes made one; still awaited: a new round trip of key 2 on a, b", "`roundTrip.interval: 0s` there are none"}},
		"another API server's KMSHealth does not exist": {fleet{file: "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\napiServers: [{name: api, resource: kmshealths, " +
			"namespace: x, podSelector: {a: b}, plugins: [{endpoint: 'unix:///run/kmsplugin/kms-1.sock', role: Write}]}]"}, 2, 16 * time.Second,
			[]string{"Not known: 6 of 7 checks hold.", "UNKNOWN No problem: status has some, see below", "api: the resource for its reports does not exist"}},
		"nothing is reported": {fleet{change: func(_ string, e *contract.Entry) { e.KeyID = "" }, condition: map[string]string{contract.HealthReporting: "True NoPlugins m"}}, 2, 0,
			[]string{"Not known: ", "UNKNOWN Round trip: no KMS plugin is reported"}},
		"one stops reporting": {fleet{absent: true, change: onB(func(e *contract.Entry) {
			e.Requested, e.RoundTrip, e.LastChecked = "", time.Unix(1, 0), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when synctest begins
		})}, 2, 3 * time.Minute, []string{"UNKNOWN Round trip: 1 of 2 nodes made one; still awaited: a valid report on b"}},
		"keys differ": {fleet{change: onB(func(e *contract.Entry) { e.KEKID = "k-6" })}, 1, 16 * time.Second,
			[]string{"FAILS   One KEK ID of key 2: k-7 on a; k-6 on b", "Do not: delete or disable a version of the key"}},
		"one is down": {fleet{change: onB(func(e *contract.Entry) {
			e.Status, e.Reason, e.Detail, e.KEKID, e.RoundTrip = contract.Error, "Timeout", "Status: no answer", "", time.Time{}
		})}, 1, 16 * time.Second, []string{"FAILS   No problem: status has some", "holds   One KEK ID of key 2: k-7 on a", "holds   Round trip: 2 of 2 nodes made one or tried in vain",
			"UNKNOWN Former keys: not every plugin", "kube-apiserver on b, key 2: error (Timeout)"}},
		"one names no KEK ID": {fleet{absent: true, change: onB(func(e *contract.Entry) { e.KEKID = "" })}, 2, 2*time.Minute + 10*time.Second,
			[]string{"UNKNOWN Former keys: not every plugin has made a good round trip, and named its KEK ID"}},
		"one stopped before a rotation": {fleet{absent: true, change: func(node string, e *contract.Entry) {
			if node == "b" { // when synctest begins
				e.Requested, e.KeyID, e.KEKID, e.LastChecked = "", "1", "k-6", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)
			}
		}}, 2, 3 * time.Minute, []string{"UNKNOWN No problem: status has some", "holds   One KEK ID of key 2: k-7 on a", "holds   Same providers: 2 on a"}},
		"a former key is lost": {fleet{change: onB(func(e *contract.Entry) { e.Lost = []string{"k-6"} })}, 1, 16 * time.Second,
			[]string{"Not ready: 6 of 7 checks hold.", "FAILS   Former keys: no longer decrypted: k-6 on b"}},
		"Decrypt is refused": {fleet{change: onB(func(e *contract.Entry) {
			e.Status, e.Reason, e.Detail, e.RoundTrip = contract.Unhealthy, "PermissionDenied", "Decrypt: denied", time.Time{}
		})}, 1, 16 * time.Second, []string{"FAILS   No problem: status has some, see below", "kube-apiserver on b, key 2: unhealthy (PermissionDenied)", "Decrypt: denied"}},
		"no operator": {fleet{absent: true}, 0, 2 * time.Minute,
			[]string{"Ready: 5 of 5 checks hold."}},
		"an operator of another namespace": {fleet{elsewhere: true, condition: map[string]string{contract.WriteKeyAgreed: "False WriteKeyNotDeployed b"}}, 1, 16 * time.Second,
			[]string{"Not ready: 5 of 6 checks hold.", "FAILS   Writes with it: KMSWriteKeyAgreed=False (WriteKeyNotDeployed): b"}},
		"no right": {fleet{denied: true}, 0, 2 * time.Minute,
			[]string{"Ready: 7 of 7 checks hold.", "warning: no round trip is requested: ", "holds   Former keys: no loss is known"}},
		"the API server restarts": {fleet{restarts: true}, 0, 8 * time.Second,
			[]string{"Ready: 7 of 7 checks hold.", "warning: no round trip is requested: away\nTrying again\n", "holds   Former keys: no loss is known"}},
		"a round trip of before is reported late": {fleet{denied: true, change: func(_ string, e *contract.Entry) {
			began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when synctest begins
			if now := e.LastChecked.Sub(began); now < time.Minute {
				e.RoundTrip = began.Add(now.Truncate(30*time.Second) - time.Minute)
			} else {
				e.Status, e.Reason, e.Detail = contract.Unhealthy, "PermissionDenied", "Decrypt: denied"
			}
		}}, 1, 70 * time.Second, []string{"Not ready: ", "FAILS   No problem: status has some, see below"}},
		"no oauth-apiserver, as with external OIDC": {fleet{absentAPI: "operator.openshift.io/v1 Authentication NoPods"}, 0, 6 * time.Second,
			[]string{"Ready: 7 of 7 checks hold."}},
		"no namespace of one of OpenShift's": {fleet{absentAPI: "operator.openshift.io/v1 OpenShiftAPIServer NamespaceMissing"}, 0, 6 * time.Second,
			[]string{"Ready: 7 of 7 checks hold."}},
		"a wrong selector of the operator's file": {fleet{absentAPI: "kmshealth.openshift.io/v1alpha1 KMSHealth NoPods"}, 1, 16 * time.Second,
			[]string{"FAILS   Reporters: KMSHealthReporting=False (NoPods): m"}},
		"settling": {fleet{condition: map[string]string{contract.WriteKeyAgreed: "Unknown Settling wait"}}, 2, 16 * time.Second, []string{"UNKNOWN Writes with it: KMSWriteKeyAgreed=Unknown (Settling): wait"}},
		"keys differ before KMS is turned on": {fleet{change: onB(func(e *contract.Entry) { e.KEKID = "k-6" }), condition: map[string]string{contract.WriteKeyAgreed: "Unknown NoWriteKey none"}}, 1, 16 * time.Second,
			[]string{"Not ready: 6 of 7 checks hold.", "FAILS   One KEK ID of key 2: k-7 on a; k-6 on b", "holds   Writes with it: KMSWriteKeyAgreed=Unknown (NoWriteKey): none"}},
		"keys differ before a new provider writes": {fleet{second: map[string]string{"a": "n-1", "b": "n-2"}}, 1, 16 * time.Second,
			[]string{"Not ready: 7 of 8 checks hold.", "holds   One KEK ID of key 2: k-7 on a, b", "FAILS   One KEK ID of key 3: n-1 on a; n-2 on b"}},
		"KMS is turned on or off":            {fleet{condition: map[string]string{contract.WriteKeyAgreed: "Unknown NoWriteKey none"}}, 0, 6 * time.Second, []string{"Ready: 7 of 7 checks hold.", "holds   One KEK ID of key 2: k-7 on a, b", "holds   Writes with it: KMSWriteKeyAgreed=Unknown (NoWriteKey): none"}},
		"agreed on another key":              {fleet{condition: map[string]string{contract.WriteKeyAgreed: `True AsExpected {"keyID":"1","kekID":"k-6"}`}}, 2, 16 * time.Second, []string{"UNKNOWN Writes with it: KMSWriteKeyAgreed=True (AsExpected) is about a KEK ID that not every node names:"}},
		"a folder is refused":                {fleet{condition: map[string]string{contract.HealthReporting: "False Forbidden denied"}}, 1, 16 * time.Second, []string{"FAILS   Reporters: KMSHealthReporting=False (Forbidden): denied"}},
		"everything is encrypted":            {fleet{condition: map[string]string{contract.HealthReporting: "False ReportsEncrypted all"}}, 1, 16 * time.Second, []string{"FAILS   Reporters: KMSHealthReporting=False (ReportsEncrypted): all"}},
		"OpenShift's preflight does not run": {fleet{condition: map[string]string{contract.PreflightDegraded: "True Error no image"}}, 1, 16 * time.Second, []string{"FAILS   OpenShift's own preflight: EncryptionKMSPreflightControllerDegraded=True (Error): no image"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, took, stdout, stderr := tt.fleet.run(t, "preflight")
			if code != tt.code || took != tt.took {
				t.Errorf("%d after %s, want %d after %s", code, took, tt.code, tt.took)
			}
			text := strings.Join(strings.Fields(stdout+stderr), " ")
			for _, want := range tt.want {
				if !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
					t.Errorf("no %q in\n%s%s", want, stdout, stderr)
				}
			}
			for line := range strings.Lines(stdout) {
				if len(line) > 80 && !strings.Contains(line, "Next") {
					t.Errorf("%d columns: %s", len(line), line)
				}
			}
		})
	}
}

// This happens with the context of another cluster. Scripts range over the lists, so they must not be null.
func TestPreflightOfNothingHasEmptyLists(t *testing.T) {
	read := func(context.Context) (*view.Snapshot, error) { return &view.Snapshot{Now: taken}, nil }
	code, stdout, stderr := kubectl(t, environment{read: read}, "preflight", "-o", "json")
	for _, want := range []string{`"trips": []`, `"checks": []`, `"apiServers": []`} {
		if code != 2 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%d, %q: no %s in\n%s", code, stderr, want, stdout)
		}
	}
}

func TestPreflightOfAnotherNameThanAnAPIServersEndsAtOnce(t *testing.T) {
	for arg, want := range map[string]string{
		"a":             `error: "a" is a node; preflight takes an API server`,
		"kube-apiservr": `error: no API server and no node "kube-apiservr"; known are a, b, kube-apiserver`,
	} {
		code, took, _, stderr := (&fleet{}).run(t, "preflight", arg)
		if code != exitFailed || took != 0 || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: %d after %s, %q, want %q", arg, code, took, stderr, want)
		}
	}
}
