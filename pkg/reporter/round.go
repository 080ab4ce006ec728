package reporter

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
)

// grace is how long the first answers of a round wait for the others, so
// that a round is one write. A plugin that hangs delays no other for longer.
const grace = 250 * time.Millisecond

// absence is how often the reporter checks whether a missing socket exists.
const absence = 250 * time.Millisecond

// event is sent to the loop by another goroutine.
type event struct {
	plugin *plugin
	kind   eventKind
	result probe.Result
	trip   probe.Trip
}

type eventKind int

const (
	probeReported eventKind = iota // a result, or the same with a diagnosis
	tripEnded
	socketAppeared
)

// send sends an event to the loop, unless the reporter ends.
func (r *Reporter) send(ctx context.Context, e event) {
	select {
	case r.events <- e:
	case <-ctx.Done():
	}
}

// probe starts a probe of each plugin, concurrently; a plugin whose probe still runs is
// skipped.
func (r *Reporter) probe(ctx context.Context, plugins []*plugin) {
	for _, p := range plugins {
		if p.busy {
			continue
		}
		p.busy, p.waiting, p.reported = true, true, false
		settings := p.settings
		r.running.Go(func() {
			p.conn.Probe(p.ctx, settings, func(result probe.Result) {
				r.send(ctx, event{plugin: p, kind: probeReported, result: result})
			})
		})
	}
}

// handle handles an event. One of a plugin that is no longer configured is ignored.
func (r *Reporter) handle(ctx context.Context, e event) {
	p := e.plugin
	if p.dropped {
		return
	}
	switch e.kind {
	case probeReported:
		if p.reported {
			r.amend(p, e.result)
		} else {
			p.reported = true
			r.observe(ctx, p, e.result)
		}
		p.busy = e.result.More
		if p.again && !p.busy {
			p.again = false
			r.probe(ctx, []*plugin{p})
		}
	case tripEnded:
		p.waiting = false
		p.trips.end(e.trip)
		r.metrics.observeTrip(p.keyID, e.trip)
		r.publishWhenComplete()
	case socketAppeared:
		p.awaited = false
		r.probe(ctx, []*plugin{p})
	}
}

// observe stores one result, and publishes when it completes a round.
func (r *Reporter) observe(ctx context.Context, p *plugin, result probe.Result) {
	p.waiting = false
	r.metrics.observe(p.keyID, result)
	r.noteNotProbed(p, result.NotProbed)
	if result.NotProbed != "" {
		// The last result is kept, and becomes stale: nothing newer is known.
		r.publishWhenComplete()
		return
	}
	p.probed, p.last = true, result
	if result.KEKID != "" {
		p.lastKEKID = result.KEKID
	}
	if result.Reason == health.SocketMissing && !p.awaited {
		p.awaited = true
		r.running.Go(func() { r.awaitSocket(ctx, p) })
	}
	if now, every := time.Now(), r.tripInterval(); p.trips.due(now, every, result) {
		p.trips.begin(now, every, result)
		p.waiting = true
		settings := p.settings
		r.running.Go(func() {
			trip := p.conn.RoundTrip(p.ctx, settings, result.KEKID)
			r.send(ctx, event{plugin: p, kind: tripEnded, trip: trip})
		})
	}
	r.publishWhenComplete()
}

// amend adds a diagnosis to the last result that was found after its verdict.
func (r *Reporter) amend(p *plugin, result probe.Result) {
	result.At, result.Took = p.last.At, p.last.Took
	changed := result.Detail != p.last.Detail
	p.last = result
	if changed {
		r.publishWhenComplete()
	}
}

func (r *Reporter) tripInterval() time.Duration {
	return r.config.Probe.Checks.RoundTrip.Interval.Duration
}

// noteNotProbed logs when the reporter itself becomes unable to probe, since it lacks
// resources or does not run, and when it is able to again.
func (r *Reporter) noteNotProbed(p *plugin, why string) {
	switch {
	case why != "" && p.notProbed == "":
		klog.ErrorS(nil, "Failed to probe because of the reporter itself; the last result is kept and becomes stale", "keyID", p.keyID, "socket", p.address, "why", why)
	case why == "" && p.notProbed != "":
		klog.InfoS("Probing works again", "keyID", p.keyID, "socket", p.address)
	}
	p.notProbed = why
}

// awaitSocket waits until a socket exists, so that the plugin is probed at once and not
// an interval later. In a new pod the socket is usually missing at first.
func (r *Reporter) awaitSocket(ctx context.Context, p *plugin) {
	look := time.NewTicker(absence)
	defer look.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-look.C:
			if probe.SocketExists(p.address) {
				r.send(ctx, event{plugin: p, kind: socketAppeared})
				return
			}
		}
	}
}

// publishWhenComplete publishes when all results of the round have arrived, otherwise
// when grace has passed.
func (r *Reporter) publishWhenComplete() {
	switch {
	case r.complete():
		r.publish()
	case !r.graceStarted:
		r.graceStarted = true
		r.graceTimer.Reset(grace)
	}
}

// complete reports whether all results of the round have arrived.
func (r *Reporter) complete() bool {
	return !slices.ContainsFunc(r.plugins, func(p *plugin) bool { return p.waiting })
}

// logged is what was last logged of a plugin.
type logged struct {
	result probe.Result // its verdict includes the round trip's
	detail time.Time    // when another detail of it was last logged
}

// detailGap is the shortest time between two log lines that differ in the detail only:
// the plugin determines that text, and may change it each time.
const detailGap = time.Minute

// change logs the first verdict on a plugin, and each that differs from the one before.
func (l *logged) change(p *plugin) {
	now, before := p.last, l.result
	now.Status, now.Reason, now.Detail = verdict(p.last, p.trips.standing(p.last))
	sameKind := before.Status == now.Status && before.Gone == now.Gone && before.KEKID == now.KEKID && before.Reason == now.Reason
	if sameKind && (before.Detail == now.Detail || time.Since(l.detail) < detailGap) {
		return
	}
	l.result, l.detail = now, time.Time{}
	if sameKind {
		l.detail = time.Now()
	}
	kekID := health.CleanDetail(now.KEKID)
	switch {
	case now.Gone:
		klog.InfoS("Nothing to observe", "keyID", p.keyID, "socket", p.address, "why", now.Detail)
	case now.Status == health.Healthy:
		klog.InfoS("Plugin is healthy", "keyID", p.keyID, "socket", p.address, "kekID", kekID)
	default:
		klog.ErrorS(nil, "Plugin is not healthy", "keyID", p.keyID, "socket", p.address, "status", now.Status, "reason", now.Reason, "kekID", kekID, "detail", now.Detail)
	}
}

// publish sends the current state to the publishers, the output and the server.
func (r *Reporter) publish() {
	r.graceTimer.Stop()
	r.graceStarted = false
	r.show()
	interval := r.config.Probe.Interval.Duration
	for _, p := range r.plugins {
		if p.probed {
			p.logged.change(p)
			r.metrics.show(p.entry(interval))
		}
	}
	list := observed(r.plugins, interval)
	for _, p := range r.publishers {
		p.Offer(list)
	}
	if r.output == nil {
		return
	}
	message, err := health.EncodeMessage(entriesOf(list))
	if err != nil {
		klog.ErrorS(err, "Failed to encode the report")
		return
	}
	r.output.offer(message)
}

// shown is the state as of the last call of show, with the publishers, which have a state
// of their own.
type shown struct {
	serve.View
	publishers []*publish.Publisher
	preferred  string // the first of the destination's servers
}

// show makes the current state available to the server.
func (r *Reporter) show() {
	now := &shown{View: serve.View{Configured: r.config != nil, ConfigError: r.configError, ConfigMismatch: r.mismatch}, publishers: r.publishers}
	for _, p := range r.plugins {
		now.Plugins = append(now.Plugins, serve.Plugin{Entry: p.entry(r.config.Probe.Interval.Duration), Probed: p.probed, Gone: p.last.Gone, NotProbed: p.notProbed})
	}
	switch {
	case r.config == nil && now.ConfigError == "":
		now.ConfigError = "not read yet"
	case r.config != nil && r.config.Destination != nil && len(r.config.Destination.Servers) > 0:
		now.preferred = r.config.Destination.Servers[0].URL
	}
	r.shown.Store(now)
}

// view is the state at this moment. The server calls it for each request.
func (r *Reporter) view() serve.View {
	now := r.shown.Load()
	view := now.View
	for _, p := range now.publishers {
		s := p.Status()
		w := serve.Write{Form: string(s.Form), Server: s.Server, PreferredError: s.PreferredError, Error: s.LastError}
		if !s.Preferred {
			w.Preferred = now.preferred
		}
		view.Writes = append(view.Writes, w)
	}
	return view
}
