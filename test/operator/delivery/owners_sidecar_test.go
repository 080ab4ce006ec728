//go:build integration

package delivery

import (
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestOwnerWhoAddsTheSidecarGetsFiles(t *testing.T) {
	const config = apiservers.EncryptionSecret
	target, ns := apiservers.OAuth, apiservers.OAuth.Namespace
	op := fixture.NewOperator(t)
	file := func(interval string) string {
		return fixture.Every(interval, apiservers.OAuth.Target("mode: Sidecar"))
	}
	op.Configure(file("30s"))
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"))
	op.Start("")
	expect := func(step string, sets ...string) {
		t.Helper()
		awaitObjects(t, step, op.Before, append(withOwnersUser(base(target, ns, config)), sets...)...)
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
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: contract.ReporterContainer, Image: "reporter:1",
		VolumeMounts: []corev1.VolumeMount{{Name: objects.ConfigVolume, MountPath: objects.ConfigFolder}},
	})
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: objects.ConfigVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: setName(target, "1")}, Optional: new(true),
		}},
	})
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if _, err := fixture.Kube.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitPods(t, ns, "apiserver=true", 1)
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "2", "identity"))
	op.Configure(file("10s"))
	expect("a second key", set("1W", "10s", "1"), set("1W+2R", "10s", "1", "2"))
	if err := fixture.Kube.CoreV1().Pods(ns).Delete(t.Context(), "oauth-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("the old set goes with its last pod", set("1W+2R", "10s", "1", "2"))
	fixture.SetEncryption(t, target, apiservers.Encryption("2", "identity"))
	expect("the second key alone", set("2W", "10s", "2"))
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "2", "identity"))
	expect("the plugin still reads", set("2R", "10s", "2"))
	fixture.SetEncryption(t, target, apiservers.Encryption("aescbc", "identity"))
	awaitObjects(t, "off", op.Before, idle(target, config)...)
	op.AwaitNothingLeft("Role openshift-oauth-apiserver/kms-health-operator-oauth-apiserver", "ClusterRole /kms-health-reporter-oauth-apiserver")
	op.Configure("managementState: Removed\n" + file("10s"))
	op.AwaitNothingLeft()
	op.Kill(syscall.SIGTERM)
}
