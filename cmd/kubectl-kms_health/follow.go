package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// period is how often a cluster is read. Without a watch there is no state to keep, objects that
// appear later are found, and an outage needs no special handling.
const period = 2 * time.Second

// follow requests round trips, and reads and evaluates each period until isLast is true, or until the timeout, which
// interrupts no read. It continues after an outage. It returns an error if the last read failed, or if a retry cannot
// fix the failure.
func (o *options) follow(ctx context.Context, command string, isLast func(*view.Status, *view.Trips) bool) error {
	trips := &roundTrips{options: o}
	trips.Request = o.clock.Now().UTC().Format(command + "-20060102-150405.000")
	wasRead, failed := false, "" // why it cannot be read now; empty: it can
	err := wait.PollUntilContextTimeout(ctx, period, o.timeout, true, func(context.Context) (bool, error) {
		status, err := o.evaluate(ctx)
		if err != nil {
			isMistyped := errors.Is(err, view.ErrUnknownName) && !o.wait // with --wait, a node may report later
			if isMistyped || !wasRead && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
				return false, err
			}
			if ctx.Err() == nil && failed != err.Error() {
				failed = err.Error()
				fmt.Fprintf(o.stderr, "warning: %s\nTrying again\n", show.Lines(failed))
			}
			return false, nil
		}
		if failed != "" {
			fmt.Fprintln(o.stderr, "warning: the state can be read again")
		}
		if status.Node != "" && !o.wait {
			return false, fmt.Errorf("%q is a node; preflight takes an API server: its nodes change together", o.name)
		}
		wasRead, failed = true, ""
		trips.Follow(status)
		trips.update(ctx, status)
		return isLast(status, &trips.Trips), nil
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return err
	case !wasRead || failed != "":
		return fmt.Errorf("the state could not be read at the end of --timeout (%s): %s", o.timeout,
			cmp.Or(failed, "there was no answer"))
	}
	return nil
}

// awaitHealthy waits until everything is healthy by new round trips, or until the timeout. Then it prints the last
// status.
func (o *options) awaitHealthy(ctx context.Context) error {
	var last *view.Status
	err := o.follow(ctx, "wait", func(s *view.Status, trips *view.Trips) bool {
		last = s
		return s.Await(trips.Made)
	})
	if err != nil {
		return err
	}
	return o.finish(last)
}

// roundTrips are requested and shown.
type roundTrips struct {
	*options
	view.Trips
	requested, warned []string    // of these API servers
	shown             []view.Trip // as they were before
}

// update requests, once, a round trip of each API server's plugins. Without the right it does not try again. On a
// terminal it prints each node whose state has changed.
func (t *roundTrips) update(ctx context.Context, s *view.Status) {
	for _, a := range s.APIServers {
		if len(a.Plugins) == 0 || slices.Contains(t.requested, a.Name) {
			continue
		}
		err := t.request(ctx, a.Target, t.Request)
		denied := apierrors.IsForbidden(err)
		if err == nil || denied {
			t.requested = append(t.requested, a.Name)
		}
		if err != nil && !slices.Contains(t.warned, a.Name) {
			t.warned = append(t.warned, a.Name)
			then := "Trying again"
			if denied {
				then = fmt.Sprintf("Waiting for regular ones (%d), at most %s (--timeout)", view.Regular, t.timeout)
			}
			fmt.Fprintf(t.stderr, "warning: no round trip is requested: %s\n%s\n", show.Lines(err.Error()), then)
		}
	}
	for _, trip := range t.Made {
		if t.terminal && !slices.Contains(t.shown, trip) {
			fmt.Fprint(t.stderr, show.Trip(&trip))
		}
	}
	t.shown = t.Made
}
