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

// resource is kubeapiservers/cluster with these conditions: "TYPE STATUS REASON", or the report of
// a node, "NODE STATE" of key 2.
func resource(t *testing.T, conditions ...string) *unstructured.Unstructured {
	t.Helper()
	var list []any
	for _, c := range conditions {
		fields := strings.Fields(c)
		if len(fields) == 3 {
			list = append(list, map[string]any{"type": fields[0], "status": fields[1], "reason": fields[2], "message": "m", "lastTransitionTime": "2026-05-08T12:00:00Z"})
			continue
		}
		entry := contract.Entry{KeyID: "2", KEKID: "k", Status: contract.Status(fields[1]), LastChecked: now.Add(-time.Second), Interval: 30 * time.Second}
		if fields[1] == "stale" {
			entry.Status, entry.LastChecked = contract.Healthy, now.Add(-time.Hour)
		}
		message, err := contract.EncodeMessage([]contract.Entry{entry})
		if err != nil {
			t.Fatal(err)
		}
		if fields[1] == "unreadable" {
			message = "["
		}
		list = append(list, map[string]any{"type": contract.ConditionType(fields[0]), "status": "True", "message": message})
	}
	r := contract.Resources[0]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.Group + "/" + r.Version, "kind": r.Kind, "metadata": map[string]any{"name": r.Name}, "status": map[string]any{"conditions": list},
	}}
}

const (
	deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: kms-health-operator, namespace: ns}, spec: {replicas: 2}, status: {availableReplicas: %d}}"
	lease      = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kms-health-operator, namespace: ns}, spec: {holderIdentity: %q}}"
)

// annotated is a Deployment whose pods have the operator's file as an annotation.
func annotated(file string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: kms-health-operator, namespace: ns}, spec: {replicas: 1, template: "+
		"{metadata: {annotations: {kmshealth.openshift.io/config: %q}}}}}", "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"+file)
}

func evaluate(t *testing.T, s *Snapshot, selected string) *Status {
	t.Helper()
	s.Now = now
	status, err := Evaluate(s, selected)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// problems are the summaries of a status.
func problems(s *Status) (all []string) {
	for _, p := range s.Problems {
		all = append(all, strings.TrimSpace(p.Node+" "+p.Summary))
	}
	return all
}

func TestVerdicts(t *testing.T) {
	good := []string{"KMSPluginsDegraded False AsExpected", "KMSHealthReporting True AsExpected", "KMSWriteKeyAgreed True AsExpected"}
	for name, tt := range map[string]struct {
		conditions []string
		want       Verdict
		summary    string
		problems   []string
	}{
		"healthy":           {append([]string{"a healthy", "b healthy"}, good...), Healthy, "Healthy: 2 KMS plugins healthy, on 2 nodes.", nil},
		"without operator":  {[]string{"a healthy"}, Healthy, "Healthy: 1 KMS plugin healthy, on 1 node.", nil},
		"error comes first": {[]string{"a stale", "b unhealthy", "c error"}, Unhealthy, "Unhealthy: 2 of 3 KMS plugins unhealthy, on 2 of 3 nodes; 1 not known.", []string{"c error", "b unhealthy", "a stale: the reporter has stopped reporting"}},
		"unreadable":        {[]string{"a unreadable"}, NotKnown, "Not known: the state of 1 of 1 KMS plugin is not known.", []string{"a unreadable"}},
		"nothing":           {nil, NotKnown, "Not known: no KMS plugin is reported.", []string{nothingReported}},
		"KMS is off":        {[]string{"KMSPluginsDegraded False NoPlugins", "KMSHealthReporting True NoPlugins", "KMSWriteKeyAgreed Unknown NoWriteKey"}, NotKnown, "Not known: no KMS plugin is reported.", []string{nothingReported}},
		"first enablement":  {[]string{"KMSPluginsDegraded False Progressing", "KMSHealthReporting False Progressing"}, NotKnown, "Not known: kube-apiserver: KMSHealthReporting=False (Progressing); no KMS plugin is reported.", []string{"KMSHealthReporting=False (Progressing)"}},
		"no pods":           {[]string{"a healthy", "KMSHealthReporting False NamespaceMissing"}, Healthy, "Healthy: 1 KMS plugin healthy, on 1 node.", nil},
		"a wrong selector": {[]string{"a healthy", "KMSHealthReporting False NoPods"}, NotKnown,
			"Not known: kube-apiserver: KMSHealthReporting=False (NoPods); 1 KMS plugin healthy, on 1 node.", []string{"KMSHealthReporting=False (NoPods)"}},
		"a migration":       {[]string{"a healthy", "KMSWriteKeyAgreed False WriteKeyNotDeployed"}, Healthy, "Healthy: 1 KMS plugin healthy, on 1 node.", nil},
		"shown by a report": {[]string{"a unhealthy", "KMSPluginsDegraded True PluginUnhealthy"}, Unhealthy, "Unhealthy: 1 of 1 KMS plugin unhealthy, on 1 of 1 node.", []string{"a unhealthy"}},
		"a plugin that no report shows": {[]string{"a healthy", "KMSPluginsDegraded True PluginNotRunning"}, Unhealthy,
			"Unhealthy: kube-apiserver: KMSPluginsDegraded=True (PluginNotRunning); 1 KMS plugin healthy, on 1 node.", []string{"KMSPluginsDegraded=True (PluginNotRunning)"}},
		"delivery fails": {[]string{"a healthy", "KMSHealthReporting False Forbidden"}, NotKnown,
			"Not known: kube-apiserver: KMSHealthReporting=False (Forbidden); 1 KMS plugin healthy, on 1 node.", []string{"KMSHealthReporting=False (Forbidden)"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{resource(t, tt.conditions...)}, OperatorUnread: true}, "")
			if s.Verdict != tt.want || s.Summary != tt.summary || !slices.Equal(problems(s), tt.problems) {
				t.Errorf("%s, %q, %q", s.Verdict, s.Summary, problems(s))
			}
		})
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
			case row.Name == contract.NamespaceMissing:
			case status == "Unknown", conditionType == contract.HealthReporting && status == "False":
				want = NotKnown
			}
			c := resource(t, "a healthy", conditionType+" "+status+" "+row.Name)
			if s := evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{c}}, ""); s.Verdict != want {
				t.Errorf("%s=%s (%s): %s, want %s", conditionType, status, row.Name, s.Verdict, want)
			}
		}
	}
}

func TestTheOperatorItself(t *testing.T) {
	configuration := func(text string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: kms-health-operator-config, namespace: ns}, data: {config.yaml: %q}}", text)
	}
	works := fmt.Sprintf(lease, "operator-1")
	for name, tt := range map[string]struct {
		objects  []string
		unread   bool
		state    OperatorState
		verdict  Verdict
		problems string // a part of them
		next     string
	}{
		"works": {[]string{fmt.Sprintf(deployment, 2), works}, false, OperatorWorks, Healthy, "", ""},
		"its pod is Ready": {[]string{fmt.Sprintf(deployment, 0), fmt.Sprintf(lease, "operator-1"), "{apiVersion: v1, kind: Pod, metadata: {name: operator-1, namespace: ns}, " +
			"status: {conditions: [{type: Ready, status: 'True'}]}}"}, false, OperatorWorks, Healthy, "", ""},
		"scaled to 0": {[]string{strings.Replace(fmt.Sprintf(deployment, 0), "replicas: 2", "replicas: 0", 1), works}, false, OperatorNotRunning, NotKnown, "its Deployment is scaled to 0",
			"oc describe deployments,pods -n ns -l app.kubernetes.io/name=kms-health-operator"},
		"no Deployment":         {[]string{works}, false, OperatorNotRunning, NotKnown, "it has no Deployment, and the pod that its Lease names is not Ready", "oc describe deployments,pods -n ns -l app.kubernetes.io/name=kms-health-operator"},
		"Deployment not read":   {[]string{works}, true, OperatorNotKnown, Healthy, "", ""},
		"not installed":         {nil, false, OperatorNotInstalled, Healthy, "", ""},
		"not known":             {nil, true, OperatorNotKnown, Healthy, "", ""},
		"not running":           {[]string{fmt.Sprintf(deployment, 0), fmt.Sprintf(lease, "operator-1")}, false, OperatorNotRunning, NotKnown, "the operator is not running: 0 of 2 replicas are available", "oc describe deployments,pods -n ns -l app.kubernetes.io/name=kms-health-operator"},
		"standby only":          {[]string{fmt.Sprintf(deployment, 2), fmt.Sprintf(lease, "")}, false, OperatorStandby, NotKnown, "standby only: of 2 replicas, none holds the Lease", "oc logs -n ns -l app.kubernetes.io/name=kms-health-operator --prefix --tail=20"},
		"no Lease":              {[]string{fmt.Sprintf(deployment, 1)}, false, OperatorStandby, NotKnown, "standby only: of 1 replica, none", ""},
		"down, Lease forbidden": {[]string{fmt.Sprintf(deployment, 0)}, true, OperatorNotRunning, NotKnown, "the operator is not running: 0 of 2 replicas", ""},
		"up, Lease forbidden":   {[]string{fmt.Sprintf(deployment, 1)}, true, OperatorNotKnown, Healthy, "", ""},
		"not ready":             {[]string{fmt.Sprintf(deployment, 0), works}, false, OperatorNotRunning, NotKnown, "the operator is not running: 0 of 2 replicas", ""},
		"rejected":              {[]string{fmt.Sprintf(deployment, 2), works, configuration("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\nnonsense: 1\n")}, false, OperatorWorks, Unhealthy, "configuration is rejected", "oc edit configmap -n ns kms-health-operator-config"},
		"rejected, of the pod":  {[]string{works, annotated("nonsense: 1")}, false, OperatorNotRunning, Unhealthy, "configuration is rejected: a pod with it does not become Ready", "oc logs -n ns -l app.kubernetes.io/name=kms-health-operator --prefix --tail=20"},
		"valid, of the pod":     {[]string{works, annotated("apiServers: []")}, false, OperatorNotRunning, NotKnown, "0 of 1 replicas", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{OperatorUnread: tt.unread,
				Objects: []*unstructured.Unstructured{resource(t, "a healthy", "KMSPluginsDegraded False AsExpected")}}
			for _, text := range tt.objects {
				s.Objects = append(s.Objects, object(t, text))
			}
			got := evaluate(t, s, "")
			if got.Operator.State != tt.state || got.Verdict != tt.verdict || !strings.Contains(strings.Join(problems(got), "; "), tt.problems) || (tt.problems == "") != (len(got.Problems) == 0) {
				t.Errorf("%+v, %s, %q", got.Operator, got.Verdict, problems(got))
			}
			if tt.next != "" && got.Problems[0].Next.Command != tt.next {
				t.Errorf("%+v", got.Problems[0].Next)
			}
			if strings.HasPrefix(name, "rejected") && !strings.Contains(got.Problems[0].Detail, "nonsense") {
				t.Errorf("no text of the error: %q", got.Problems[0].Detail)
			}
		})
	}
	elsewhere := evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy")}, Namespace: "x"}, "")
	if p := elsewhere.Problems; len(p) != 1 || elsewhere.Verdict != NotKnown || p[0].Fix != "name the operator's namespace by -n, or omit -n" || p[0].DoNot != "" {
		t.Errorf("%+v", p)
	}
	if s := evaluate(t, &Snapshot{}, ""); len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0].Summary, "the operator is not installed") {
		t.Errorf("%q", problems(s))
	}
}

// Without the right to create the KMSHealth the operator has no object on which to report that.
func TestAnAPIServerWithoutItsKMSHealthIsAProblem(t *testing.T) {
	file := func(state, plugins string) string {
		target := "name: other, resource: kmshealths, namespace: x, podSelector: {a: b}, plugins: [" + plugins + "]"
		return annotated("managementState: " + state + "\napiServers: [{" + target + "}]\n")
	}
	const plugin = "{endpoint: 'unix:///run/kmsplugin/kms-1.sock', role: Write}"
	other := "{apiVersion: kmshealth.openshift.io/v1alpha1, kind: KMSHealth, metadata: {name: other}}"
	for name, tt := range map[string]struct {
		objects  []string
		selected string
		want     Verdict
	}{
		"it does not exist":       {[]string{file("Managed", plugin)}, "", NotKnown},
		"it exists":               {[]string{file("Managed", plugin), other}, "", Healthy},
		"another one is selected": {[]string{file("Managed", plugin)}, "kube-apiserver", Healthy},
		"KMS is off":              {[]string{file("Managed", "")}, "", Healthy},
		"it was removed":          {[]string{file("Removed", plugin)}, "", Healthy},
	} {
		s := &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy"), object(t, fmt.Sprintf(lease, "p"))}}
		for _, text := range tt.objects {
			s.Objects = append(s.Objects, object(t, text))
		}
		_ = unstructured.SetNestedField(s.Objects[2].Object, int64(1), "status", "availableReplicas")
		got := evaluate(t, s, tt.selected)
		if got.Verdict != tt.want || tt.want == NotKnown && (got.Problems[0].APIServer != "other" || got.Problems[0].Next == nil) {
			t.Errorf("%s: %s, %+v", name, got.Verdict, got.Problems)
		}
	}
}

// OpenShift's reporters leave a node's typed report behind when the node, or its API server, is removed. Its operator
// lists nodes whose API server has no plugin yet.
func TestNodesThatTheOperatorDoesNotExpectAreNoProblem(t *testing.T) {
	const works, stopped = 2, 0
	rolledUp := "KMSPluginsDegraded False AsExpected"
	for name, tt := range map[string]struct {
		available  int
		conditions []string
		typed      []string // nodes with a typed report, an hour old
		want       Verdict
		problems   []string
	}{
		"KMS is turned on node by node": {works, []string{"a healthy", "KMSHealthReporting True AsExpected"}, nil, Healthy, nil},
		"a node was replaced by b":      {works, []string{"a healthy", "b healthy", "KMSHealthReporting True AsExpected"}, []string{"gone"}, Healthy, nil},
		"its API server was removed":    {works, []string{"KMSHealthReporting False NoPods"}, []string{"a", "b"}, NotKnown, []string{nothingReported}},
		"its pods are not found":        {works, []string{"KMSHealthReporting False NoPods"}, nil, NotKnown, []string{"a not reported yet", "b not reported yet", "KMSHealthReporting=False (NoPods)"}},
		"the operator expects it":       {works, []string{"a healthy", "KMSHealthReporting False ReportsMissing"}, nil, NotKnown, []string{"b not reported yet"}},
		"its own reporter has stopped": {works, []string{"a healthy", "b stale", "KMSHealthReporting True AsExpected"}, []string{"b"}, NotKnown,
			[]string{"b stale: the reporter has stopped reporting"}},
		"the operator does not run": {stopped, []string{"a healthy", "KMSHealthReporting True AsExpected"}, nil, NotKnown,
			[]string{"the operator is not running: 0 of 2 replicas are available", "b not reported yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := resource(t, append(tt.conditions, rolledUp)...)
			var reports []any
			for _, node := range tt.typed {
				reports = append(reports, map[string]any{"nodeName": node, "keyID": "2", "status": "Healthy", "remoteKeyID": "k", "lastCheckedTime": "2026-05-08T11:30:00Z"})
			}
			_ = unstructured.SetNestedSlice(o.Object, reports, "status", "encryptionStatus", "healthReports")
			_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"nodeName": "a"}, map[string]any{"nodeName": "b"}}, "status", "nodeStatuses")
			snapshot := &Snapshot{Objects: []*unstructured.Unstructured{o, object(t, fmt.Sprintf(deployment, tt.available)), object(t, fmt.Sprintf(lease, "p"))}}
			s := evaluate(t, snapshot, "")
			if s.Verdict != tt.want || !slices.Equal(problems(s), tt.problems) {
				t.Errorf("%s, %q", s.Verdict, problems(s))
			}
			if b, err := Evaluate(snapshot, "b"); err != nil {
				t.Errorf("b is no name: %v, %+v", err, b)
			}
		})
	}
}

// A report lists a write key first even where another provider encrypts: while KMS is turned on or off. On OpenShift it
// stays so after a return to identity, because OpenShift keeps the former key's plugin.
func TestPluginIsTheWriterUnlessNoneIs(t *testing.T) {
	for condition, want := range map[string]bool{"KMSWriteKeyAgreed True AsExpected": true, "KMSWriteKeyAgreed Unknown Settling": true, "KMSWriteKeyAgreed Unknown NoWriteKey": false} {
		s := evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy", condition)}}, "")
		if got := s.APIServers[0].Plugins[0].Write; got != want {
			t.Errorf("%s: %t, want %t", condition, got, want)
		}
	}
}

// The reasons come from library-go's condition and migration controllers. Encrypted stays True during a rotation.
func TestOnlyAMigrationUnderWayIsNotAsExpected(t *testing.T) {
	for condition, want := range map[string]bool{"Encrypted True EncryptionCompleted": true, "Encrypted False EncryptionDisabled": true, "Encrypted False DecryptionCompleted": true,
		"Encrypted False DecryptionInProgress": false, "Encrypted False EncryptionInProgress": false,
		"EncryptionMigrationControllerProgressing True Migrating": false, "EncryptionMigrationControllerProgressing False AsExpected": true, "EncryptionMigrationControllerDegraded True Error": false} {
		s := evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy", condition)}}, "")
		if all := s.APIServers[0].Conditions; len(all) != 1 || AsExpected(&all[0]) != want {
			t.Errorf("%s: %+v, want %t", condition, all, want)
		}
	}
}

// With external OIDC OpenShift runs no oauth-apiserver. For an API server of the operator's file, no pods means a wrong
// selector.
func TestAnAPIServerWithoutPodsIsAProblemUnlessItIsOpenShifts(t *testing.T) {
	const conditions = "status: {conditions: [{type: KMSHealthReporting, status: 'False', reason: NoPods}]}}"
	for text, want := range map[string]Verdict{
		"{apiVersion: operator.openshift.io/v1, kind: Authentication, metadata: {name: cluster}, ": Healthy,
		"{apiVersion: kmshealth.openshift.io/v1alpha1, kind: KMSHealth, metadata: {name: api}, ":   NotKnown,
	} {
		s := &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy"), object(t, text+conditions)}}
		if got := evaluate(t, s, ""); got.Verdict != want {
			t.Errorf("%s: %s, %q, want %s", text, got.Verdict, problems(got), want)
		}
	}
}

// The conditions of a stopped operator are out of date.
func TestConditionsOfAnOperatorThatDoesNotRunDoNotCount(t *testing.T) {
	s := &Snapshot{Objects: []*unstructured.Unstructured{resource(t, "a healthy", "KMSPluginsDegraded True PluginUnhealthy"), object(t, fmt.Sprintf(deployment, 0))}}
	if got := evaluate(t, s, ""); got.Verdict != NotKnown || len(got.Problems) != 1 {
		t.Errorf("%s, %q", got.Verdict, problems(got))
	}
}

// A message has the write key first. OpenShift's own reporter has the newest key first, with which no API server may
// write yet.
func TestTypedReportsDoNotShowTheWriteKey(t *testing.T) {
	o := resource(t, "b healthy")
	var typed []any
	for _, node := range []string{"a", "b"} {
		for _, key := range []string{"3", "2"} {
			typed = append(typed, map[string]any{"nodeName": node, "keyID": key, "status": "Healthy", "remoteKeyID": "k" + key,
				"lastCheckedTime": now.Format(time.RFC3339)})
		}
	}
	if err := unstructured.SetNestedSlice(o.Object, typed, append(slices.Clone(contract.Resources[0].EncryptionStatus), contract.HealthReports)...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range evaluate(t, &Snapshot{Objects: []*unstructured.Unstructured{o}}, "").APIServers[0].Plugins {
		got = append(got, fmt.Sprint(p.Node, p.KeyID, p.Write))
	}
	if want := []string{"a3false", "a2false", "b2true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOneAPIServerOrNodeIsSelected(t *testing.T) {
	own := object(t, "{apiVersion: kmshealth.openshift.io/v1alpha1, kind: KMSHealth, metadata: {name: api}}")
	s := &Snapshot{Objects: []*unstructured.Unstructured{own, resource(t, "a healthy", "b unhealthy", "KMSPluginsDegraded True PluginNotRunning")}}
	for selected, want := range map[string]string{"": "kube-apiserver 2,api 0 Unhealthy", "a": "kube-apiserver 1 Healthy", "b": "kube-apiserver 1 Unhealthy", "kube-apiserver": "kube-apiserver 2 Unhealthy", "api": "api 0 NotKnown",
		"node/a": "kube-apiserver 1 Healthy", "kubeapiservers": "kube-apiserver 2 Unhealthy", "kubeapiservers/cluster": "kube-apiserver 2 Unhealthy", "kmshealths/api": "api 0 NotKnown"} {
		got := evaluate(t, s, selected)
		var all []string
		for _, a := range got.APIServers {
			all = append(all, fmt.Sprintf("%s %d", a.Name, len(a.Plugins)))
		}
		if text := strings.Join(all, ",") + " " + string(got.Verdict); text != want {
			t.Errorf("%q: %q, want %q", selected, text, want)
		}
	}
	if _, err := Evaluate(s, "c"); err == nil || err.Error() != `no API server and no node "c"; known are a, api, b, kube-apiserver` {
		t.Error(err)
	}
}
