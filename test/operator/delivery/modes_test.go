//go:build integration

package delivery

import (
	"encoding/base64"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestDaemonSetServesHostFoldersThroughAMigrationAndAwayAgain(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target := apiservers.Kube
	op := fixture.NewOperator(t)
	file := func(interval string) string { return fixture.Every(interval, apiservers.Kube.Target(fixture.Serving)) }
	fixture.RollOut(t, fixture.OnHost, "1", "1", "identity")
	op.Start(file("30s"))

	const name = "kms-health-reporter-kube-apiserver"
	expect := func(step, revision, set, interval, tls string) {
		t.Helper()
		awaitObjects(t, step, base(target, fixture.Namespace, config+" "+config+"-"+revision, append(onNodes("agent on %s, Annotation: "+set+" every "+interval+" to kubeapiservers, "+tls),
			"DaemonSet "+fixture.Namespace+"/"+name)...)...)
	}
	intermediate, modern := fixture.TLSProfile(""), fixture.TLSProfile("Modern")
	expect("delivered", "1", "1W", "30s", intermediate)
	fixture.AwaitDelivered(t, apiservers.Kube)
	fixture.RollOut(t, fixture.OnHost, "2", "1", "2", "identity")
	expect("a second key", "2", "1W+2R", "30s", intermediate)
	fixture.RollOut(t, fixture.OnHost, "3", "2", "identity")
	expect("the second key alone", "3", "2W", "30s", intermediate)
	agents := fixture.PodUIDs(t, fixture.Agents)
	op.Configure(file("10s"))
	expect("another interval", "3", "2W", "10s", intermediate)
	fixture.SetTLSProfile(t, "Modern")
	expect("another TLS profile", "3", "2W", "10s", modern)
	op.Configure("managementState: Unmanaged\n" + file("20s"))
	op.AwaitLogged("nothing is managed", `managementState="Unmanaged"`, 1)
	other, err := controlplane.NewCA("another")
	must.Succeed(t, err)
	bundle := slices.Concat(fixture.Cluster.ServingCA().PEM(), other.PEM())
	disk.Write(t, filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), bundle)
	fixture.SetTLSProfile(t, "Old")
	expect("a TLS profile while Unmanaged", "3", "2W", "10s", fixture.TLSProfile("Old"))
	for _, agent := range fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, len(fixture.NodeNames)) {
		if file := agent.Annotations[contract.KubeconfigAnnotation]; !strings.Contains(file, base64.StdEncoding.EncodeToString(bundle)) {
			t.Errorf("%s has not the CA that was rotated while Unmanaged: %s", agent.Name, file)
		}
	}
	op.Configure(fixture.Every("10s", apiservers.Kube.Target(
		`serving: {address: "0.0.0.0:9180", secret: serving, tls: {minVersion: VersionTLS13}}`)))
	expect("TLS settings of its own", "3", "2W", "10s", modern)
	must.Equal(t, "agents after live changes", fixture.PodUIDs(t, fixture.Agents), agents)

	fixture.RollOut(t, fixture.OnHost, "4", "aescbc", "2", "identity")
	expect("the plugin still reads", "4", "2R", "10s", modern)
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "5")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("5", true))
	awaitObjects(t, "old pods still read", base(target, fixture.Namespace, config+" "+config+"-4 "+config+"-5", append(onNodes("agent on %s, Annotation: 2R every 10s to kubeapiservers, "+modern),
		"DaemonSet "+fixture.Namespace+"/"+name)...)...)
	fixture.RollStatic(t, "5", true)
	awaitObjects(t, "off", idle(target, config+" "+config+"-5")...)

	// An API server that is removed from the configuration is cleaned up.
	fixture.RollOut(t, fixture.OnHost, "6", "2", "identity")
	expect("on again", "6", "2W", "10s", modern)
}

func TestDeploymentIsInjectedThroughAMigrationAndRestored(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	op := fixture.NewOperator(t)
	file := func(interval string) string { return fixture.Every(interval, fixture.OpenShiftAPIServer()) }
	fixture.Deploy(t, "1", "1", "identity")
	bare := templateOf(t)
	op.Start(file("30s"))

	expect := func(step, revisions, injected string, sets ...string) {
		t.Helper()
		want := base(target, ns, config+" "+revisions, "Secret "+ns+"/kms-health-reporter-"+target.Name+"-token: token")
		if injected != "" {
			want = append(want, "Deployment "+ns+"/apiserver: injected reporter:1, "+injected)
		}
		awaitObjects(t, step, append(want, sets...)...)
		fixture.AwaitPods(t, ns, "apiserver=true", 3)
	}
	set := func(text, interval string, ids ...string) string {
		return "ConfigMap " + ns + "/" + setName(target, ids...) + ": " + text + " every " + interval + " to openshiftapiservers"
	}
	rolls := func() int64 { return fixture.DeploymentNow(t).Generation }

	expect("delivered", config+"-1", setName(target, "1"), set("1W", "30s", "1"))
	fixture.AwaitDelivered(t, apiservers.OpenShift)

	// The owner's second key causes one rollout, and the operator's new file one more.
	before := rolls()
	fixture.Deploy(t, "2", "1", "2", "identity")
	expect("a second key", config+"-2", setName(target, "1", "2"), set("1W+2R", "30s", "1", "2"))
	must.Equal(t, "rollouts of a new plugin set, by the owner and the operator", rolls()-before, 2)
	fixture.Deploy(t, "3", "2", "identity")
	expect("the second key alone", config+"-3", setName(target, "2"), set("2W", "30s", "2"))

	// Changes that are live cause no rollout.
	before = rolls()
	op.Configure(file("10s"))
	expect("another interval", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	fixture.SetTLSProfile(t, "Old")
	op.Restart(syscall.SIGTERM)
	op.Restart(syscall.SIGKILL)
	expect("after restarts", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	for range 20 { // many changes of the operator resource
		fixture.ReportStatus(t, apiservers.OpenShift, fixture.NodeNames[0], contract.Healthy)
	}
	must.Equal(t, "rollouts by an interval, a TLS profile, two restarts and reports", rolls()-before, 0)

	// KMS is turned off.
	fixture.Deploy(t, "4", "aescbc", "2", "identity")
	expect("the plugin still reads", config+"-4", setName(target, "2"), set("2R", "10s", "2"))
	fixture.Deploy(t, "5", "aescbc", "identity")
	awaitObjects(t, "off", idle(target, config+" "+config+"-5")...)
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	op.AwaitNothingLeft("Role openshift-apiserver/kms-health-operator-openshift-apiserver", "ClusterRole /kms-health-reporter-openshift-apiserver")
	must.Equal(t, "the template", templateOf(t), strings.ReplaceAll(bare, config+"-1", config+"-5"))
	op.Configure("managementState: Removed\n" + file("10s"))
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
}

func templateOf(t *testing.T) string {
	t.Helper()
	raw, err := yaml.Marshal(fixture.DeploymentNow(t).Spec.Template)
	must.Succeed(t, err)
	return string(raw)
}
