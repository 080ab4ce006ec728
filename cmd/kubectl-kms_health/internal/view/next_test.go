package view

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheNextCommandWorksAsItIsTyped(t *testing.T) {
	const server = `{apiVersion: v1, kind: Pod, metadata: {name: kube-apiserver-a, namespace: openshift-kube-apiserver, labels: {apiserver: "true"}%s}, spec: {nodeName: a, containers: [{name: kube-apiserver, args: [kms-2.sock]}%s]}, status: {containerStatuses: [{name: %s, state: {%s}}]}}`
	const reporter = `{apiVersion: v1, kind: Pod, metadata: {name: kms-health-kube-apiserver-0a, namespace: ns, labels: {kmshealth.openshift.io/api-server: kube-apiserver}}, spec: {nodeName: a, containers: [{name: kms-health}]}, status: {containerStatuses: [{name: kms-health, state: {running: {}}}]}}`
	const mirror = `, annotations: {kubernetes.io/config.mirror: x}`
	pod := func(more, containers, waits, state string) string {
		return fmt.Sprintf(server, more, containers, waits, state)
	}
	for name, tt := range map[string]struct {
		condition string
		objects   []string
		want      string
	}{
		"the container with the socket": {"a unhealthy", []string{pod("", `, {name: vault, args: ["unix:///s/kms-2.sock"]}, {name: kms}`, "vault", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c vault --tail=20"},
		"the container of the key":      {"a unhealthy", []string{pod("", ", {name: vault-kms-plugin-1}, {name: vault-kms-plugin-2}", "vault-kms-plugin-2", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c vault-kms-plugin-2 --tail=20"},
		"the only plugin":               {"a error", []string{pod("", ", {name: kms}, {name: kms-health}, {name: other}", "kms", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c kms --tail=20"},
		"one that never started":        {"a error", []string{pod("", ", {name: kms}", "kms", "waiting: {reason: ImagePullBackOff}")}, "oc describe pod -n openshift-kube-apiserver kube-apiserver-a"},
		"a static pod":                  {"a error", []string{pod(mirror, ", {name: kms}", "kms", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c kms --tail=20"},
		"which of two is not known":     {"a error", []string{pod("", ", {name: kms-old}, {name: kms-new}", "x", "")}, "oc get pods -A --field-selector spec.nodeName=a"},
		"no pod":                        {"a error", nil, "oc get pods -A --field-selector spec.nodeName=a"},
		"a name that is no word":        {"a;reboot error", nil, ""},
		"a reporter's own pod":          {"a stale", []string{reporter}, "oc logs -n ns kms-health-kube-apiserver-0a -c kms-health --tail=20"},
		"a sidecar":                     {"a stale", []string{pod("", ", {name: kms-health}", "kms-health", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c kms-health --tail=20"},
		"a sidecar beside OpenShift's":  {"a stale", []string{pod("", ", {name: kms-health-reporter}, {name: kms-health}", "kms-health", "running: {}")}, "oc logs -n openshift-kube-apiserver kube-apiserver-a -c kms-health --tail=20"},
		"the newest reporter": {"a stale", []string{reporter, strings.NewReplacer("-0a", "-new", "namespace: ns", "namespace: ns, creationTimestamp: '2026-05-08T12:00:00Z'").Replace(reporter)},
			"oc logs -n ns kms-health-kube-apiserver-new -c kms-health --tail=20"},
		"no reporter":                  {"a stale", nil, "oc get node a"},
		"nothing for the delivery":     {"KMSHealthReporting False Forbidden", nil, ""},
		"the operator's pods":          {"KMSHealthReporting False Forbidden", []string{lease, leader}, "oc logs -n ns -l app.kubernetes.io/name=kms-health-operator --prefix --tail=20"},
		"a reporter that does not run": {"KMSPluginsDegraded True ReporterNotRunning", []string{lease, leader}, "oc get pods -A -o wide -l kmshealth.openshift.io/api-server=kube-apiserver"},
		"a plugin that does not run":   {"KMSPluginsDegraded True PluginNotRunning", []string{lease, leader}, "oc get pods -n openshift-kube-apiserver -o wide -l apiserver=true"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := evaluate(t, "", append(tt.objects, tt.condition, "unread")...).Problems[0].Next; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// On plain Kubernetes the operator's file names the API server's pods.
func TestTheNextCommandOfAKMSHealth(t *testing.T) {
	s := &Snapshot{Now: now}
	for _, text := range []string{
		fmt.Sprintf("{apiVersion: kmshealth.openshift.io/v1alpha1, kind: KMSHealth, metadata: {name: api}, status: {conditions: [{type: KMSHealthReporter_a, message: %q}]}}", message(t, "error")),
		fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: kms-health-operator-config, namespace: kms-health}, data: {config.yaml: %q}}", fileKind+
			"apiServers:\n- {name: api, resource: kmshealths, namespace: kube-system, podSelector: {component: api}, container: api, plugins: []}\n"),
		"{apiVersion: v1, kind: Pod, metadata: {name: api-a, namespace: kube-system, labels: {component: api}}, spec: {nodeName: a, containers: [{name: api}, {name: kms}]}, status: {containerStatuses: [{name: kms, state: {running: {}}}]}}",
	} {
		s.Objects = append(s.Objects, object(t, text))
	}
	got, err := Evaluate(s, "")
	if err != nil || len(got.Problems) != 1 || got.Problems[0].Next != "kubectl logs -n kube-system api-a -c kms --tail=20" {
		t.Errorf("%+v, %v", got, err)
	}
}
