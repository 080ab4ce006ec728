//go:build integration

package nodes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubelet shows why it does not start a container, and how one ended.
func TestAProcessWaitsForWhatItMounts(t *testing.T) {
	w := newFixture(t, Options{Root: roots(t), Processes: &Processes{
		Binary: binary, Logs: t.TempDir(), Env: []string{"GORACE=atexit_sleep_ms=0"},
	}}, "one")
	folder := filepath.Join(t.TempDir(), "sockets")
	p := pod("companion")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0] = corev1.Container{
		Name: "kms-health", Image: "any", Args: []string{"--no-such-flag"},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []corev1.VolumeMount{{Name: "config", MountPath: "/c"}, {Name: "sockets", MountPath: "/s"}},
	}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "config"}}},
		{Name: "sockets", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: folder, Type: new(corev1.HostPathDirectory),
		}}},
	}
	w.create(p)
	waitsFor := func(what string) {
		t.Helper()
		w.eventually("it reports for what it waits", func(context.Context) error {
			status := w.get("companion").Status
			if len(status.ContainerStatuses) == 0 || status.ContainerStatuses[0].State.Waiting == nil {
				return errors.New("it does not wait")
			}
			if message := status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, what) {
				return errors.New(message)
			}
			return nil
		})
	}
	waitsFor(`secrets "config" not found`)
	if _, err := w.client.CoreV1().Secrets(w.namespace).Create(soon(t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "config"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitsFor("hostPath type check failed")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	ended := w.becomes("companion", "Failed, kms-health:ended 2")
	if got := ended.Status.ContainerStatuses[0].State.Terminated.Message; !strings.Contains(got, "no-such-flag") {
		t.Errorf("it reports %q", got)
	}
}
