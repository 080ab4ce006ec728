//go:build integration

package operator

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// base is what there is for an API server with reporters, whatever the delivery.
func base(server apiservers.Server, namespace string, secrets string, more ...string) []string {
	name := "kms-health-reporter-" + server.Name
	return append([]string{
		"ClusterRole " + name,
		"ClusterRoleBinding " + name + ": " + namespace + "/" + name,
		role(server, secrets),
		"ServiceAccount " + namespace + "/" + name,
	}, more...)
}

func role(server apiservers.Server, secrets string) string {
	return "Role " + server.Namespace + "/kms-health-operator-" + server.Name + ": " + secrets
}

// idle is what there is of a target whose KMS is off.
func idle(server apiservers.Server, secrets string) []string {
	return []string{role(server, secrets), "ClusterRole kms-health-reporter-" + server.Name}
}

func onNodes(format string) []string {
	var lines []string
	for _, node := range nodeNames {
		lines = append(lines, fmt.Sprintf(format, node))
	}
	return lines
}

func setProfile(t *testing.T, profile string) {
	t.Helper()
	content := map[string]any{}
	if profile != "" { // a Custom one without ciphers, which is not understood
		content = map[string]any{"tlsSecurityProfile": map[string]any{"type": profile, strings.ToLower(profile): map[string]any{}}}
	}
	applyObject(t, controlplane.ConfigGVR(controlplane.APIServers), "", map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": map[string]any{"name": "cluster"}, "spec": content})
}

func TestCompanionsFollowTheirPodsThroughAMigrationAndAwayAgain(t *testing.T) {
	target := apiservers.Kube
	op := newOperator(t)
	file := func(interval string) string { return every(interval, apiservers.Kube.Target(serving)) }
	op.configure(file("30s"))
	op.start("")

	// Nothing is encrypted, and there is no encryption config.
	removeEncryption(t, target)
	for _, node := range nodeNames {
		runStatic(t, node, plainPod("1"))
	}
	t.Cleanup(func() { removeStatics(t); setProfile(t, "") })
	const config = apiservers.EncryptionSecret
	awaitObjects(t, "nothing while KMS is off", op.before, idle(target, config+" "+config+"-1")...)

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
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "2")
	runStatic(t, nodeNames[0], staticPod("2", false))
	awaitObjects(t, "one pod has the plugin", op.before, base(target, operatorNamespace, "encryption-config encryption-config-1 encryption-config-2",
		companion("master-0", "1W", "30s", intermediate))...)
	roll("2")
	awaitObjects(t, "all pods have the plugin", op.before, base(target, operatorNamespace, "encryption-config encryption-config-2",
		onNodes(companion("%s", "1W", "30s", intermediate))...)...)
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")

	// A second key, read at first, on one node after the other.
	setEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "3")
	runStatic(t, nodeNames[0], staticPod("3", false))
	awaitObjects(t, "old pods keep to their plugin", op.before, base(target, operatorNamespace, "encryption-config encryption-config-2 encryption-config-3",
		companion("master-0", "1W+2R", "30s", intermediate), companion("master-1", "1W", "30s", intermediate), companion("master-2", "1W", "30s", intermediate))...)
	roll("3")
	setEncryption(t, target, apiservers.Encryption("2", "1", "identity"), "4")
	roll("4")
	awaitObjects(t, "the second key writes", op.before, base(target, operatorNamespace, "encryption-config encryption-config-4",
		onNodes(companion("%s", "2W+1R", "30s", intermediate))...)...)
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "5")
	roll("5")
	awaitObjects(t, "the first key is deleted", op.before, base(target, operatorNamespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "30s", intermediate))...)...)

	// What is live replaces no pod.
	uids := podUIDs(t, "kmshealth.openshift.io/target="+target.Name)
	op.configure(file("10s"))
	awaitObjects(t, "another interval", op.before, base(target, operatorNamespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", intermediate))...)...)
	setProfile(t, "Old")
	awaitObjects(t, "another TLS profile", op.before, base(target, operatorNamespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", old))...)...)
	if now := podUIDs(t, "kmshealth.openshift.io/target="+target.Name); !maps.Equal(uids, now) {
		t.Errorf("pods were replaced for an interval or a TLS profile: %v, now %v", uids, now)
	}

	// Off, by way of a migration.
	setEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "6")
	roll("6")
	awaitObjects(t, "the plugin still reads", op.before, base(target, operatorNamespace, "encryption-config encryption-config-6",
		onNodes(companion("%s", "2R", "10s", old))...)...)
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "7")
	runStatic(t, nodeNames[0], staticPod("7", false))
	awaitObjects(t, "old pods still read", op.before, base(target, operatorNamespace, "encryption-config encryption-config-6 encryption-config-7",
		companion("master-1", "2R", "10s", old), companion("master-2", "2R", "10s", old))...)
	roll("7")
	awaitObjects(t, "off", op.before, idle(target, "encryption-config encryption-config-7")...)
	op.awaitNothingLeft("Role openshift-kube-apiserver/kms-health-operator-kube-apiserver", "ClusterRole /kms-health-reporter-kube-apiserver")

	op.configure("managementState: Removed\n" + file("10s"))
	op.awaitNothingLeft()
	op.kill(syscall.SIGTERM)
}

// podUIDs are the UIDs of pods of ours, by name.
func podUIDs(t *testing.T, selector string) map[string]string {
	t.Helper()
	list, err := kube.CoreV1().Pods(operatorNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range list.Items {
		all[p.Name] = string(p.UID)
	}
	return all
}

// rollStatic rolls kube-apiserver out to a revision on every node.
func rollStatic(t *testing.T, revision string, onHost bool) {
	t.Helper()
	for _, node := range nodeNames {
		runStatic(t, node, staticPod(revision, onHost))
	}
}

func TestDaemonSetServesHostFoldersThroughAMigrationAndAwayAgain(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target := apiservers.Kube
	op := newOperator(t)
	file := func(interval string) string { return every(interval, apiservers.Kube.Target(serving)) }
	op.configure(file("30s"))
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", true)
	t.Cleanup(func() { removeStatics(t); setProfile(t, "") })
	op.start("")

	const name = "kms-health-reporter-kube-apiserver"
	expect := func(step, revision, set, interval, tls string) {
		t.Helper()
		awaitObjects(t, step, op.before, base(target, operatorNamespace, config+" "+config+"-"+revision, append(onNodes("agent on %s"),
			"ConfigMap "+operatorNamespace+"/"+name+": "+set+" every "+interval+" to kubeapiservers, "+tls,
			"DaemonSet "+operatorNamespace+"/"+name)...)...)
	}
	const intermediate, modern = "VersionTLS12 with 6 suites", "VersionTLS13 with 0 suites"
	expect("delivered", "1", "1W", "30s", intermediate)
	awaitCondition(t, "kubeapiservers", "True", "SocketsOnHost")
	agents := podUIDs(t, "kmshealth.openshift.io/delivery=DaemonSet")

	setEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "2")
	rollStatic(t, "2", true)
	expect("a second key", "2", "1W+2R", "30s", intermediate)
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "3")
	rollStatic(t, "3", true)
	expect("the second key alone", "3", "2W", "30s", intermediate)
	op.configure(file("10s"))
	expect("another interval", "3", "2W", "10s", intermediate)
	setProfile(t, "Modern")
	expect("another TLS profile", "3", "2W", "10s", modern)
	if now := podUIDs(t, "kmshealth.openshift.io/delivery=DaemonSet"); !maps.Equal(agents, now) {
		t.Errorf("agents were replaced for what is live: %v, now %v", agents, now)
	}

	setEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "4")
	rollStatic(t, "4", true)
	expect("the plugin still reads", "4", "2R", "10s", modern)
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "5")
	runStatic(t, nodeNames[0], staticPod("5", true))
	awaitObjects(t, "old pods still read", op.before, base(target, operatorNamespace, config+" "+config+"-4 "+config+"-5", append(onNodes("agent on %s"),
		"ConfigMap "+operatorNamespace+"/"+name+": 2R every 10s to kubeapiservers, "+modern, "DaemonSet "+operatorNamespace+"/"+name)...)...)
	rollStatic(t, "5", true)
	awaitObjects(t, "off", op.before, idle(target, config+" "+config+"-5")...)

	// A target that leaves the configuration is cleaned up after.
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "6")
	rollStatic(t, "6", true)
	expect("on again", "6", "2W", "10s", modern)
	op.configure("targets: []\n")
	op.awaitNothingLeft()
	op.kill(syscall.SIGTERM)
}

// setName is the ConfigMap of a plugin set with these keys.
func setName(target apiservers.Server, ids ...string) string {
	var plugins []v1alpha1.Plugin
	for _, id := range ids {
		plugins = append(plugins, v1alpha1.Plugin{KeyID: id, Endpoint: "unix:///var/run/kmsplugin/kms-" + id + ".sock"})
	}
	return manifests.ConfigMapName(target.Name, plugins)
}
