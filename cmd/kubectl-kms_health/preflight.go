package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

const aboutPreflight = `Shows whether a change is safe now: to turn KMS on, switch a key, restart an API server,
drain a node, or upgrade a plugin. Each of these can lose data that only the cache of a
running API server still has.

It requests a round trip (Encrypt and Decrypt) of each plugin on each node, waits until
every node has made it, and prints which of these hold:

  Round trip           every node made it after this command began
  No problem           status shows none
  One KEK ID of key …  its plugins on all nodes name one key of the KMS
  Same providers       every node has the same plugins, in the same order
  Former keys          no reporter has a sample that no longer decrypts: see stored-keys
  Writes with it       every API server writes with that KEK ID (KMSWriteKeyAgreed)
  Reporters            they are delivered, and need nothing encrypted (KMSHealthReporting)

The last two need an operator. OpenShift's own preflight is shown where it fails.

The request is the annotation ` + contract.ProbeRequestedAnnotation + `. It restarts nothing,
and arrives in seconds, or in about a minute by a ConfigMap. Where it does not arrive, without
an operator or the right, two regular round trips count: set --timeout=11m.

Exit codes are those of status: 0 ready, 1 not ready, 2 not known.
Rights: those of status, and patch of the operator resource, or of the kmshealths.`

func newPreflight(e environment) *cobra.Command {
	o, cmd := newOptions(e, (*options).preflight)
	cmd.Use = "preflight [API-SERVER]"
	addOutput(cmd, &o.output, "json", "yaml")
	cmd.Short = "Show whether a change of keys, plugins or API servers is safe now, by new round trips"
	cmd.Long = aboutPreflight
	cmd.Example = `  kubectl kms-health preflight kube-apiserver && kubectl drain master-0`
	cmd.Flags().DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long to wait for the round trips")
	return cmd
}

// settling is how many more times the status is read after the round trips, if it is not healthy: the operator may
// not have written conditions with them yet.
const settling = 5

// preflight requests round trips, waits for them, and prints the result.
func (o *options) preflight(ctx context.Context) error {
	if err := o.open(); err != nil {
		return err
	}
	var last *view.Preflight
	after := 0
	err := o.follow(ctx, "preflight", func(status *view.Status, trips *view.Trips) bool {
		last = trips.Preflight(status)
		if slices.ContainsFunc(last.Trips, func(t view.Trip) bool { return !t.Done }) {
			return false
		}
		after++
		return last.Verdict == view.Healthy || len(last.Trips) == 0 || after > settling
	})
	if err != nil {
		return err
	}
	return o.print(o.output, last, show.Preflight(last), last.Verdict.ExitCode())
}
