package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

var now = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// object decodes an object in YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = o.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// snapshot has objects in YAML, and kubeapiservers/cluster with the other parts: a condition, "TYPE STATUS REASON"; the
// report of a node, "NODE STATE" of key 2; "typed NODE KEY" for OpenShift's, an hour old; "runs NODE" for a node that
// its operator lists. With "unread" the operator's objects may exist.
func snapshot(t *testing.T, parts ...string) *Snapshot {
	t.Helper()
	s := &Snapshot{Now: now}
	var objects []*unstructured.Unstructured
	var conditions, typed, nodes []any
	for _, part := range parts {
		words := strings.Fields(part)
		switch {
		case part == "unread":
			s.OperatorUnread = true
		case strings.HasPrefix(part, "{"):
			objects = append(objects, object(t, part))
		case words[0] == "runs":
			nodes = append(nodes, map[string]any{"nodeName": words[1]})
		case words[0] == "typed":
			typed = append(typed, map[string]any{"nodeName": words[1], "keyID": words[2], "status": "Healthy", "remoteKeyID": "k",
				"lastCheckedTime": now.Add(-time.Hour).Format(time.RFC3339)})
		case len(words) == 3:
			conditions = append(conditions, map[string]any{"type": words[0], "status": words[1], "reason": words[2], "message": "m",
				"lastTransitionTime": "2026-05-08T12:00:00Z"})
		default:
			conditions = append(conditions, map[string]any{"type": contract.ConditionType(words[0]), "status": "True", "message": message(t, words[1])})
		}
	}
	r := contract.Resources[0]
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.Group + "/" + r.Version, "kind": r.Kind,
		"metadata": map[string]any{"name": r.Name}, "status": map[string]any{"conditions": conditions, "nodeStatuses": nodes,
			contract.EncryptionStatus: map[string]any{contract.HealthReports: typed}}}}
	s.Objects = append([]*unstructured.Unstructured{o}, objects...)
	return s
}

// message is a report on key 2 in this state.
func message(t *testing.T, state string) string {
	t.Helper()
	entry := contract.Entry{KeyID: "2", KEKID: "k", Status: contract.Status(state), LastChecked: now.Add(-time.Second), Interval: 30 * time.Second}
	switch state {
	case "unreadable":
		return "["
	case "stale":
		entry.Status, entry.LastChecked = contract.Healthy, now.Add(-time.Hour)
	}
	message, err := contract.EncodeMessage([]contract.Entry{entry})
	must.Succeed(t, err)
	return message
}

const (
	metadata   = "metadata: {name: kms-health-operator, namespace: ns}"
	deployment = "{apiVersion: apps/v1, kind: Deployment, " + metadata + ", spec: {replicas: 2}, status: {availableReplicas: %d}}"
	lease      = "{apiVersion: coordination.k8s.io/v1, kind: Lease, " + metadata + ", spec: {holderIdentity: operator-1}}"
	noHolder   = "{apiVersion: coordination.k8s.io/v1, kind: Lease, " + metadata + "}"
	leader     = "{apiVersion: v1, kind: Pod, metadata: {name: operator-1, namespace: ns}, status: {conditions: [{type: Ready, status: 'True'}]}}"
	kmsHealth  = "{apiVersion: kmshealth.openshift.io/v1alpha1, kind: KMSHealth, metadata: {name: api}}"
	fileKind   = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"
)

// available is the operator's Deployment with so many available pods.
func available(pods int) string { return fmt.Sprintf(deployment, pods) }

// annotated is a Deployment whose pods have the operator's file as an annotation.
func annotated(pods int, file string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, "+metadata+", spec: {replicas: 1, template: {metadata: {annotations: "+
		"{kmshealth.openshift.io/config: %q}}}}, status: {availableReplicas: %d}}", fileKind+file, pods)
}

func evaluate(t *testing.T, selected string, parts ...string) *Status {
	t.Helper()
	status, err := Evaluate(snapshot(t, parts...), selected)
	must.Succeed(t, err)
	return status
}

// problems are the summaries of a status.
func problems(s *Status) (all []string) {
	for _, p := range s.Problems {
		all = append(all, strings.TrimSpace(strings.Join(p.Nodes, " ")+" "+p.Summary))
	}
	return all
}

func TestVerdicts(t *testing.T) {
	absent := func(apiVersion, kind, name string) string {
		return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: " + name + "}, " +
			"status: {conditions: [{type: KMSHealthReporting, status: 'False', reason: NoPods}]}}"
	}
	const rolledUp, stopped = "KMSPluginsDegraded False AsExpected", "the operator is not running: no replica is available"
	const stale = "stale by the node's clock: the reporter has stopped, or that clock is wrong"
	for name, tt := range map[string]struct {
		parts    []string
		want     Verdict
		summary  string // empty: any
		problems []string
	}{
		"healthy":           {[]string{"unread", "a healthy", "b healthy", rolledUp, "KMSHealthReporting True AsExpected", "KMSWriteKeyAgreed True AsExpected"}, Healthy, "Healthy: KMS plugins: 2 healthy.", nil},
		"without operator":  {[]string{"a healthy"}, Healthy, "Healthy: KMS plugins: 1 healthy.", nil},
		"error comes first": {[]string{"a stale", "b unhealthy", "c error"}, Unhealthy, "Unhealthy: KMS plugins: 1 unhealthy, 1 error, 1 stale.", []string{"c error", "b unhealthy", "a " + stale}},
		"unreadable":        {[]string{"a unreadable"}, NotKnown, "Not known: KMS plugins: 1 unreadable.", []string{"a unreadable"}},
		"nothing":           {[]string{"unread", "runs a"}, NotKnown, "Not known: no KMS plugin is reported.", []string{nothingReported}},
		"KMS is off":        {[]string{"unread", "KMSPluginsDegraded False NoPlugins", "KMSHealthReporting True NoPlugins", "KMSWriteKeyAgreed Unknown NoWriteKey"}, NotKnown, "Not known: no KMS plugin is reported.", []string{nothingReported}},
		"first enablement": {[]string{"unread", "KMSPluginsDegraded False Progressing", "KMSHealthReporting False Progressing"}, NotKnown,
			"Not known: kube-apiserver: KMSHealthReporting=False (Progressing); no KMS plugin is reported.", []string{"KMSHealthReporting=False (Progressing)"}},
		"a migration":       {[]string{"a healthy", "KMSWriteKeyAgreed False WriteKeyNotDeployed"}, Healthy, "", nil},
		"shown by a report": {[]string{"a unhealthy", "KMSPluginsDegraded True PluginUnhealthy"}, Unhealthy, "", []string{"a unhealthy"}},
		"a plugin that no report shows": {[]string{"a healthy", "KMSPluginsDegraded True PluginNotRunning"}, Unhealthy,
			"Unhealthy: kube-apiserver: KMSPluginsDegraded=True (PluginNotRunning); KMS plugins: 1 healthy.", []string{"KMSPluginsDegraded=True (PluginNotRunning)"}},
		// With external OIDC OpenShift runs no oauth-apiserver. Of an API server of the operator's file the selector is wrong.
		"no pods of one of OpenShift's":         {[]string{"a healthy", absent("operator.openshift.io/v1", "Authentication", "cluster")}, Healthy, "", nil},
		"no namespace of one of OpenShift's":    {[]string{"a healthy", strings.Replace(absent("operator.openshift.io/v1", "Authentication", "cluster"), "NoPods", "NamespaceMissing", 1)}, Healthy, "", nil},
		"no pods of one of the operator's file": {[]string{"a healthy", absent("kmshealth.openshift.io/v1alpha1", "KMSHealth", "api")}, NotKnown, "", []string{"KMSHealthReporting=False (NoPods)"}},
		// The conditions of a stopped operator are out of date.
		"the operator is stopped": {[]string{"a healthy", "KMSPluginsDegraded True PluginUnhealthy", available(0)}, NotKnown, "", []string{stopped}},
		// OpenShift's reporters leave a node's typed report behind when the node, or its API server, is removed. Its operator
		// lists nodes whose API server has no plugin yet.
		"KMS is turned on node by node": {[]string{lease, available(2), rolledUp, "runs a", "runs b", "a healthy", "KMSHealthReporting True AsExpected"}, Healthy, "", nil},
		"a node was replaced by b": {[]string{lease, available(2), rolledUp, "runs a", "runs b", "typed gone 2", "a healthy", "b healthy",
			"KMSHealthReporting True AsExpected"}, Healthy, "Healthy: KMS plugins: 2 healthy.", nil},
		"its API server was removed": {[]string{lease, available(2), rolledUp, "typed a 2", "typed b 2", "KMSHealthReporting False NoPods"}, NotKnown, "", []string{nothingReported}},
		"its pods are not found": {[]string{lease, available(2), rolledUp, "runs a", "KMSHealthReporting False NoPods"}, NotKnown, "",
			[]string{"a missing: no report yet", "KMSHealthReporting=False (NoPods)"}},
		"the operator expects it":         {[]string{lease, available(2), rolledUp, "runs a", "runs b", "a healthy", "KMSHealthReporting False ReportsMissing"}, NotKnown, "", []string{"b missing: no report yet"}},
		"its own reporter has stopped":    {[]string{lease, available(2), rolledUp, "typed b 2", "a healthy", "b stale", "KMSHealthReporting False ReporterStale"}, NotKnown, "", []string{"b " + stale}},
		"its clock is wrong":              {[]string{lease, available(2), rolledUp, "typed b 2", "a healthy", "b stale", "KMSHealthReporting True AsExpected"}, Healthy, "", nil},
		"nothing can be written any more": {[]string{lease, available(2), rolledUp, "a stale", "b stale", "KMSHealthReporting True AsExpected"}, NotKnown, "", []string{"a b " + stale}},
		"its clock is wrong, and it is not known whether an operator works": {[]string{"unread", lease, rolledUp, "a healthy", "b stale", "KMSHealthReporting True AsExpected"}, NotKnown, "", []string{"b " + stale}},
		"its clock is wrong, and another node does not report":              {[]string{lease, available(2), rolledUp, "a healthy", "b stale", "KMSHealthReporting Unknown Progressing"}, NotKnown, "", []string{"b " + stale, "KMSHealthReporting=Unknown (Progressing)"}},
		"the operator expected nothing before it stopped": {[]string{lease, available(0), rolledUp, "runs a", "runs b", "a healthy", "KMSHealthReporting True AsExpected"}, NotKnown, "",
			[]string{stopped, "b missing: no report yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := evaluate(t, "", tt.parts...)
			if s.Verdict != tt.want || tt.summary != "" && s.Summary != tt.summary || !slices.Equal(problems(s), tt.problems) {
				t.Errorf("%s, %q, %q", s.Verdict, s.Summary, problems(s))
			}
		})
	}
}

func TestEqualProblemsOfAllNodesAreOneAndPointAtTheKMS(t *testing.T) {
	entry := func(node, status, reason string) string {
		return fmt.Sprintf("{type: KMSHealthReporter_%s, message: %q}", node, fmt.Sprintf(
			`[{"keyID":"2","status":%q,"reason":%q,"detail":"of %s","lastChecked":%q}]`, status, reason, node, now.Format(time.RFC3339)))
	}
	for name, tt := range map[string]struct {
		status, reason, third string // the last of node c
		all                   bool
	}{
		"unhealthy":          {"unhealthy", "ReportedUnhealthy", "", true},
		"without a reason":   {"unhealthy", "", "", true},
		"one is healthy":     {"unhealthy", "ReportedUnhealthy", "healthy", false},
		"no answer in time":  {"error", "Timeout", "", true},
		"an error as answer": {"error", "ReportedUnhealthy", "", true}, // of most plugins that do not reach their KMS
		"no connection":      {"error", "ConnectFailed", "", false},
		"no socket":          {"error", "SocketMissing", "", false},
		"not known why":      {"error", "", "", false},
	} {
		conditions := []string{entry("a", tt.status, tt.reason), entry("b", tt.status, tt.reason)}
		if tt.third != "" {
			conditions = append(conditions, entry("c", tt.third, ""))
		}
		got, err := Evaluate(&Snapshot{Now: now, Objects: []*unstructured.Unstructured{object(t,
			"{apiVersion: operator.openshift.io/v1, kind: KubeAPIServer, metadata: {name: cluster}, status: {conditions: ["+strings.Join(conditions, ", ")+"]}}")}}, "")
		must.Succeed(t, err)
		p := got.Problems[0]
		if len(got.Problems) != 1 || !slices.Equal(p.Nodes, []string{"a", "b"}) || p.AllNodes != tt.all || p.Detail != "of a\nof b" {
			t.Errorf("%s: %+v", name, got.Problems)
		}
	}
}

// The verdict follows the condition's status for every reason: no reason turns a problem into a healthy cluster.
func TestConditionsDecideByTheTableOfReasons(t *testing.T) {
	for _, row := range contract.RollupReasons {
		for conditionType, status := range map[string]string{contract.PluginsDegraded: row.Degraded, contract.HealthReporting: row.Reporting} {
			if status == "" {
				continue
			}
			want := Healthy
			switch {
			case conditionType == contract.PluginsDegraded && status == "True":
				want = Unhealthy
			case status == "Unknown", conditionType == contract.HealthReporting && status == "False":
				want = NotKnown
			}
			if s := evaluate(t, "", "a healthy", conditionType+" "+status+" "+row.Name); s.Verdict != want {
				t.Errorf("%s=%s (%s): %s, want %s", conditionType, status, row.Name, s.Verdict, want)
			}
		}
	}
}

func TestTheOperatorItself(t *testing.T) {
	rejected := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: kms-health-operator-config, namespace: ns}, data: {config.yaml: %q}}", fileKind+"nonsense: 1\n")
	const describe, logs = "oc describe deployments,pods -n ns -l app.kubernetes.io/name=kms-health-operator", "oc logs -n ns -l app.kubernetes.io/name=kms-health-operator --prefix --tail=20"
	for name, tt := range map[string]struct {
		parts    []string
		state    OperatorState
		verdict  Verdict
		problems string // a part of them
		next     string
	}{
		"works":                         {[]string{available(2), lease}, OperatorWorks, Healthy, "", ""},
		"its pod is Ready":              {[]string{available(0), lease, leader}, OperatorWorks, Healthy, "", ""},
		"scaled to 0":                   {[]string{strings.Replace(available(0), "replicas: 2", "replicas: 0", 1), lease}, OperatorNotRunning, NotKnown, "the operator is not running: no replica is available", describe},
		"no Deployment":                 {[]string{lease}, OperatorNotRunning, NotKnown, "the operator is not running: no replica is available", describe},
		"Deployment not read":           {[]string{lease, "unread"}, OperatorNotKnown, Healthy, "", ""},
		"not installed":                 {nil, OperatorNotInstalled, Healthy, "", ""},
		"not known":                     {[]string{"unread"}, OperatorNotKnown, Healthy, "", ""},
		"not running":                   {[]string{available(0), lease}, OperatorNotRunning, NotKnown, "the operator is not running: no replica is available", describe},
		"no holder":                     {[]string{available(2), noHolder}, OperatorWorks, Healthy, "", ""},
		"no holder, not available":      {[]string{available(0), noHolder}, OperatorNotRunning, NotKnown, "no replica is available", describe},
		"no Lease":                      {[]string{available(1)}, OperatorWorks, Healthy, "", ""},
		"down, Lease forbidden":         {[]string{available(0), "unread"}, OperatorNotRunning, NotKnown, "the operator is not running: no replica is available", ""},
		"up, Lease forbidden":           {[]string{available(1), "unread"}, OperatorWorks, Healthy, "", ""},
		"rejected":                      {[]string{available(2), lease, rejected}, OperatorWorks, Unhealthy, "configuration is rejected", "oc edit configmap -n ns kms-health-operator-config"},
		"rejected, of the pod":          {[]string{lease, annotated(0, "nonsense: 1")}, OperatorNotRunning, Unhealthy, "configuration is rejected: a pod with it does not become Ready", logs},
		"valid, of the pod":             {[]string{lease, annotated(0, "apiServers: []")}, OperatorNotRunning, NotKnown, "no replica is available", ""},
		"of another operator, rejected": {[]string{strings.Replace(rejected, "namespace: ns", "namespace: former", 1), available(1), lease}, OperatorWorks, Healthy, "", ""},
		// The operator reads no ConfigMap then; kubectl apply leaves the one from before behind.
		"valid, of the pod, and an old ConfigMap": {[]string{rejected, lease, annotated(1, "apiServers: []"), rejected}, OperatorWorks, Healthy, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := evaluate(t, "", append(tt.parts, "a healthy", "KMSPluginsDegraded False AsExpected")...)
			if got.Operator.State != tt.state || got.Verdict != tt.verdict || !strings.Contains(strings.Join(problems(got), "; "), tt.problems) || (tt.problems == "") != (len(got.Problems) == 0) {
				t.Errorf("%+v, %s, %q", got.Operator, got.Verdict, problems(got))
			}
			if tt.next != "" && got.Problems[0].Next != tt.next {
				t.Errorf("%+v", got.Problems[0].Next)
			}
			if strings.HasPrefix(name, "rejected") && !strings.Contains(got.Problems[0].Detail, "nonsense") {
				t.Errorf("no text of the error: %q", got.Problems[0].Detail)
			}
		})
	}
	s := snapshot(t, "a healthy")
	s.Namespace = "x"
	elsewhere, err := Evaluate(s, "")
	if p := elsewhere.Problems; err != nil || len(p) != 1 || elsewhere.Verdict != NotKnown || p[0].Fix != "name the operator's namespace by -n, or omit -n" || p[0].DoNot != "" {
		t.Errorf("%+v, %v", p, err)
	}
	if p := evaluate(t, "").Problems; len(p) != 1 || !strings.HasPrefix(p[0].Summary, "the operator is not installed") || p[0].DoNot != "" {
		t.Errorf("%+v", p)
	}
}

// Without the right to create the KMSHealth the operator has no object on which to report that.
func TestAnAPIServerWithoutItsKMSHealthIsAProblem(t *testing.T) {
	file := func(state, plugins string) string {
		return annotated(1, "managementState: "+state+"\napiServers: [{name: api, resource: kmshealths, namespace: x, podSelector: {a: b}, plugins: ["+plugins+"]}]\n")
	}
	const plugin = "{endpoint: 'unix:///run/kmsplugin/kms-1.sock', role: Write}"
	for name, tt := range map[string]struct {
		parts    []string
		selected string
		want     Verdict
	}{
		"it does not exist":       {[]string{file("Managed", plugin)}, "", NotKnown},
		"it exists":               {[]string{file("Managed", plugin), kmsHealth}, "", Healthy},
		"another one is selected": {[]string{file("Managed", plugin)}, "kube-apiserver", Healthy},
		"KMS is off":              {[]string{file("Managed", "")}, "", Healthy},
		"it was removed":          {[]string{file("Removed", plugin)}, "", Healthy},
	} {
		got := evaluate(t, tt.selected, append(tt.parts, "a healthy", lease)...)
		if got.Verdict != tt.want || tt.want == NotKnown && (got.Problems[0].APIServer != "api" || got.Problems[0].Next == "") {
			t.Errorf("%s: %s, %+v", name, got.Verdict, got.Problems)
		}
	}
}

// A message lists a write key first even where another provider encrypts: while KMS is turned on or off. On OpenShift it
// stays so after a return to identity, because OpenShift keeps the former key's plugin. OpenShift's own reporter has the
// newest key first, with which no API server may write yet.
func TestPluginIsTheWriterUnlessNoneIs(t *testing.T) {
	for condition, want := range map[string]string{"True AsExpected": "a3false a2false b2true", "Unknown Settling": "a3false a2false b2true", "Unknown NoWriteKey": "a3false a2false b2false"} {
		got := ""
		for _, p := range evaluate(t, "", "typed a 3", "typed a 2", "typed b 3", "typed b 2", "b healthy", "KMSWriteKeyAgreed "+condition).APIServers[0].Plugins {
			got += fmt.Sprint(" ", p.Node, p.KeyID, p.Write)
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}

// The reasons come from library-go's condition and migration controllers. Encrypted stays True during a rotation.
func TestOnlyAMigrationUnderWayIsNotAsExpected(t *testing.T) {
	for condition, want := range map[string]bool{"Encrypted True EncryptionCompleted": true, "Encrypted False EncryptionDisabled": true, "Encrypted False DecryptionCompleted": true,
		"Encrypted False DecryptionInProgress": false, "Encrypted False EncryptionInProgress": false,
		"EncryptionMigrationControllerProgressing True Migrating": false, "EncryptionMigrationControllerProgressing False AsExpected": true, "EncryptionMigrationControllerDegraded True Error": false} {
		if all := evaluate(t, "", "a healthy", condition).APIServers[0].Conditions; len(all) != 1 || AsExpected(&all[0]) != want {
			t.Errorf("%s: %+v, want %t", condition, all, want)
		}
	}
}

func TestOneAPIServerOrNodeIsSelected(t *testing.T) {
	parts := []string{kmsHealth, "a healthy", "b unhealthy", "KMSPluginsDegraded True PluginNotRunning"}
	for selected, want := range map[string]string{"": "kube-apiserver 2,api 0 Unhealthy", "a": "kube-apiserver 1 Healthy", "b": "kube-apiserver 1 Unhealthy", "kube-apiserver": "kube-apiserver 2 Unhealthy", "api": "api 0 NotKnown",
		"node/a": "kube-apiserver 1 Healthy", "kubeapiservers": "kube-apiserver 2 Unhealthy", "kubeapiservers/cluster": "kube-apiserver 2 Unhealthy", "kmshealths/api": "api 0 NotKnown",
		"kubeapiservers.operator.openshift.io/cluster": "kube-apiserver 2 Unhealthy"} {
		got := evaluate(t, selected, parts...)
		var all []string
		for _, a := range got.APIServers {
			all = append(all, fmt.Sprintf("%s %d", a.Name, len(a.Plugins)))
		}
		if text := strings.Join(all, ",") + " " + string(got.Verdict); text != want {
			t.Errorf("%q: %q, want %q", selected, text, want)
		}
	}
	// The operator does not expect it, but it is no wrong name.
	evaluate(t, "c", lease, available(2), "runs c", "a healthy", "KMSPluginsDegraded False AsExpected", "KMSHealthReporting True AsExpected")
	if _, err := Evaluate(snapshot(t, parts...), "c"); err == nil || err.Error() != `no API server and no node "c"; known are a, api, b, kube-apiserver` {
		t.Error(err)
	}
}
