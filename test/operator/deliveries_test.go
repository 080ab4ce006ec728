//go:build integration

package operator

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/sidecar"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
)

// base is what there is for an API server with reporters, whatever the delivery.
func base(server apiservers.Server, namespace string, secrets string, more ...string) []string {
	name := "kms-health-reporter-" + server.Name
	return append([]string{
		"ClusterRole " + name,
		"ClusterRoleBinding " + name + ": " + namespace + "/" + name,
		role(server, secrets),
		"ServiceAccount " + namespace + "/" + name,
		"ValidatingAdmissionPolicy kms-health-reporter",
		"ValidatingAdmissionPolicyBinding kms-health-reporter",
	}, more...)
}

func role(server apiservers.Server, secrets string) string {
	return "Role " + server.Namespace + "/kms-health-operator-" + server.Name + ": " + secrets
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
	if profile != "" {
		content = map[string]any{"tlsSecurityProfile": map[string]any{"type": profile, map[string]string{"Old": "old", "Modern": "modern", "Intermediate": "intermediate"}[profile]: map[string]any{}}}
	}
	applyObject(t, controlplane.ConfigGVR(controlplane.APIServers), "", map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": map[string]any{"name": "cluster"}, "spec": content})
}

func TestCompanionsFollowTheirPodsThroughAMigrationAndAwayAgain(t *testing.T) {
	target := apiservers.Kube
	h := newHouse(t)
	file := func(interval string) string { return every(interval, apiservers.Kube.Target(serving)) }
	h.configure(file("30s"))
	h.start("")

	// KMS is off.
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "1")
	for _, node := range nodeNames {
		runStatic(t, node, staticPod("1", false))
	}
	t.Cleanup(func() { removeStatics(t); setProfile(t, "") })
	const config = apiservers.EncryptionSecret
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
	setEncryption(t, target, apiservers.Encryption("1", "aescbc", "identity"), "2")
	runStatic(t, nodeNames[0], staticPod("2", false))
	awaitObjects(t, "one pod has the plugin", h.before, base(target, home, "encryption-config encryption-config-1 encryption-config-2",
		companion("master-0", "1W", "30s", intermediate))...)
	roll("2")
	awaitObjects(t, "all pods have the plugin", h.before, base(target, home, "encryption-config encryption-config-2",
		onNodes(companion("%s", "1W", "30s", intermediate))...)...)
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")

	// A second key, read at first, on one node after the other.
	setEncryption(t, target, apiservers.Encryption("1", "2", "identity"), "3")
	runStatic(t, nodeNames[0], staticPod("3", false))
	awaitObjects(t, "old pods keep to their plugin", h.before, base(target, home, "encryption-config encryption-config-2 encryption-config-3",
		companion("master-0", "1W+2R", "30s", intermediate), companion("master-1", "1W", "30s", intermediate), companion("master-2", "1W", "30s", intermediate))...)
	roll("3")
	setEncryption(t, target, apiservers.Encryption("2", "1", "identity"), "4")
	roll("4")
	awaitObjects(t, "the second key writes", h.before, base(target, home, "encryption-config encryption-config-4",
		onNodes(companion("%s", "2W+1R", "30s", intermediate))...)...)
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "5")
	roll("5")
	awaitObjects(t, "the first key is gone", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "30s", intermediate))...)...)

	// What is live replaces no pod.
	uids := podUIDs(t, "kmshealth.openshift.io/target="+target.Name)
	h.configure(file("10s"))
	awaitObjects(t, "another interval", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", intermediate))...)...)
	setProfile(t, "Old")
	awaitObjects(t, "another TLS profile", h.before, base(target, home, "encryption-config encryption-config-5",
		onNodes(companion("%s", "2W", "10s", old))...)...)
	if now := podUIDs(t, "kmshealth.openshift.io/target="+target.Name); !maps.Equal(uids, now) {
		t.Errorf("pods were replaced for an interval or a TLS profile: %v, now %v", uids, now)
	}

	// Off, by way of a migration.
	setEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"), "6")
	roll("6")
	awaitObjects(t, "the plugin still reads", h.before, base(target, home, "encryption-config encryption-config-6",
		onNodes(companion("%s", "2R", "10s", old))...)...)
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"), "7")
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

// rollStatic brings kube-apiserver to a revision on every node.
func rollStatic(t *testing.T, revision string, onHost bool) {
	t.Helper()
	for _, node := range nodeNames {
		runStatic(t, node, staticPod(revision, onHost))
	}
}

func TestDaemonSetServesHostFoldersThroughAMigrationAndAwayAgain(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target := apiservers.Kube
	h := newHouse(t)
	file := func(interval string) string { return every(interval, apiservers.Kube.Target(serving)) }
	h.configure(file("30s"))
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", true)
	t.Cleanup(func() { removeStatics(t); setProfile(t, "") })
	h.start("")

	const name = "kms-health-reporter-kube-apiserver"
	expect := func(step, revision, set, interval, tls string) {
		t.Helper()
		awaitObjects(t, step, h.before, base(target, home, config+" "+config+"-"+revision, append(onNodes("agent on %s"),
			"ConfigMap "+home+"/"+name+": "+set+" every "+interval+" to kubeapiservers, "+tls,
			"DaemonSet "+home+"/"+name)...)...)
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
	h.configure(file("10s"))
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
	awaitObjects(t, "old pods still read", h.before, base(target, home, config+" "+config+"-4 "+config+"-5", append(onNodes("agent on %s"),
		"ConfigMap "+home+"/"+name+": 2R every 10s to kubeapiservers, "+modern, "DaemonSet "+home+"/"+name)...)...)
	rollStatic(t, "5", true)
	awaitObjects(t, "off", h.before, role(target, config+" "+config+"-5"))

	// A target that leaves the configuration is cleaned up after.
	setEncryption(t, target, apiservers.Encryption("2", "identity"), "6")
	rollStatic(t, "6", true)
	expect("on again", "6", "2W", "10s", modern)
	h.configure("targets: []\n")
	h.awaitNothingLeft()
	h.kill(syscall.SIGTERM)
}

// apiDeployment is an API server that is a Deployment, of one revision.
func apiDeployment(t *testing.T, revision string) {
	t.Helper()
	applyObject(t, apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment(revision))
}

func removeDeployment(t *testing.T) {
	t.Helper()
	background := metav1.DeletePropagationForeground
	if err := kube.AppsV1().Deployments("openshift-apiserver").Delete(context.Background(), "apiserver", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Logf("remove the Deployment: %v", err)
	}
	eventuallyGone(t, "openshift-apiserver", "apiserver=true")
}

func eventuallyGone(t *testing.T, namespace, selector string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		list, err := kube.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) == 0 {
			return
		}
	}
	t.Errorf("pods of %s stay", selector)
}

// setName is the ConfigMap of a plugin set with these keys.
func setName(target apiservers.Server, ids ...string) string {
	var plugins []v1alpha1.Plugin
	for _, id := range ids {
		plugins = append(plugins, v1alpha1.Plugin{KeyID: id, Endpoint: "unix:///var/run/kmsplugin/kms-" + id + ".sock"})
	}
	return render.ConfigMapName(target.Name, plugins)
}

func TestDeploymentIsInjectedThroughAMigrationAndLetGoOf(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	h := newHouse(t)
	file := func(interval string) string { return every(interval, openShiftAPIServer()) }
	h.configure(file("30s"))
	setEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	apiDeployment(t, "1")
	t.Cleanup(func() { removeDeployment(t); setProfile(t, "") })
	awaitPods(t, ns, "apiserver=true", 3)
	bare := templateOf(t)
	h.start("")

	expect := func(step, revisions, injected string, sets ...string) {
		t.Helper()
		want := base(target, ns, config+" "+revisions, "Secret "+ns+"/kms-health-reporter-"+target.Name+"-mintedtoken: token")
		if injected != "" {
			want = append(want, "Deployment "+ns+"/apiserver: injected reporter:1, "+injected)
		}
		awaitObjects(t, step, h.before, append(want, sets...)...)
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

	// Its owner brings a second key; ours is one rollout more.
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
	h.configure(file("10s"))
	expect("another interval", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	setProfile(t, "Old")
	h.kill(syscall.SIGTERM)
	h.start("")
	h.kill(syscall.SIGKILL)
	h.start("")
	expect("after restarts", config+"-3", setName(target, "2"), set("2W", "10s", "2"))
	for range 20 { // noise on the CR
		report(t, apiservers.OpenShift, nodeNames[0], time.Now())
	}
	if n := rolls() - before; n != 0 {
		t.Errorf("an interval, a TLS profile, two restarts and reports made %d rollouts", n)
	}
	h.configure("rollout: Always\n" + file("20s"))
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
	awaitObjects(t, "off", h.before, role(target, config+" "+config+"-5"))
	awaitPods(t, ns, "apiserver=true", 3)
	h.awaitNothingLeft("Role openshift-apiserver/kms-health-operator-openshift-apiserver")
	if now := templateOf(t); now != strings.ReplaceAll(bare, config+"-1", config+"-5") {
		t.Errorf("the template is not what it was:\n%s\nwas\n%s", now, bare)
	}
	h.configure("managementState: Removed\n" + file("10s"))
	h.awaitNothingLeft()
	h.kill(syscall.SIGTERM)
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
	h := newHouse(t)
	h.configure(targets(openShiftAPIServer()))
	setEncryption(t, apiservers.OpenShift, apiservers.Encryption("1", "identity"), "1")
	apiDeployment(t, "1")
	t.Cleanup(func() { removeDeployment(t) })
	awaitPods(t, ns, "apiserver=true", 3)
	bare := deploymentNow(t).Spec.Template
	h.start("")
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
	h.kill(syscall.SIGKILL)
	h.start("")
	_, _, message := condition(t.Context(), "openshiftapiservers")
	if !strings.Contains(message, "openshift-apiserver/apiserver") || !strings.Contains(message, "kubectl annotate clusterrole") {
		t.Errorf("the way out is not told: %s", message)
	}
	// An event that the operator answers shows that it has looked.
	h.configure(every("11s", openShiftAPIServer()))
	eventually(t, "the file follows", func() error {
		lines, err := describe(t.Context())
		if err == nil && !strings.Contains(strings.Join(lines, "\n"), "every 11s") {
			err = fmt.Errorf("%v", lines)
		}
		return err
	})
	if now := deploymentNow(t).Generation; now != generation {
		t.Errorf("the Deployment was patched again: generation %d, was %d", now, generation)
	}
	h.configure("managementState: Removed\ntargets: []\n")
	h.awaitNothingLeft()
}

func TestExternalOwnerGetsFilesAndCredentials(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, ns := apiservers.OAuth, apiservers.OAuth.Namespace
	h := newHouse(t)
	file := func(interval string) string { return every(interval, apiservers.OAuth.Target("delivery: External")) }
	h.configure(file("30s"))
	setEncryption(t, target, apiservers.Encryption("1", "identity"))
	h.start("")
	expect := func(step string, sets ...string) {
		t.Helper()
		awaitObjects(t, step, h.before, append(base(target, ns, config, "Secret "+ns+"/kms-health-reporter-"+target.Name+"-mintedtoken: token"), sets...)...)
	}
	set := func(text, interval string, ids ...string) string {
		return "ConfigMap " + ns + "/" + setName(target, ids...) + ": " + text + " every " + interval + " to authentications"
	}
	expect("delivered", set("1W", "30s", "1"))

	// A pod of the owner's keeps its set until it goes.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "oauth-1", Namespace: ns, Labels: map[string]string{"apiserver": "true"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "oauth-apiserver", Image: "oauth:1", VolumeMounts: []corev1.VolumeMount{{Name: "sockets", MountPath: "/var/run/kmsplugin"}}}},
		Volumes:    []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if err := sidecar.Inject(&pod.ObjectMeta, &pod.Spec, sidecar.Options{
		Image: "reporter:1", Endpoints: []string{"unix:///var/run/kmsplugin/kms-1.sock"},
		ConfigMap: setName(target, "1"), Secret: "kms-health-reporter-" + target.Name + "-mintedtoken",
	}); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if _, err := kube.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, ns, "apiserver=true", 1)
	setEncryption(t, target, apiservers.Encryption("1", "2", "identity"))
	h.configure(file("10s"))
	expect("a second key", set("1W", "10s", "1"), set("1W+2R", "10s", "1", "2"))
	if err := kube.CoreV1().Pods(ns).Delete(t.Context(), "oauth-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("the old set goes with its last pod", set("1W+2R", "10s", "1", "2"))
	setEncryption(t, target, apiservers.Encryption("2", "identity"))
	expect("the second key alone", set("2W", "10s", "2"))
	setEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"))
	expect("the plugin still reads", set("2R", "10s", "2"))
	setEncryption(t, target, apiservers.Encryption("aescbc", "identity"))
	awaitObjects(t, "off", h.before, role(target, config))
	h.awaitNothingLeft("Role openshift-oauth-apiserver/kms-health-operator-oauth-apiserver")
	h.configure("managementState: Removed\n" + file("10s"))
	h.awaitNothingLeft()
	h.kill(syscall.SIGTERM)
}
