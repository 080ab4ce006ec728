package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// period is how often a cluster is read. Without a watch there is no state to keep, objects that
// appear later are found, and an outage needs no special handling.
const period = 2 * time.Second

// follow reads and evaluates each period until isLast is true, or until the timeout, which interrupts no read. It
// continues after an outage. It returns an error if the last read failed, or if a retry cannot fix the failure.
func (o *options) follow(ctx context.Context, isLast func(*view.Status) (bool, error)) error {
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
		wasRead, failed = true, ""
		return isLast(status)
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
	trips := o.newTrips("wait")
	err := o.follow(ctx, func(s *view.Status) (bool, error) {
		last = s
		made := trips.Follow(s)
		trips.update(ctx, s, made)
		return s.Await(made), nil
	})
	if err != nil {
		return err
	}
	return o.finish(last)
}

// trips requests round trips, and shows them.
type trips struct {
	view.Trips
	*options
	requested map[string]bool   // by API server
	shown     map[string]string // by API server and node
}

// newTrips returns trips whose request has the name of the command and the time.
func (o *options) newTrips(command string) *trips {
	request := o.clock.Now().UTC().Format(command + "-20060102-150405.000")
	return &trips{view.Trips{Request: request}, o, map[string]bool{}, map[string]string{}}
}

// update requests, once, a round trip of each API server's plugins. On a terminal it prints each node whose state has
// changed.
func (t *trips) update(ctx context.Context, s *view.Status, made []view.Trip) {
	for _, a := range s.APIServers {
		if len(a.Plugins) == 0 || t.requested[a.Name] {
			continue
		}
		t.requested[a.Name] = true
		if err := t.request(ctx, a.Target, t.Request); err != nil {
			fmt.Fprintf(t.stderr, "warning: no round trip is requested: %s\n"+
				"Waiting for regular ones (%d), at most %s (--timeout)\n", show.Lines(err.Error()), view.Regular, t.timeout)
		}
	}
	for _, m := range made {
		if text := show.Trip(&m); t.terminal && t.shown[m.APIServer+"/"+m.Node] != text {
			fmt.Fprint(t.stderr, text)
			t.shown[m.APIServer+"/"+m.Node] = text
		}
	}
}
