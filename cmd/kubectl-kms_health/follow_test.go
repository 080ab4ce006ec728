package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// cluster simulates a cluster whose state changes over time, by the clock of synctest.
type cluster struct {
	*testing.T
	states []state
	began  time.Time
	reads  int
	denied bool // to request a round trip
	// request is the last request, made at requested. Reporters fulfil it 3 s later. Regular round trips are every 20 s.
	request   string
	requested time.Time
}

// state is active from after on. With an error the cluster cannot be read.
type state struct {
	after  time.Duration
	status contract.Status // of the one plugin; empty: no report exists
	err    error
}

func (c *cluster) read(context.Context) (*view.Snapshot, error) {
	c.reads++
	now := time.Now()
	var s state
	for _, each := range c.states {
		if now.Sub(c.began) >= each.after {
			s = each
		}
	}
	snapshot := &view.Snapshot{Now: now, OperatorUnread: true}
	if s.err != nil || s.status == "" {
		return snapshot, s.err
	}
	e := contract.Entry{KeyID: "2", KEKID: "k", Status: s.status, LastChecked: now, Interval: 30 * time.Second,
		RoundTrip: c.began.Add(now.Sub(c.began).Truncate(20 * time.Second))}
	if c.request != "" && s.status == contract.Healthy && now.Sub(c.requested) >= 3*time.Second {
		e.Requested = c.request
	}
	message, err := contract.EncodeMessage([]contract.Entry{e})
	if err != nil {
		c.Fatal(err)
	}
	snapshot.Objects = []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "kmshealth.openshift.io/v1alpha1", "kind": "KMSHealth", "metadata": map[string]any{"name": "api"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": contract.ConditionType("a"), "message": message}}},
	}}}
	return snapshot, nil
}

func (c *cluster) patch(_ context.Context, r contract.Resource, text string) error {
	if c.denied {
		return apierrors.NewForbidden(schema.GroupResource{}, r.Name, nil)
	}
	c.request, c.requested = text, time.Now()
	return nil
}

// follow runs the command until it ends.
func (c cluster) follow(t *testing.T, args ...string) (code int, took time.Duration, stdout, stderr string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.T, c.began = t, time.Now()
		var out, errs bytes.Buffer
		code = run(t.Context(), append([]string{"status"}, args...), environment{
			stdin: strings.NewReader(""), stdout: &out, stderr: &errs,
			clock: clock.RealClock{}, read: c.read, request: c.patch,
		})
		took, stdout, stderr = time.Since(c.began), out.String(), errs.String()
	})
	return code, took, stdout, stderr
}

var errAway = errors.New("away")

func TestWaitEndsWhenEverythingIsHealthyOrAtTheTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		states []state
		code   int
		took   time.Duration
	}{
		"healthy, once requested":  {[]state{{0, contract.Healthy, nil}}, 0, 4 * time.Second},
		"after an unhealthy time":  {[]state{{0, contract.Unhealthy, nil}, {9 * time.Second, contract.Healthy, nil}}, 0, 10 * time.Second},
		"after an outage":          {[]state{{0, "", errAway}, {9 * time.Second, contract.Healthy, nil}}, 0, 14 * time.Second},
		"unhealthy at the timeout": {[]state{{0, contract.Unhealthy, nil}}, 1, time.Minute},
		"nothing is reported":      {[]state{{0, "", nil}}, 2, time.Minute},
		"never reachable":          {[]state{{0, "", errAway}}, 3, time.Minute},
		"an outage at the end":     {[]state{{0, contract.Error, nil}, {9 * time.Second, "", errAway}}, 3, time.Minute},
		"no right":                 {[]state{{0, "", apierrors.NewForbidden(schema.GroupResource{}, "", nil)}}, 3, 0},
	} {
		code, took, stdout, stderr := cluster{states: tt.states}.follow(t, "--wait", "--timeout=1m")
		outage := strings.Contains(name, "outage")
		if code != tt.code || took != tt.took || (stdout == "") != (code == 3) || outage && strings.Count(stderr, "Trying again") != 1 {
			t.Errorf("%s: %d after %s, %q, %q", name, code, took, stdout, stderr)
		}
	}
}

// A healthy report, and its next round trip, may have begun before the change that the user wants to verify.
func TestWaitWithoutTheRightToRequestAwaitsTwoRegularRoundTrips(t *testing.T) {
	healthy := cluster{denied: true, states: []state{{0, contract.Healthy, nil}}}
	code, took, _, stderr := healthy.follow(t, "--wait")
	if code != 0 || took != 40*time.Second || !strings.Contains(stderr, "Waiting for regular ones (2), at most 5m0s") {
		t.Errorf("got %d after %s, %q, want 0 after 40s", code, took, stderr)
	}
	const want = "Not known: the reports may be old; awaited: a new round trip of key 2 on a; 1 KMS plugin healthy, on 1 node.\n"
	if code, took, stdout, _ := healthy.follow(t, "--wait", "--timeout=30s"); code != 2 || took != 30*time.Second ||
		!strings.HasPrefix(stdout, want) {
		t.Errorf("got %d after %s, %q, want 2 after 30s, %q", code, took, stdout, want)
	}
}
