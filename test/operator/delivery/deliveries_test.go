//go:build integration

package delivery

import (
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

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
		awaitObjects(t, step, base(target, fixture.Namespace, config+" "+config+"-"+revision, append(onNodes("agent on %s, Annotation: "+set+" every "+interval+" to kubeapiservers, "+tls),
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
	op.Configure(file("10s"))
	expect("another interval", "3", "2W", "10s", intermediate)
	fixture.SetTLSProfile(t, "Modern")
	expect("another TLS profile", "3", "2W", "10s", modern)

	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "4")
	fixture.RollStatic(t, "4", true)
	expect("the plugin still reads", "4", "2R", "10s", modern)
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "5")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("5", true))
	awaitObjects(t, "old pods still read", base(target, fixture.Namespace, config+" "+config+"-4 "+config+"-5", append(onNodes("agent on %s, Annotation: 2R every 10s to kubeapiservers, "+modern),
		"DaemonSet "+fixture.Namespace+"/"+name)...)...)
	fixture.RollStatic(t, "5", true)
	awaitObjects(t, "off", idle(target, config+" "+config+"-5")...)

	// A target that leaves the configuration is cleaned up after.
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "identity"), "6")
	fixture.RollStatic(t, "6", true)
	expect("on again", "6", "2W", "10s", modern)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
}
