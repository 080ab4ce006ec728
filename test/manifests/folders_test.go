//go:build integration

package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Wherever in an emptyDir the sockets are, the shipped policy admits the companion that
// mounts them.
func TestCompanionIsAdmittedWhereverInAnEmptyDirTheSocketsAre(t *testing.T) {
	operator := openshift.as(t)
	in := reportersInput(v1alpha1.ModeCompanionPod)
	account := object("v1", "ServiceAccount", home, reporter, nil)
	if err := put(t, operator, account, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = openshift.client.Resource(resourceOf(account)).Namespace(home).Delete(soon(t), reporter, metav1.DeleteOptions{})
	})
	for name, mount := range map[string]corev1.VolumeMount{
		"the sockets' own folder": {MountPath: "/var/run/kmsplugin"},
		"a subPath":               {MountPath: "/var/run/kmsplugin", SubPath: "vault/sockets"},
		"a wider mount":           {MountPath: "/var/run"},
		"a wider mount's subPath": {MountPath: "/var/run/", SubPath: "run"},
	} {
		mount.Name = "kms-sockets"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("4fd0b0c6-4a8c-4b0e-9a3c-2f2f6a7b8c9d")}}
		pod.Spec.Volumes = []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers = []corev1.Container{{Name: "api", VolumeMounts: []corev1.VolumeMount{mount}}}
		endpoint := "unix:///var/run/kmsplugin/kms-1.sock"
		folders, err := objects.FindFolders(pod, "api", []string{endpoint}, "")
		if err != nil {
			t.Fatal(name, err)
		}
		companion, err := in.CompanionPod(objects.APIServerPod{Node: "master-0", UID: string(pod.UID), Folders: folders},
			[]v1alpha1.Plugin{{KeyID: "1", Endpoint: endpoint, Role: v1alpha1.RoleWrite}})
		if err != nil {
			t.Fatal(name, err)
		}
		if err := put(t, operator, companion, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
