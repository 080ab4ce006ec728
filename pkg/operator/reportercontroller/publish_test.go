package reportercontroller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// publishing is a roll-up that records what is published to it.
type publishing struct {
	noRollup
	got []delivery.Snapshot
}

func (r *publishing) Set(p delivery.Snapshot) { r.got = append(r.got, p) }

// publisher returns a Controller of a process of an age.
func publisher(age time.Duration) (*Controller, *publishing) {
	rollup := &publishing{}
	c := New(Options{Health: rollup, Queue: syncqueue.New("deliver"), ClusterOperator: noQueue{},
		Registry: prometheus.NewRegistry(), Event: func(_, _, _, _ string) {}})
	c.began = time.Now().Add(-age)
	return c, rollup
}

func undecided(s *Snapshot) { s.Undecided = true }

// Conditions of an earlier process stay until this one has read its sources, or for 10 s. They are written only after
// the record by which a removal finds them, unless the record cannot be written.
func TestNothingIsPublishedBeforeItIsRead(t *testing.T) {
	type change = func(*Snapshot)
	unread := func(s *Snapshot) { s.Sets = nil }
	unrecorded := func(s *Snapshot) { s.Unrecorded = true }
	deleting := func(s *Snapshot) { s.Deleting = true }
	const before, after = informers.AuthorizerWarmup / 2, informers.AuthorizerWarmup
	for name, c := range map[string]struct {
		change    []change
		age       time.Duration
		status    delivery.Reason // the last one
		published bool
	}{
		"decided":                         {nil, 0, "", true},
		"not read yet":                    {[]change{undecided}, before, "", false},
		"not read for 10 s":               {[]change{undecided}, after, "", true},
		"without its plugins":             {[]change{unread}, before, "", false},
		"without its plugins for 10 s":    {[]change{unread}, after, "", true},
		"without them, and removed":       {[]change{unread, deleting}, 0, "", true},
		"without them, and its namespace": {[]change{unread, func(s *Snapshot) { s.NamespaceMissing = true }}, 0, "", true},
		"with those of the configuration": {[]change{unread, func(s *Snapshot) { s.Target.Plugins = set(1).Config.Plugins }},
			0, "", true},
		"removed, and nothing is read yet": {[]change{undecided, deleting}, 0, "", false},
		"before it is recorded":            {[]change{unrecorded}, after, "", false},
		"before that, and removed earlier": {[]change{unrecorded}, after, contract.Removed, false},
		"it cannot be recorded":            {[]change{unrecorded}, after, contract.Forbidden, true},
	} {
		controller, rollup := publisher(c.age)
		s := fixture(t, v1alpha1.ModeCompanionPod, c.change...)
		controller.publish(s, &serverState{status: delivery.Status{Reason: c.status}}, ComputePlan(s))
		if published := len(rollup.got) == 1; published != c.published {
			t.Errorf("%s: published %t", name, published)
		}
	}
}

func TestTheLastDecisionIsPublishedWhileThereIsNone(t *testing.T) {
	controller, rollup := publisher(0)
	s, e := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"))), &serverState{}
	controller.publish(s, e, ComputePlan(s))
	s.Undecided, s.Unmanaged, s.OtherInstallation = true, true, "another"
	controller.publish(s, e, &Plan{Off: true, Clean: true})
	first, second := rollup.got[0], rollup.got[1]
	if !first.SetsKnown || !second.SetsKnown || second.State.Namespace != first.State.Namespace || second.Off ||
		second.Clean {
		t.Errorf("%+v\n%+v", first, second)
	}
	if first.Unmanaged || first.OtherInstallation || !second.Unmanaged || !second.OtherInstallation {
		t.Error("whose it is, and whether it is managed, is that of now")
	}
	controller, rollup = publisher(informers.AuthorizerWarmup)
	s.State = delivery.State{Live: set(1).Config.Plugins}
	controller.publish(s, &serverState{}, &Plan{})
	if got := rollup.got[0]; !got.SetsKnown || len(got.State.Live) != 1 || got.LiveKnown || got.Off {
		t.Errorf("of a process that has read nothing: %+v", got)
	}
}

// Even if nothing else can be decided, the operator knows whether a target is being removed. Unmanaged reporters stay.
func TestUndecidedTargetIsOffWhileItIsRemoved(t *testing.T) {
	for _, unmanaged := range []bool{false, true} {
		controller, rollup := publisher(informers.AuthorizerWarmup)
		s, e := fixture(t, v1alpha1.ModeCompanionPod, undecided), &serverState{}
		s.Unmanaged = unmanaged
		for i, deleting := range []bool{true, false, true} {
			s.Deleting = deleting
			controller.publish(s, e, ComputePlan(s))
			if got, want := rollup.got[i], deleting && !unmanaged; got.Off != want || got.Clean {
				t.Errorf("unmanaged %t, removed %t: off %t, clean %t", unmanaged, deleting, got.Off, got.Clean)
			}
		}
	}
}

func TestOnlyAnAPIServerThatDoesNotAnswerIsNotReported(t *testing.T) {
	cut := fmt.Errorf("delete ConfigMap ns/b: %w", &url.Error{Op: "Delete", URL: "https://api",
		Err: context.DeadlineExceeded})
	refused := &url.Error{Op: "Patch", URL: "https://api", Err: errors.New("connection refused")}
	slow := &url.Error{Op: "Patch", URL: "https://api", Err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}}
	answered := apierrors.NewInternalError(errors.New("the plugin is unhealthy"))
	for name, c := range map[string]struct {
		err      error
		reported bool
	}{
		"an answer":                                {answered, true},
		"a request that was cut off":               {cut, true},
		"a request that was cut off after others":  {errors.Join(answered, cut), true},
		"no connection":                            {refused, false},
		"no connection in time":                    {slow, false},
		"no success, and something answered":       {errors.Join(answered, refused), true},
		"an error that is no outcome of a request": {errors.New("cannot be read"), true},
	} {
		controller, rollup := publisher(0)
		s, e := fixture(t, v1alpha1.ModeCompanionPod), &serverState{target: v1alpha1.APIServer{Name: "api"}}
		s.Resource = &operatorstatus.Status{}
		controller.finish(e, s, &Plan{}, &Result{Status: problemOf(c.err), Err: c.err})
		if got := e.status.Reason == contract.RequestFailed && rollup.got[0].Status == e.status; got != c.reported {
			t.Errorf("%s: reported: %v; status %+v, to the roll-up %+v", name, got, e.status, rollup.got[0].Status)
		}
	}
}
