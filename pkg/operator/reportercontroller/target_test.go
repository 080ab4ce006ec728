package reportercontroller

import (
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

func TestLifeOfATargetFollowsItsConfigurationAndItsRecord(t *testing.T) {
	target := func(name, namespace string, resource v1alpha1.Resource) v1alpha1.APIServer {
		return v1alpha1.APIServer{Name: name, Namespace: namespace, Resource: resource}
	}
	const kube, oauth = v1alpha1.ResourceKubeAPIServers, v1alpha1.Resource("authentications")
	api, moved := target("api", "ns", kube), target("api", "ns2", kube)
	retyped := target("api", "ns", oauth)
	health, otherHealth := target("api", "ns", v1alpha1.ResourceKMSHealths),
		target("other", "ns", v1alpha1.ResourceKMSHealths)
	for name, c := range map[string]struct {
		configured   []v1alpha1.APIServer
		management   v1alpha1.ManagementState
		recorded     *v1alpha1.APIServer
		installation string

		exists    bool
		namespace string // of the target to sync
		deleting  bool
		other     string
	}{
		"new": {configured: []v1alpha1.APIServer{api}, exists: true, namespace: "ns"},
		"as recorded": {configured: []v1alpha1.APIServer{api}, recorded: &api,
			installation: "kms-health", exists: true, namespace: "ns"},
		"removed by the management state": {configured: []v1alpha1.APIServer{api}, management: v1alpha1.Removed,
			recorded: &api, exists: true, namespace: "ns", deleting: true},
		"unmanaged": {configured: []v1alpha1.APIServer{api}, management: v1alpha1.Unmanaged,
			recorded: &api, exists: true, namespace: "ns"},
		"no longer configured":            {recorded: &api, exists: true, namespace: "ns", deleting: true},
		"neither configured nor recorded": {},
		"another target has a KMSHealth": {configured: []v1alpha1.APIServer{otherHealth}, recorded: &health,
			exists: true, namespace: "ns", deleting: true},
		"moved to another namespace": {configured: []v1alpha1.APIServer{moved}, recorded: &api, exists: true,
			namespace: "ns", deleting: true},
		"moved to another resource": {configured: []v1alpha1.APIServer{retyped}, recorded: &api, exists: true,
			namespace: "ns", deleting: true},
		"of another installation": {configured: []v1alpha1.APIServer{api}, recorded: &api,
			installation: "elsewhere", exists: true, namespace: "ns", other: "elsewhere"},
		"of another, no longer configured": {recorded: &api, installation: "elsewhere"},
		"removed, and no longer configured": {management: v1alpha1.Removed, recorded: &api, exists: true, namespace: "ns",
			deleting: true},
	} {
		t.Run(name, func(t *testing.T) {
			state := delivery.State{Installation: c.installation}
			config := &v1alpha1.OperatorConfiguration{ManagementState: c.management, APIServers: c.configured}
			s := resolve(config, "api", c.recorded, state, "kms-health")
			if (s != nil) != c.exists {
				t.Fatalf("%+v", s)
			}
			if c.exists && (s.Target.Name != "api" || s.Target.Namespace != c.namespace || s.Deleting != c.deleting ||
				s.OtherInstallation != c.other || s.State.Installation != c.installation) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The record must exist before anything else is done, so that an operator that starts after an edit finds all
// leftovers.
func TestTargetWithoutARecordGetsThatFirst(t *testing.T) {
	for name, undecided := range map[string]bool{"all is known": false, "a source is not": true} {
		s := fixture(t, v1alpha1.ModeCompanionPod, kmsHealth, pods(apiPod("a", "1")))
		s.Unrecorded, s.Undecided, s.Resource, s.ResourceMissing = true, undecided, nil, true
		plan := ComputePlan(s)
		if plan.Anchor == nil || plan.State.Namespace != "ns" || len(plan.Apply)+len(plan.Delete) > 0 ||
			plan.Status.Message != "" {
			t.Errorf("%s: records %v, %+v, applies %s; %+v", name, plan.Anchor, plan.State, names(plan.Apply), plan.Status)
		}
	}
}

// After a restart the record still distinguishes a set without plugins from a set that was never read.
func TestARecordedSetWithoutPluginsIsKnown(t *testing.T) {
	for name, live := range map[string][]v1alpha1.Plugin{"no plugin": {}, "never read": nil} {
		got, err := delivery.ParseState(delivery.State{Live: live}.String())
		if err != nil || (got.Live == nil) != (live == nil) {
			t.Errorf("%s: %v, %v", name, got.Live, err)
		}
	}
}
