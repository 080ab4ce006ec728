package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
)

// This file plays the parts of OpenShift's operators, and of the reporters: what
// the operator finds.

// owner is the field manager of OpenShift's operators.
const owner = "the-owner"

// operatorFile is the operator's configuration.
func operatorFile(interval time.Duration) string {
	return fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe: {interval: %s}
targets:
`, interval) +
		apiservers.Kube.Target("delivery: Companion", `serving: {address: "0.0.0.0:9180", secret: serving}`) +
		apiservers.OpenShift.Target("delivery: Deployment", "deployment: apiserver") +
		apiservers.OAuth.Target("delivery: External")
}

// fill gives an operator resource as many conditions as OpenShift's have: each of
// its changes is told whole, to whoever watches it.
func (e *estate) fill(ctx context.Context, s apiservers.Server) error {
	var conditions []any
	for i := range 100 {
		conditions = append(conditions, map[string]any{
			"type": fmt.Sprintf("SomeController%dDegraded", i), "status": "False", "reason": "AsExpected",
			"message": strings.Repeat("All is well. ", 10), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return apiservers.Apply(ctx, e.admin, owner, controlplane.OperatorGVR(s.Resource), "", s.Status(conditions...), "status")
}

// report writes what a node's reporter would.
func (e *estate) report(ctx context.Context, s apiservers.Server, node string, since time.Time) error {
	var entries []health.Entry
	for _, keyID := range []string{"1", "2"} {
		entries = append(entries, health.Entry{KeyID: keyID, KEKID: "kek-" + keyID, Status: health.Healthy, LastChecked: time.Now(), Interval: time.Second})
	}
	message, err := health.EncodeMessage(entries)
	if err != nil {
		return err
	}
	return s.Report(ctx, e.admin, node, message, since)
}

// encrypt writes the encryption config of a revision, or the live one, with
// plugins of these key ids, the first of which writes.
func (e *estate) encrypt(ctx context.Context, s apiservers.Server, revision string, keyIDs ...string) error {
	text := apiservers.Encryption(slices.Concat(keyIDs, []string{"identity"})...)
	return apiservers.Apply(ctx, e.admin, owner, apiservers.Secrets, s.Namespace, apiservers.Secret(revision, text))
}
