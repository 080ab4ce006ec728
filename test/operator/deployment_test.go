//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// apiDeployment is an API server that is a Deployment, of one revision.
func apiDeployment(t *testing.T, revision string) {
	t.Helper()
	applyObject(t, apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment(revision))
}

func removeDeployment(t *testing.T) {
	t.Helper()
	removeDeploymentIn(t, apiservers.OpenShift.Namespace)
}

func removeDeploymentIn(t *testing.T, namespace string) {
	t.Helper()
	foreground := metav1.DeletePropagationForeground
	if err := kube.AppsV1().Deployments(namespace).Delete(context.Background(), "apiserver", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Logf("remove the Deployment: %v", err)
	}
	eventually(t, "the pods of the Deployment are deleted", func() error {
		list, err := kube.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "apiserver=true"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

func TestDeploymentIsInjectedThroughAMigrationAndRestored(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	op := newOperator(t)
	file := func(interval string) string { return every(interval, openShiftAPIServer()) }
	op.configure(file("30s"))
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	apiDeployment(t, "1")
	t.Cleanup(func() { removeDeployment(t); setProfile(t, "") })
	awaitPods(t, ns, "apiserver=true", 3)
	bare := templateOf(t)
	op.start("")

	expect := func(step, revisions, injected string, sets ...string) {
		t.Helper()
		want := base(target, ns, config+" "+revisions, "Secret "+ns+"/kms-health-reporter-"+target.Name+"-mintedtoken: token")
		if injected != "" {
			want = append(want, "Deployment "+ns+"/apiserver: injected reporter:1, "+injected)
		}
		awaitObjects(t, step, op.before, append(want, sets...)...)
		awaitPods(t, ns, "apiserver=true", 3)
	}
	set := func(text, interval string, ids ...string) string {
		return "ConfigMap " + ns + "/" + setName(target, ids...) + ": " + text + " every " + interval + " to openshiftapiservers"
	}
	rolls := func() int64 { return deploymentNow(t).Generation }

	expect("delivered", config+"-1", setName(target, "1"), set("1W", "30s", "1"))
	awaitCondition(t, "openshiftapiservers", "True", "Configured")
	if n := len(podUIDs(t, "app.kubernetes.io/name=kms-health-image-proof")); n > 0 {
		t.Errorf("%d pods that proved the image stay", n)
	}

	// Its owner adds a second key; the operator causes one more rollout.
	before := rolls()
	setEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "2")
	apiDeployment(t, "2")
	expect("a second key", config+"-2", setName(target, "1", "2"), set("1W+2R", "30s", "1", "2"))
	if n := rolls() - before; n != 2 {
		t.Errorf("a new plugin set: %d rollouts, must be the owner's and ours", n)
	}
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "3")
	apiDeployment(t, "3")
	expect("the second key alone", config+"-3", setName(target, "2"), set("2W", "30s", "2"))

	// What is live is no rollout.
	before = rolls()
	op.configure(file("10s"))
	expect("another interval", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	setProfile(t, "Old")
	op.kill(syscall.SIGTERM)
	op.start("")
	op.kill(syscall.SIGKILL)
	op.start("")
	expect("after restarts", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	for range 20 { // noise on the CR
		report(t, apiservers.OpenShift, nodeNames[0], time.Now())
	}
	if n := rolls() - before; n != 0 {
		t.Errorf("an interval, a TLS profile, two restarts and reports made %d rollouts", n)
	}
	op.configure("rollout: Always\n" + file("20s"))
	expect("every change is a rollout", config+"-3", setName(target, "2"), set("2W", "20s", "2"))
	eventually(t, "one rollout for a change of the file", func() error {
		if n := rolls() - before; n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})

	// Off.
	setEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "4")
	apiDeployment(t, "4")
	expect("the plugin still reads", config+"-4", setName(target, "2"), set("2R", "20s", "2"))
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "5")
	apiDeployment(t, "5")
	awaitObjects(t, "off", op.before, idle(target, config+" "+config+"-5")...)
	awaitPods(t, ns, "apiserver=true", 3)
	op.awaitNothingLeft("Role openshift-apiserver/kms-health-operator-openshift-apiserver", "ClusterRole /kms-health-reporter-openshift-apiserver")
	if now := templateOf(t); now != strings.ReplaceAll(bare, config+"-1", config+"-5") {
		t.Errorf("the template is not what it was:\n%s\nwas\n%s", now, bare)
	}
	op.configure("managementState: Removed\n" + file("10s"))
	op.awaitNothingLeft()
	op.kill(syscall.SIGTERM)
}

func deploymentNow(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := kube.AppsV1().Deployments("openshift-apiserver").Get(t.Context(), "apiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func templateOf(t *testing.T) string {
	t.Helper()
	raw, err := yaml.Marshal(deploymentNow(t).Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestRevertByTheOwnerIsNoticedOnceAndLeftAlone(t *testing.T) {
	ns := apiservers.OpenShift.Namespace
	op := newOperator(t)
	op.configure(targets(openShiftAPIServer()))
	setEncryption(t, apiservers.OpenShift, apiservers.Encryption("1", "identity"), "1")
	apiDeployment(t, "1")
	t.Cleanup(func() { removeDeployment(t) })
	awaitPods(t, ns, "apiserver=true", 3)
	bare := deploymentNow(t).Spec.Template
	op.start("")
	awaitCondition(t, "openshiftapiservers", "True", "Configured")

	// The owner puts back its whole template.
	eventually(t, "the owner's update is taken", func() error {
		d := deploymentNow(t)
		d.Spec.Template = *bare.DeepCopy()
		_, err := kube.AppsV1().Deployments(ns).Update(t.Context(), d, metav1.UpdateOptions{FieldManager: "the-owner"})
		return err
	})
	generation := deploymentNow(t).Generation
	awaitCondition(t, "openshiftapiservers", "False", "InjectionReverted")
	op.kill(syscall.SIGKILL)
	op.start("")
	_, _, message := condition(t.Context(), "openshiftapiservers")
	if !strings.Contains(message, "openshift-apiserver/apiserver") || !strings.Contains(message, "kubectl annotate clusterrole") {
		t.Errorf("the message does not name the way out: %s", message)
	}
	// A change that the operator acts on shows that it has synced.
	op.configure(every("11s", openShiftAPIServer()))
	eventually(t, "the file follows", func() error {
		lines, err := describe(t.Context(), usualKind)
		if err == nil && !strings.Contains(strings.Join(lines, "\n"), "every 11s") {
			err = fmt.Errorf("%v", lines)
		}
		return err
	})
	if now := deploymentNow(t).Generation; now != generation {
		t.Errorf("the Deployment was patched again: generation %d, was %d", now, generation)
	}
	op.configure("managementState: Removed\ntargets: []\n")
	op.awaitNothingLeft()
}
