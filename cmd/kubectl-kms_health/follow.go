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

// period is how often a cluster is read. It is read anew rather than watched: that follows objects
// that appear later, and continues after an outage, without a state of its own.
const period = 2 * time.Second

// follow reads and evaluates again and again, until a status is the last one, or to the timeout, which cuts no read. It
// continues after an outage. It is an error if nothing can be read at the end, or a retry cannot fix it.
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
			fmt.Fprintln(o.stderr, "warning: it can be read again")
		}
		wasRead, failed = true, ""
		return isLast(status)
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return err
	case !wasRead || failed != "":
		return fmt.Errorf("the state cannot be read at the timeout of %s: %s", o.timeout,
			cmp.Or(failed, "there was no answer"))
	}
	return nil
}

// awaitHealthy waits until everything is healthy by new round trips. After the timeout it prints the status as it is
// then.
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

// newTrips names the requests of a command after it.
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
		if err := t.request(ctx, a.Target(), t.Request); err != nil {
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
