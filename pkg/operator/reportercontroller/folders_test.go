package reportercontroller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// hostFolders returns the host folders of the DaemonSet in a plan, by mount path.
func hostFolders(t *testing.T, plan *Plan) map[string]string {
	t.Helper()
	for _, o := range workloads(plan) {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		ds := &appsv1.DaemonSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ds); err != nil {
			t.Fatal(err)
		}
		folders := map[string]string{}
		for _, v := range ds.Spec.Template.Spec.Volumes {
			for _, m := range ds.Spec.Template.Spec.Containers[0].VolumeMounts {
				if v.HostPath != nil && m.Name == v.Name {
					folders[m.MountPath] = v.HostPath.Path
				}
			}
		}
		return folders
	}
	t.Fatal("no DaemonSet")
	return nil
}

// While the only API server pod is being replaced, no pod shows where the sockets are.
func TestDaemonSetKeepsItsFoldersWhileNoPodShowsThem(t *testing.T) {
	before := ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost))))
	if got := hostFolders(t, before)["/var/run/kmsplugin"]; got != "/run/kms" {
		t.Fatalf("/var/run/kmsplugin is %q", got)
	}
	between := ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, delivered(before)))
	if got := hostFolders(t, between)["/var/run/kmsplugin"]; got != "/run/kms" {
		t.Errorf("without a pod, /var/run/kmsplugin became %q", got)
	}
	// Before a pod shows its volume, a socket's folder is taken as a folder of the node.
	s := fixture(t, v1alpha1.ModeDaemonSet, delivered(before))
	s.Live.Config.Plugins[0].Endpoint = "unix:///run/other/kms-1.sock"
	folders := hostFolders(t, ComputePlan(s))
	if len(folders) != 1 || folders["/run/other"] != "/run/other" {
		t.Errorf("another endpoint without a pod: %v", folders)
	}
}

// This holds even while no pod shows its mounts.
func TestDaemonSetMountsNoFolderThatHoldsMuchElse(t *testing.T) {
	s := fixture(t, v1alpha1.ModeDaemonSet)
	s.Live = set(1, 2)
	s.Live.Config.Plugins[1].Endpoint = "unix:///run/kms-2.sock"
	plan := ComputePlan(s)
	if folders := hostFolders(t, plan); folders["/run"] != "" || plan.Status.Reason != contract.SocketVolumeMissing {
		t.Errorf("mounts %v, %+v", folders, plan.Status)
	}
}
