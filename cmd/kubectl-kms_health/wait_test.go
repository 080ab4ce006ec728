package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
)

var errAway = errors.New("away")

func TestWaitEndsWhenEverythingIsHealthyOrAtTheTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		states []state
		code   int
		took   time.Duration
	}{
		"healthy, once requested":  {nil, 0, 6 * time.Second},
		"after an unhealthy time":  {[]state{{0, contract.Unhealthy, nil}, {9 * time.Second, contract.Healthy, nil}}, 0, 10 * time.Second},
		"after an outage":          {[]state{{0, "", errAway}, {9 * time.Second, contract.Healthy, nil}}, 0, 16 * time.Second},
		"unhealthy at the timeout": {[]state{{0, contract.Unhealthy, nil}}, 1, time.Minute},
		"nothing is reported":      {[]state{{0, "", nil}}, 2, time.Minute},
		"never reachable":          {[]state{{0, "", errAway}}, 3, time.Minute},
		"an outage at the end":     {[]state{{0, contract.Error, nil}, {9 * time.Second, "", errAway}}, 3, time.Minute},
		"no right":                 {[]state{{0, "", apierrors.NewForbidden(schema.GroupResource{}, "", nil)}}, 3, 0},
	} {
		code, took, stdout, stderr := (&fleet{states: tt.states}).run(t, "status", "--wait=1m")
		outage := strings.Contains(name, "outage")
		if code != tt.code || took != tt.took || (stdout == "") != (code == 3) || outage && strings.Count(stderr, "Trying again") != 1 {
			t.Errorf("%s: %d after %s, %q, %q", name, code, took, stdout, stderr)
		}
	}
}

// A healthy report, and its next round trip, may have begun before the change that the user wants to verify.
func TestWaitWithoutTheRightToRequestAwaitsTwoRegularRoundTrips(t *testing.T) {
	code, took, _, stderr := (&fleet{denied: true}).run(t, "status", "--wait")
	if code != 0 || took != 2*time.Minute || !strings.Contains(stderr, "Waiting for regular ones (2), at most 5m0s\n") {
		t.Errorf("got %d after %s, %q, want 0 after 2m", code, took, stderr)
	}
	const want = "Not known: kube-apiserver: round trip: 0 of 2 nodes made one; still awaited: a new round trip of key 2 on a, b; KMS plugins: 2 healthy.\n"
	code, took, stdout, _ := (&fleet{denied: true}).run(t, "status", "--wait=30s")
	if code != 2 || took != 30*time.Second || !strings.HasPrefix(stdout, want) {
		t.Errorf("got %d after %s, %q, want 2 after 30s, %q", code, took, stdout, want)
	}
}
