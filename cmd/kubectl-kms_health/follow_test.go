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

// cluster is one whose state changes with time, by the clock of synctest.
type cluster struct {
	*testing.T
	states []state
	began  time.Time
	reads  int
}

// state is the one after a time; with an error the cluster cannot be read.
type state struct {
	after  time.Duration
	status contract.Status // of the one plugin; empty: there is no report
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
	snapshot := &view.Snapshot{Now: now, Unread: map[string]bool{view.KindDeployment: true, view.KindLease: true}}
	if s.err != nil || s.status == "" {
		return snapshot, s.err
	}
	message, err := contract.EncodeMessage([]contract.Entry{{KeyID: "2", KEKID: "k", Status: s.status, LastChecked: now, Interval: 30 * time.Second}})
	if err != nil {
		c.Fatal(err)
	}
	snapshot.Objects = []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "kmshealth.openshift.io/v1alpha1", "kind": "KMSHealth", "metadata": map[string]any{"name": "api"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": contract.ConditionType("a"), "message": message}}},
	}}}
	return snapshot, nil
}

// follow runs the command until it ends, or for a time.
func follow(t *testing.T, states []state, limit time.Duration, args ...string) (code int, took time.Duration, stdout, stderr string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{T: t, states: states, began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var out, errs bytes.Buffer
		code = run(ctx, append([]string{"status"}, args...), environment{
			stdin: strings.NewReader(""), stdout: &out, stderr: &errs,
			clock: clock.RealClock{}, read: c.read,
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
		"healthy at once":          {[]state{{0, contract.Healthy, nil}}, 0, 0},
		"after an unhealthy time":  {[]state{{0, contract.Unhealthy, nil}, {9 * time.Second, contract.Healthy, nil}}, 0, 10 * time.Second},
		"after an outage":          {[]state{{0, "", errAway}, {9 * time.Second, contract.Healthy, nil}}, 0, 10 * time.Second},
		"unhealthy at the timeout": {[]state{{0, contract.Unhealthy, nil}}, 1, time.Minute},
		"nothing is reported":      {[]state{{0, "", nil}}, 2, time.Minute},
		"never reachable":          {[]state{{0, "", errAway}}, 3, time.Minute},
		"an outage at the end":     {[]state{{0, contract.Error, nil}, {9 * time.Second, "", errAway}}, 3, time.Minute},
		"no right":                 {[]state{{0, "", apierrors.NewForbidden(schema.GroupResource{}, "", nil)}}, 3, 0},
	} {
		code, took, stdout, stderr := follow(t, tt.states, time.Hour, "--wait", "--timeout=1m")
		outage := strings.Contains(name, "outage")
		if code != tt.code || took != tt.took || (stdout == "") != (code == 3) || outage && strings.Count(stderr, "Trying again") != 1 {
			t.Errorf("%s: %d after %s, %q, %q", name, code, took, stdout, stderr)
		}
	}
}
