package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

func newWatch(e environment) *cobra.Command {
	o := options{environment: e}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the state of every plugin, again whenever it changes",
		Long: `Shows what status shows, again whenever it changes, until Ctrl-C: also when a
report becomes stale without a write. On a terminal the screen is redrawn;
elsewhere a new table is printed, after a line with the time, when a state, a remote
key or a condition has changed.

While the API server cannot be reached, that is printed once, what was last read is
still judged, and the request is repeated until it succeeds.

Exit codes: 0 ended by Ctrl-C, 3 there is nothing to watch.`,
		Example: `  kubectl kms-health watch

  # A log of changes.
  kubectl kms-health watch -o wide >> kms.log`,
		Args:    noArguments,
		PreRunE: o.validate,
		RunE:    works(func(cmd *cobra.Command, _ []string) error { return o.watch(cmd.Context()) }),
	}
	o.clusterFlags(cmd)
	o.selectFlags(cmd, true)
	o.tableFlags(cmd)
	o.outputFlag(cmd, "wide")
	return cmd
}

func (o *options) watch(ctx context.Context) error {
	c, err := o.cluster()
	if err != nil {
		return err
	}
	w := newWatcher(o, c.Offset)
	found, problems := o.readTargets(ctx, c)
	interrupted := ctx.Err() != nil
	switch away := unreachable(problems); {
	case interrupted: // and so is what follows
	case len(found) > 0:
		o.operatorAlive(ctx, c, w.now())
	case away != nil:
		for _, target := range o.followed() {
			w.take(source.Update{Target: target, Problem: away})
		}
	// A problem that a retry cannot fix ends it before it begins.
	case len(problems) > 0:
		return errors.Join(problems...)
	default:
		return o.noneServed(c)
	}
	return w.run(ctx, c.Follow(ctx, o.followed()))
}

// followed are the operator resources, and the KMSHealths as a whole.
func (o *options) followed() (all []string) {
	if !o.ownOnly {
		all = o.wanted()
	}
	if o.wantsOwn() {
		all = append(all, contract.KMSHealths.Plural)
	}
	return all
}

// unreachable returns the first problem of the kind that may end without intervention.
func unreachable(problems []error) *source.Problem {
	for _, problem := range problems {
		var p *source.Problem
		if errors.As(problem, &p) && p.Unreachable {
			return p
		}
	}
	return nil
}

// refresh is how often a terminal is redrawn, to update the ages.
const refresh = 5 * time.Second

// watcher prints the received states when they have changed.
type watcher struct {
	*options
	offset func() time.Duration

	found    map[string]*view.Target
	known    map[string]bool // the targets whose state is known
	problems map[string]*source.Problem
	shown    string // the essence of what was last printed
	again    time.Time
}

func newWatcher(o *options, offset func() time.Duration) *watcher {
	return &watcher{options: o, offset: offset, found: map[string]*view.Target{}, known: map[string]bool{}, problems: map[string]*source.Problem{}}
}

// run ends with ctx, and when writing to the output fails.
func (w *watcher) run(ctx context.Context, updates <-chan source.Update) error {
	for {
		var timer clock.Timer
		var due <-chan time.Time
		if wait, ok := w.wait(); ok {
			timer = w.clock.NewTimer(wait)
			due = timer.C()
		}
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case u := <-updates:
			w.take(u)
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if ended {
			return nil
		}
		if err := w.draw(); err != nil {
			return err
		}
	}
}

// wait is for how long the state stays the same without another write.
func (w *watcher) wait() (time.Duration, bool) {
	switch {
	case w.again.IsZero() && w.terminal == nil:
		return 0, false
	case w.again.IsZero():
		return refresh, true
	}
	wait := max(w.again.Sub(w.now()), 0)
	if w.terminal != nil {
		wait = min(wait, refresh)
	}
	return wait, true
}

func (w *watcher) now() time.Time { return w.clock.Now().Add(w.offset()) }

// take stores an update, and prints a problem once for all targets that have it.
func (w *watcher) take(u source.Update) {
	had := w.problems[u.Target]
	if u.Problem == nil {
		delete(w.problems, u.Target)
		w.found[u.Target], w.known[u.Target] = u.Found, true
		if had != nil && !w.has(had) {
			w.note("%s: it can be read again", w.stamp())
		}
		return
	}
	if !w.has(u.Problem) {
		w.warn("%s: %v\nTrying again", w.stamp(), u.Problem)
	}
	w.problems[u.Target] = u.Problem
}

// has reports whether some target has the same problem.
func (w *watcher) has(p *source.Problem) bool {
	for _, other := range w.problems {
		if other.Same(p) {
			return true
		}
	}
	return false
}

func (w *watcher) stamp() string { return w.now().UTC().Format(time.RFC3339) }

// draw prints the state if it has changed.
func (w *watcher) draw() error {
	var targets []view.Target
	for _, name := range w.followed() {
		// At first, wait until all targets are known.
		if w.shown == "" && !w.known[name] && w.problems[name] == nil {
			return nil
		}
		for _, each := range slices.Sorted(maps.Keys(w.found)) {
			if plural, _, _ := strings.Cut(each, "/"); plural == name && w.found[each] != nil && w.wants(each) {
				targets = append(targets, *w.found[each])
			}
		}
	}
	if w.shown == "" && len(targets) == 0 && len(w.problems) > 0 {
		return nil // what could not be read may exist; the problem was printed
	}
	var s view.Status
	s, w.again = view.Of(targets, w.now())
	s.Select(w.nodes)
	if w.terminal != nil {
		w.shown = "drawn"
		_, err := io.WriteString(w.stdout, "\x1b[H\x1b[2J"+w.screen(&s))
		return err
	}
	essence := essence(&s)
	if essence == w.shown {
		return nil
	}
	w.shown = essence
	_, err := io.WriteString(w.stdout, w.screen(&s)+"\n")
	return err
}

func (w *watcher) screen(s *view.Status) string {
	table := show.Table(s, w.table())
	if table == "" {
		table = "no operator resource is there\n"
	}
	head := s.Time.UTC().Format(time.RFC3339)
	if w.terminal != nil { // where the next screen overwrites what was printed
		for _, p := range w.problems {
			first, _, _ := strings.Cut(p.Error(), "\n")
			head += ", as last read: " + show.Lines(first)
			break
		}
	}
	return head + "\n" + table
}

// essence is the part of the state whose changes cause a new table: not the time of a check.
func essence(s *view.Status) string {
	var b strings.Builder
	for _, t := range s.Targets {
		fmt.Fprintf(&b, "%q\n", t.Target)
		for _, p := range t.Plugins {
			fmt.Fprintf(&b, "%q %q %t %q %q\n", p.Node, p.KeyID, p.Write, p.KEKID, p.State)
		}
		for _, c := range slices.Concat(t.Conditions, t.Rotation) {
			fmt.Fprintf(&b, "%q %q %q %q\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return b.String() + "."
}
