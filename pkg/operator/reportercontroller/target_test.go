package reportercontroller

import (
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

func TestLifeOfATargetFollowsItsConfigurationAndItsRecord(t *testing.T) {
	type targets = []v1alpha1.APIServer
	const kube, oauth = v1alpha1.ResourceKubeAPIServers, v1alpha1.Resource("authentications")
	api := v1alpha1.APIServer{Name: "api", Namespace: "ns", Resource: kube}
	moved, retyped, health := api, api, api
	moved.Namespace, retyped.Resource, health.Resource = "ns2", oauth, v1alpha1.ResourceKMSHealths
	otherHealth := health
	otherHealth.Name = "other"
	const on, deleting, unknown, elsewhere = "on", "deleting", "unknown", "of another installation"
	for name, c := range map[string]struct {
		configured   targets
		management   v1alpha1.ManagementState
		recorded     *v1alpha1.APIServer
		installation string
		want         string // the target is always the one in namespace ns
	}{
		"new":                               {targets{api}, "", nil, "", on},
		"as recorded":                       {targets{api}, "", &api, "kms-health", on},
		"removed by the management state":   {targets{api}, v1alpha1.Removed, &api, "", deleting},
		"unmanaged":                         {targets{api}, v1alpha1.Unmanaged, &api, "", on},
		"no longer configured":              {nil, "", &api, "", deleting},
		"neither configured nor recorded":   {nil, "", nil, "", unknown},
		"another target has a KMSHealth":    {targets{otherHealth}, "", &health, "", deleting},
		"moved to another namespace":        {targets{moved}, "", &api, "", deleting},
		"moved to another resource":         {targets{retyped}, "", &api, "", deleting},
		"of another installation":           {targets{api}, "", &api, "elsewhere", elsewhere},
		"of another, no longer configured":  {nil, "", &api, "elsewhere", unknown},
		"removed, and no longer configured": {nil, v1alpha1.Removed, &api, "", deleting},
	} {
		state := delivery.State{Installation: c.installation}
		config := &v1alpha1.OperatorConfiguration{ManagementState: c.management, APIServers: c.configured}
		s, got := resolve(config, "api", c.recorded, state, "kms-health"), on
		switch {
		case s == nil:
			got = unknown
		case s.Target.Name != "api" || s.Target.Namespace != "ns" || s.State.Installation != c.installation:
			got = "another target"
		case s.OtherInstallation == "elsewhere":
			got = elsewhere
		case s.Deleting:
			got = deleting
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, got, c.want, s)
		}
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
