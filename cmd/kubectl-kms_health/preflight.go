package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

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
	return o.print(o.output, last, show.Preflight(last), last.Verdict)
}

// period is how often a cluster is read. Without a watch there is no state to keep, objects that
// appear later are found, and an outage needs no special handling.
const period = 2 * time.Second

// follow requests round trips, and reads and evaluates each period until isLast is true, or until the timeout, which
// interrupts no read. It continues after an outage. It returns an error if the last read failed, or if a retry cannot
// fix the failure.
func (o *options) follow(ctx context.Context, command string, isLast func(*view.Status, *view.Trips) bool) error {
	trips := &roundTrips{options: o, requested: sets.New[string](), said: sets.New[string]()}
	trips.Request = o.clock.Now().UTC().Format(command + "-20060102-150405.000")
	wasRead, failed := false, errors.New("there was no answer")
	err := wait.PollUntilContextTimeout(ctx, period, o.timeout, true, func(context.Context) (bool, error) {
		status, err := o.evaluate(ctx)
		if err != nil {
			isMistyped := errors.Is(err, view.ErrUnknownName) && command != "wait" // a node may report later
			if isMistyped || !wasRead && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
				return false, err
			}
			failed = err
			trips.say(fmt.Sprintf("warning: %s\nTrying again\n", show.Lines(err.Error())))
			return false, nil
		}
		if status.Node != "" && command != "wait" {
			return false, fmt.Errorf("%q is a node; preflight takes an API server: its nodes change together", o.name)
		}
		wasRead, failed = true, nil
		trips.Follow(status)
		trips.update(ctx, status)
		return isLast(status, &trips.Trips), nil
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return err
	case failed != nil:
		return fmt.Errorf("the state could not be read at the end of the wait (%s): %w", o.timeout, failed)
	}
	return nil
}

// roundTrips are requested and shown.
type roundTrips struct {
	*options
	view.Trips
	requested sets.Set[string] // of these API servers
	said      sets.Set[string]
}

// say prints a text, once: what it is about is read each period.
func (t *roundTrips) say(text string) {
	if !t.said.Has(text) {
		t.said.Insert(text)
		fmt.Fprint(t.stderr, text)
	}
}

// update requests, once, a round trip of each API server's plugins. Without the right it does not try again. On a
// terminal it prints each state of a node.
func (t *roundTrips) update(ctx context.Context, s *view.Status) {
	for _, a := range s.APIServers {
		if len(a.Plugins) == 0 || t.requested.Has(a.Name) {
			continue
		}
		err := t.request(ctx, a.Target, t.Request)
		then := "Trying again"
		if apierrors.IsForbidden(err) {
			then = fmt.Sprintf("Waiting for regular ones (%d), at most %s", view.Regular, t.timeout)
		}
		if err == nil || apierrors.IsForbidden(err) {
			t.requested.Insert(a.Name)
		}
		if err != nil {
			t.say(fmt.Sprintf("warning: no round trip is requested: %s\n%s\n", show.Lines(err.Error()), then))
		}
	}
	for i := 0; i < len(t.Made) && t.terminal; i++ {
		t.say(show.Trip(&t.Made[i]))
	}
}
