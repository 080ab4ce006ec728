package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// period is how often a cluster is read. It is read anew rather than watched: that follows objects
// that appear later, and continues after an outage, without a state of its own.
const period = 2 * time.Second

// follower reads and evaluates, once or again and again.
type follower struct {
	*options
	read func(context.Context) (*view.Snapshot, error)

	last   *view.Snapshot // as last read
	lastAt time.Time
	failed string // why it could not be read; empty: it was
	notes  string // those that were last printed
	shown  string // what was last printed, without what every report changes
}

// once reads and evaluates, and prints notes on stderr.
func (f *follower) once(ctx context.Context) (*view.Status, error) {
	snapshot, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	f.last, f.lastAt = snapshot, f.clock.Now()
	if notes := strings.Join(snapshot.Notes, "\n"); notes != f.notes && notes != "" {
		f.notes = notes
		f.warn(notes)
	}
	return view.Evaluate(snapshot, f.name)
}

func (f *follower) warn(text string) { fmt.Fprintln(f.stderr, "warning: "+show.Lines(text)) }

// try is once, which survives an outage: what was last read is then evaluated at the current time.
// The status is nil if nothing was read yet. An error is one that a retry cannot fix.
func (f *follower) try(ctx context.Context) (*view.Status, error) {
	status, err := f.once(ctx)
	if err == nil {
		if f.failed != "" {
			f.failed = ""
			f.warn("it can be read again")
		}
		return status, nil
	}
	retry := f.last != nil || !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
	if ctx.Err() != nil || !retry {
		return nil, cmp.Or(ctx.Err(), err)
	}
	if f.failed != err.Error() {
		f.failed = err.Error()
		f.warn(err.Error() + "\nTrying again")
	}
	if f.last == nil {
		return nil, nil
	}
	outdated := *f.last
	outdated.Now = outdated.Now.Add(f.clock.Since(f.lastAt))
	status, _ = view.Evaluate(&outdated, f.name) // nil: the name may appear later
	return status, nil
}

// watch prints the status whenever it changes, until ctx ends.
func (f *follower) watch(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, period, true, func(ctx context.Context) (bool, error) {
		status, err := f.try(ctx)
		if err == nil && status != nil {
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
		last = cmp.Or(status, last)
		return last != nil && last.Verdict == view.Healthy, err
	})
	switch {
	case err != nil && !wait.Interrupted(err):
		return err
	case last == nil:
		return fmt.Errorf("nothing could be read within %s: %s", f.timeout, f.failed)
	}
	return f.finish(last)
}

// draw prints a status below the earlier one, if it has changed.
func (f *follower) draw(s *view.Status) error {
	state, err := show.JSON(s)
	now := moving.ReplaceAllString(string(state), "")
	if err != nil || now == f.shown {
		return err
	}
	f.shown = now
	_, err = fmt.Fprintf(f.stdout, "%s %s\n", s.Time.UTC().Format(time.RFC3339), show.Status(s, f.show()))
	return err
}

// moving are the lines of a status's JSON that every report changes.
var moving = regexp.MustCompile(`(?m)^ *"(time|lastChecked|written)": .*$`)
