package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// period is how often a cluster is read. It is read anew rather than watched: that follows objects
// that appear later, and continues after an outage, without a state of its own.
const period = 2 * time.Second

// follower reads and evaluates again and again.
type follower struct {
	*options

	wasRead bool
	failed  string // why it cannot be read now; empty: it can
	shown   string // what was last printed, without what every report changes
}

// try reads and evaluates. The status is nil while that fails. An error is one that a retry cannot
// fix.
func (f *follower) try(ctx context.Context) (*view.Status, error) {
	status, err := f.evaluate(ctx)
	switch {
	case err == nil && f.failed != "":
		fmt.Fprintln(f.stderr, "warning: it can be read again")
		f.failed = ""
	case err == nil:
	case !f.wasRead && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		return nil, err
	case ctx.Err() == nil && f.failed != err.Error():
		f.failed = err.Error()
		fmt.Fprintf(f.stderr, "warning: %s\nTrying again\n", show.Lines(f.failed))
	}
	f.wasRead = f.wasRead || err == nil
	return status, nil
}

// watch prints the status whenever it changes, until ctx ends.
func (f *follower) watch(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, period, true, func(ctx context.Context) (bool, error) {
		status, err := f.try(ctx)
		if status != nil {
			err = f.draw(status)
		}
		return false, err
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// wait waits until everything is healthy. After the timeout it prints the status as it is then.
func (f *follower) wait(ctx context.Context) error {
	var last *view.Status
	err := wait.PollUntilContextTimeout(ctx, period, f.timeout, true, func(ctx context.Context) (bool, error) {
		status, err := f.try(ctx)
		if ctx.Err() == nil { // a read that the timeout has cut says nothing
			last = status
		}
		return status != nil && status.Verdict == view.Healthy, err
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return err
	case last == nil:
		return f.unreadable()
	}
	return f.finish(last)
}

// unreadable is the error of what was not read within the timeout.
func (f *follower) unreadable() error {
	return fmt.Errorf("the state cannot be read at the timeout of %s: %s", f.timeout,
		cmp.Or(f.failed, "there was no answer"))
}

// draw prints a status below the earlier one, if it has changed.
func (f *follower) draw(s *view.Status) error {
	state, err := show.JSON(s)
	now := moving.ReplaceAllString(string(state), "")
	if err != nil || now == f.shown {
		return err
	}
	f.shown = now
	_, err = fmt.Fprintf(f.stdout, "%s %s\n", s.Time.UTC().Format(time.RFC3339), show.Status(s, f.output == "wide"))
	return err
}

// moving are the lines of a status's JSON that every report changes.
var moving = regexp.MustCompile(`(?m)^ *"(time|lastChecked|written|roundTrip)": .*$`)
