package reportercontroller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// publishing is a roll-up that records what is published to it.
type publishing struct {
	noRollup
	got []delivery.Snapshot
}

func (r *publishing) Set(p delivery.Snapshot) { r.got = append(r.got, p) }

func publisher(openShift *bool, age time.Duration) (*Controller, *publishing) {
	clock, rollup := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &publishing{}
	c := New(Options{Clock: clock, Health: rollup, Queue: syncqueue.New(clock, "deliver"), ClusterOperator: noQueue{},
		Registry: prometheus.NewRegistry(), OpenShift: openShift})
	c.began = clock.Now().Add(-age)
	return c, rollup
}

// publishPlan publishes the result of a plan.
func publishPlan(c *Controller, s *Snapshot, e *serverState, plan *Plan) {
	c.updatePublished(s, e, plan)
	c.publish(e)
}

// Conditions of an earlier process stay until this one has read its sources, or for 10 s.
func TestNothingIsPublishedBeforeItIsRead(t *testing.T) {
	problem := func(s *Snapshot) { s.Undecided = true }
	unread := func(s *Snapshot) { s.Live = nil }
	for name, c := range map[string]struct {
		change    []func(*Snapshot)
		age       time.Duration
		published bool
	}{
		"decided":                          {nil, 0, true},
		"not read yet":                     {[]func(*Snapshot){problem}, informers.AuthorizerWarmup - 1, false},
		"not read for 10 s":                {[]func(*Snapshot){problem}, informers.AuthorizerWarmup, true},
		"without its plugins":              {[]func(*Snapshot){unread}, informers.AuthorizerWarmup - 1, false},
		"without its plugins for 10 s":     {[]func(*Snapshot){unread}, informers.AuthorizerWarmup, true},
		"without them, and removed":        {[]func(*Snapshot){unread, func(s *Snapshot) { s.Deleting = true }}, 0, true},
		"without them, and its namespace":  {[]func(*Snapshot){unread, func(s *Snapshot) { s.NamespaceMissing = true }}, 0, true},
		"with those of the configuration":  {[]func(*Snapshot){unread, func(s *Snapshot) { s.Target.Plugins = set(1).Config.Plugins }}, 0, true},
		"removed, and nothing is read yet": {[]func(*Snapshot){problem, func(s *Snapshot) { s.Deleting = true }}, 0, false},
		"before it is recorded":            {[]func(*Snapshot){func(s *Snapshot) { s.Unrecorded = true }}, informers.AuthorizerWarmup, false},
	} {
		controller, rollup := publisher(nil, c.age)
		s := fixture(t, v1alpha1.ModeCompanionPod, c.change...)
		publishPlan(controller, s, &serverState{}, planOf(t, s))
		if published := len(rollup.got) == 1; published != c.published {
			t.Errorf("%s: published %t", name, published)
		}
	}
}

// Conditions are written only after the record by which a removal finds them, unless the record cannot be written.
func TestConditionsComeAfterTheRecord(t *testing.T) {
	for reason, published := range map[delivery.Reason]bool{"": false, contract.Removed: false, contract.Forbidden: true} {
		controller, rollup := publisher(nil, informers.AuthorizerWarmup)
		s, e := fixture(t, v1alpha1.ModeCompanionPod, func(s *Snapshot) { s.Unrecorded = true }), &serverState{status: delivery.Status{Reason: reason}}
		publishPlan(controller, s, e, planOf(t, s))
		if got := len(rollup.got) == 1; got != published {
			t.Errorf("after %q: published %t", reason, got)
		}
	}
}

func TestTheLastDecisionIsPublishedWhileThereIsNone(t *testing.T) {
	controller, rollup := publisher(nil, 0)
	s, e := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"))), &serverState{}
	publishPlan(controller, s, e, planOf(t, s))
	s.Undecided, s.Unmanaged, s.OtherInstallation = true, true, "another"
	publishPlan(controller, s, e, &Plan{Off: true, Clean: true})
	first, second := rollup.got[0], rollup.got[1]
	if !first.SetsKnown || !second.SetsKnown || second.State.Namespace != first.State.Namespace || second.Off || second.Clean {
		t.Errorf("%+v\n%+v", first, second)
	}
	if first.Unmanaged || first.OtherInstallation || !second.Unmanaged || !second.OtherInstallation {
		t.Error("whose it is, and whether it is managed, is that of now")
	}
	unread, recorded := &serverState{}, delivery.State{Live: set(1).Config.Plugins}
	controller, rollup = publisher(nil, informers.AuthorizerWarmup)
	s.State = recorded
	publishPlan(controller, s, unread, &Plan{})
	if got := rollup.got[0]; !got.SetsKnown || len(got.State.Live) != 1 || got.LiveKnown || got.Off {
		t.Errorf("of a process that has read nothing: %+v", got)
	}
}

// Even if nothing else can be decided, the operator knows whether a target is being removed. Unmanaged reporters stay.
func TestUndecidedTargetIsOffWhileItIsRemoved(t *testing.T) {
	for _, unmanaged := range []bool{false, true} {
		controller, rollup := publisher(nil, informers.AuthorizerWarmup)
		s, e := fixture(t, v1alpha1.ModeCompanionPod), &serverState{}
		s.Undecided, s.Unmanaged = true, unmanaged
		for i, deleting := range []bool{true, false, true} {
			s.Deleting = deleting
			publishPlan(controller, s, e, planOf(t, s))
			if got, want := rollup.got[i], deleting && !unmanaged; got.Off != want || got.Clean {
				t.Errorf("unmanaged %t, removed %t: off %t, clean %t", unmanaged, deleting, got.Off, got.Clean)
			}
		}
	}
}

func TestCommandsAreForTheToolOfTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		given             *bool
		detected, decided bool
		want              string
	}{
		"OpenShift":                 {nil, true, true, "oc"},
		"Kubernetes":                {nil, false, true, "kubectl"},
		"not known yet":             {nil, false, false, "oc"},
		"given: Kubernetes":         {new(false), false, false, "kubectl"},
		"given: OpenShift":          {new(true), true, true, "oc"},
		"given: OpenShift, unknown": {new(true), false, false, "oc"},
	} {
		controller, rollup := publisher(c.given, informers.AuthorizerWarmup)
		s := fixture(t, v1alpha1.ModeCompanionPod, func(s *Snapshot) { s.OpenShift = c.detected })
		s.Undecided = !c.decided
		publishPlan(controller, s, &serverState{}, planOf(t, s))
		if got := rollup.got[0].Tool; got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
