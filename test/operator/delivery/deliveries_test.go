//go:build integration

package delivery

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestCompanionsFollowTheirPodsThroughAMigrationAndAwayAgain(t *testing.T) {
	target := apiservers.Kube
	op := fixture.NewOperator(t)
	file := func(interval string) string { return fixture.Every(interval, apiservers.Kube.Target(fixture.Serving)) }
	op.Configure(file("30s"))
	op.Start("")

	// Nothing is encrypted, and there is no encryption config.
	fixture.RemoveEncryption(t, target)
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, plainPod("1"))
	}
	t.Cleanup(func() { fixture.RemoveStatics(t); fixture.SetTLSProfile(t, "") })
	const config = apiservers.EncryptionSecret
	awaitObjects(t, "nothing while KMS is off", op.Before, idle(target, config+" "+config+"-1")...)

	companion := func(node, set, interval, tls string) string {
		return fmt.Sprintf("companion on %s, reporter:1, Annotation: %s every %s to kubeapiservers, %s", node, set, interval, tls)
	}
	intermediate, old := fixture.TLSProfile(""), fixture.TLSProfile("Old")
	roll := func(revision string) {
		for _, node := range fixture.NodeNames {
			fixture.RunStatic(t, node, fixture.StaticPod(revision, false))
		}
	}

	// It is turned on: the live Secret first, then pod by pod.
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "2")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("2", false))
	awaitObjects(t, "one pod has the plugin", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-1 encryption-config-2",
		companion("master-0", "1W", "30s", intermediate))...)
	roll("2")
	awaitObjects(t, "all pods have the plugin", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-2",
		onNodes(companion("%s", "1W", "30s", intermediate))...)...)
	fixture.AwaitDelivered(t, "kubeapiservers")

	// A second key, read at first, on one node after the other.
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "3")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("3", false))
	awaitObjects(t, "old pods keep to their plugin", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-2 encryption-config-3",
		companion("master-0", "1W+2R", "30s", intermediate), companion("master-1", "1W", "30s", intermediate), companion("master-2", "1W", "30s", intermediate))...)
	roll("3")
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "1", "identity"), "4")
	roll("4")
	awaitObjects(t, "the second key writes", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-4",
		onNodes(companion("%s", "2W+1R", "30s", intermediate))...)...)
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "identity"), "5")
	roll("5")
	awaitObjects(t, "the first key is deleted", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "30s", intermediate))...)...)

	// What is live replaces no pod.
	uids := fixture.PodUIDs(t, "kmshealth.openshift.io/api-server="+target.Name)
	op.Configure(file("10s"))
	awaitObjects(t, "another interval", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", intermediate))...)...)
	fixture.SetTLSProfile(t, "Old")
	awaitObjects(t, "another TLS profile", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", old))...)...)
	if now := fixture.PodUIDs(t, "kmshealth.openshift.io/api-server="+target.Name); !maps.Equal(uids, now) {
		t.Errorf("pods were replaced for an interval or a TLS profile: %v, now %v", uids, now)
	}

	// Off, by way of a migration.
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "6")
	roll("6")
	awaitObjects(t, "the plugin still reads", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-6",
		onNodes(companion("%s", "2R", "10s", old))...)...)
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "7")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("7", false))
	awaitObjects(t, "old pods still read", op.Before, base(target, fixture.Namespace, "encryption-config encryption-config-6 encryption-config-7",
		companion("master-1", "2R", "10s", old), companion("master-2", "2R", "10s", old))...)
	roll("7")
	awaitObjects(t, "off", op.Before, idle(target, "encryption-config encryption-config-7")...)
	op.AwaitNothingLeft("Role openshift-kube-apiserver/kms-health-operator-kube-apiserver", "ClusterRole /kms-health-reporter-kube-apiserver")

	op.Configure("managementState: Removed\n" + file("10s"))
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
}

func TestDaemonSetServesHostFoldersThroughAMigrationAndAwayAgain(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target := apiservers.Kube
	op := fixture.NewOperator(t)
	file := func(interval string) string { return fixture.Every(interval, apiservers.Kube.Target(fixture.Serving)) }
	op.Configure(file("30s"))
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", true)
	t.Cleanup(func() { fixture.RemoveStatics(t); fixture.SetTLSProfile(t, "") })
	op.Start("")

	const name = "kms-health-reporter-kube-apiserver"
	expect := func(step, revision, set, interval, tls string) {
		t.Helper()
		awaitObjects(t, step, op.Before, base(target, fixture.Namespace, config+" "+config+"-"+revision, append(onNodes("agent on %s, Annotation: "+set+" every "+interval+" to kubeapiservers, "+tls),
			"DaemonSet "+fixture.Namespace+"/"+name)...)...)
	}
	intermediate, modern := fixture.TLSProfile(""), fixture.TLSProfile("Modern")
	expect("delivered", "1", "1W", "30s", intermediate)
	fixture.AwaitDelivered(t, "kubeapiservers")
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "2")
	fixture.RollStatic(t, "2", true)
	expect("a second key", "2", "1W+2R", "30s", intermediate)
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "identity"), "3")
	fixture.RollStatic(t, "3", true)
	expect("the second key alone", "3", "2W", "30s", intermediate)
	agents := fixture.PodUIDs(t, "kmshealth.openshift.io/mode=DaemonSet")
	op.Configure(file("10s"))
	expect("another interval", "3", "2W", "10s", intermediate)
	fixture.SetTLSProfile(t, "Modern")
	expect("another TLS profile", "3", "2W", "10s", modern)
	if now := fixture.PodUIDs(t, "kmshealth.openshift.io/mode=DaemonSet"); !maps.Equal(agents, now) {
		t.Errorf("agents were replaced for what is live: %v, now %v", agents, now)
	}

	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "4")
	fixture.RollStatic(t, "4", true)
	expect("the plugin still reads", "4", "2R", "10s", modern)
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "5")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("5", true))
	awaitObjects(t, "old pods still read", op.Before, base(target, fixture.Namespace, config+" "+config+"-4 "+config+"-5", append(onNodes("agent on %s, Annotation: 2R every 10s to kubeapiservers, "+modern),
		"DaemonSet "+fixture.Namespace+"/"+name)...)...)
	fixture.RollStatic(t, "5", true)
	awaitObjects(t, "off", op.Before, idle(target, config+" "+config+"-5")...)

	// A target that leaves the configuration is cleaned up after.
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "identity"), "6")
	fixture.RollStatic(t, "6", true)
	expect("on again", "6", "2W", "10s", modern)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
}

// plainPod is kube-apiserver's of a revision without KMS: there is no
// Secret of its revision, and no volume for sockets.
func plainPod(revision string) *corev1.Pod {
	pod := fixture.StaticPod(revision, false)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}
