//go:build integration

package operator

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// base is what there is for a target with reporters, whatever the delivery.
func base(target, namespace string, secrets string, more ...string) []string {
	return append([]string{
		"ClusterRole kms-health-reporter-" + target,
		"ClusterRoleBinding kms-health-reporter-" + target + ": " + namespace + "/kms-health-reporter-" + target,
		"Role " + targetNamespaces[target] + "/kms-health-operator-" + target + ": " + secrets,
		"ServiceAccount " + namespace + "/kms-health-reporter-" + target,
		"ValidatingAdmissionPolicy kms-health-reporter",
		"ValidatingAdmissionPolicyBinding kms-health-reporter",
	}, more...)
}

func role(target, secrets string) string {
	return "Role " + targetNamespaces[target] + "/kms-health-operator-" + target + ": " + secrets
}

func onNodes(format string, rest ...any) []string {
	var lines []string
	for _, node := range nodeNames {
		lines = append(lines, fmt.Sprintf(format, append([]any{node}, rest...)...))
	}
	return lines
}

func setProfile(t *testing.T, profile string) {
	t.Helper()
	content := map[string]any{}
	if profile != "" {
		content = map[string]any{"tlsSecurityProfile": map[string]any{"type": profile, map[string]string{"Old": "old", "Modern": "modern", "Intermediate": "intermediate"}[profile]: map[string]any{}}}
	}
	applyObject(t, apiServerGVR, "", map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": map[string]any{"name": "cluster"}, "spec": content})
}

func TestCompanionsFollowTheirPodsThroughAMigrationAndAwayAgain(t *testing.T) {
	const target = "kube-apiserver"
	h := newHouse(t)
	file := func(interval string) string {
		return `probe: {interval: ` + interval + `}
targets:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
  serving: {address: "0.0.0.0:9180", secret: serving}
`
	}
	h.configure(file("30s"))
	h.start("")

	// KMS is off.
	setEncryption(t, target, encryption("aescbc", "identity"), "1")
	for _, node := range nodeNames {
		runStatic(t, node, staticPod("1", false))
	}
	t.Cleanup(func() { removeStatics(t); setProfile(t, "") })
	const config = "encryption-config"
	awaitObjects(t, "nothing while KMS is off", h.before, role(target, config+" "+config+"-1"))

	companion := func(node, set, interval, tls string) string {
		return fmt.Sprintf("companion on %s, reporter:1: %s every %s to kubeapiservers, %s", node, set, interval, tls)
	}
	const intermediate, old = "VersionTLS12 with 6 suites", "VersionTLS10 with 18 suites"
	roll := func(revision string) {
		for _, node := range nodeNames {
			runStatic(t, node, staticPod(revision, false))
		}
	}

	// It is turned on: the live Secret first, then pod by pod.
	setEncryption(t, target, encryption("1", "aescbc", "identity"), "2")
	runStatic(t, nodeNames[0], staticPod("2", false))
	awaitObjects(t, "one pod has the plugin", h.before, base(target, home, "encryption-config encryption-config-1 encryption-config-2",
		companion("master-0", "1W", "30s", intermediate))...)
	roll("2")
	awaitObjects(t, "all pods have the plugin", h.before, base(target, home, "encryption-config encryption-config-2",
		onNodes(companion("%s", "1W", "30s", intermediate))...)...)
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")

	// A second key, read at first, on one node after the other.
	setEncryption(t, target, encryption("1", "2", "identity"), "3")
	runStatic(t, nodeNames[0], staticPod("3", false))
	awaitObjects(t, "old pods keep to their plugin", h.before, base(target, home, "encryption-config encryption-config-2 encryption-config-3",
		companion("master-0", "1W+2R", "30s", intermediate), companion("master-1", "1W", "30s", intermediate), companion("master-2", "1W", "30s", intermediate))...)
	roll("3")
	setEncryption(t, target, encryption("2", "1", "identity"), "4")
	roll("4")
	awaitObjects(t, "the second key writes", h.before, base(target, home, "encryption-config encryption-config-4",
		onNodes(companion("%s", "2W+1R", "30s", intermediate))...)...)
	setEncryption(t, target, encryption("2", "identity"), "5")
	roll("5")
	awaitObjects(t, "the first key is gone", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "30s", intermediate))...)...)

	// What is live replaces no pod.
	uids := podUIDs(t, "kmshealth.openshift.io/target="+target)
	h.configure(file("10s"))
	awaitObjects(t, "another interval", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", intermediate))...)...)
	setProfile(t, "Old")
	awaitObjects(t, "another TLS profile", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", old))...)...)
	if now := podUIDs(t, "kmshealth.openshift.io/target="+target); !maps.Equal(uids, now) {
		t.Errorf("pods were replaced for an interval or a TLS profile: %v, now %v", uids, now)
	}

	// Off, by way of a migration.
	setEncryption(t, target, encryption("aescbc", "2", "identity"), "6")
	roll("6")
	awaitObjects(t, "the plugin still reads", h.before, base(target, home, "encryption-config encryption-config-6",
		onNodes(companion("%s", "2R", "10s", old))...)...)
	setEncryption(t, target, encryption("aescbc", "identity"), "7")
	runStatic(t, nodeNames[0], staticPod("7", false))
	awaitObjects(t, "old pods still read", h.before, base(target, home, "encryption-config encryption-config-6 encryption-config-7",
		companion("master-1", "2R", "10s", old), companion("master-2", "2R", "10s", old))...)
	roll("7")
	awaitObjects(t, "off", h.before, role(target, "encryption-config encryption-config-7"))
	h.awaitNothingLeft("Role openshift-kube-apiserver/kms-health-operator-kube-apiserver")

	h.configure("managementState: Removed\n" + file("10s"))
	h.awaitNothingLeft()
	h.kill(syscall.SIGTERM)
}

// podUIDs are the UIDs of pods of ours, by name.
func podUIDs(t *testing.T, selector string) map[string]string {
	t.Helper()
	list, err := kube.CoreV1().Pods(home).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range list.Items {
		all[p.Name] = string(p.UID)
	}
	return all
}
