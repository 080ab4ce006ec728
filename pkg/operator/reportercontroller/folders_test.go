package reportercontroller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

// hostFolders returns the host folders of the DaemonSet in a plan, by mount path.
func hostFolders(t *testing.T, plan *Plan) map[string]string {
	t.Helper()
	folders := map[string]string{}
	spec := informers.As[appsv1.DaemonSet](ofKind(plan.Apply, "DaemonSet")[0]).Spec.Template.Spec
	for _, v := range spec.Volumes {
		for _, m := range spec.Containers[0].VolumeMounts {
			if v.HostPath != nil && m.Name == v.Name {
				folders[m.MountPath] = v.HostPath.Path
			}
		}
	}
	return folders
}

// While the only API server pod is being replaced, no pod shows where the sockets are.
func TestDaemonSetKeepsItsFoldersWhileNoPodShowsThem(t *testing.T) {
	s := after(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost)))
	s.Pods = nil
	if got := hostFolders(t, ComputePlan(s))["/var/run/kmsplugin"]; got != "/run/kms" {
		t.Errorf("without a pod, /var/run/kmsplugin became %q", got)
	}
	// Before a pod shows its volume, a socket's folder is taken as a folder of the node.
	s.Sets[liveRevision].Config.Plugins[0].Endpoint = "unix:///run/other/kms-1.sock"
	folders := hostFolders(t, ComputePlan(s))
	if len(folders) != 1 || folders["/run/other"] != "/run/other" {
		t.Errorf("another endpoint without a pod: %v", folders)
	}
}

// This holds even while no pod shows its mounts.
func TestDaemonSetMountsNoFolderThatHoldsMuchElse(t *testing.T) {
	s := fixture(t, v1alpha1.ModeDaemonSet)
	s.Sets[liveRevision] = *set(1, 2)
	s.Sets[liveRevision].Config.Plugins[1].Endpoint = "unix:///run/kms-2.sock"
	plan := ComputePlan(s)
	if folders := hostFolders(t, plan); folders["/run"] != "" || plan.Status.Reason != contract.SocketVolumeMissing {
		t.Errorf("mounts %v, %+v", folders, plan.Status)
	}
}
