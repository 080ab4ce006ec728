package reporter

import (
	"context"
	"io"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
	"github.com/kms-health/kms-health/pkg/serving"
)

// grace is how long the first answers of a round wait for the others, so
// that a round is one write. A plugin that hangs delays no other for longer.
const grace = 250 * time.Millisecond

// absence is how often the reporter checks whether a missing socket exists.
const absence = 250 * time.Millisecond

// send has the loop handle an event, unless the plugin is no longer configured or the reporter ends.
func (r *Reporter) send(p *plugin, event func()) {
	select {
	case r.events <- func() {
		if p.ctx.Err() == nil {
			event()
		}
	}:
	case <-p.ctx.Done():
	}
}

// probe starts a probe of each plugin, concurrently; a plugin whose probe still runs is
// skipped.
func (r *Reporter) probe(plugins []*plugin) {
	for _, p := range plugins {
		if p.busy {
			continue
		}
		p.busy, p.waiting = true, true
		p.probes <- p.settings // has room: no probe is under way
	}
}

// prober makes a plugin's probes until it is dropped. It is one goroutine for all of them, since the
// stack of each new one would have to grow again.
func (r *Reporter) prober(p *plugin) {
	for {
		select {
		case <-p.ctx.Done():
			return
		case settings := <-p.probes:
			result := p.conn.Probe(p.ctx, settings)
			r.send(p, func() { r.observe(p, result) })
		}
	}
}

// observe stores the result of a probe, and publishes when it completes a round.
func (r *Reporter) observe(p *plugin, result probe.Result) {
	p.busy, p.waiting = false, false
	r.countProbe(p.keyID, result)
	r.noteNotProbed(p, result.NotProbed)
	if result.NotProbed == "" { // else the last result is kept, and becomes stale: nothing newer is known
		p.probed, p.last = true, result
		if result.Reason == contract.SocketMissing && !p.awaited {
			p.awaited = true
			r.running.Go(func() { r.awaitSocket(p) })
		}
		now, every := time.Now(), r.tripInterval()
		p.trips.observe(now, r.config.Probe.Interval.Duration, result)
		if p.trips.due(now, every, result) {
			p.trips.begin(now, result)
			p.waiting = true
			r.trip(p, result.KEKID)
		}
	}
	r.publishWhenComplete()
}

func (r *Reporter) trip(p *plugin, kekID string) {
	settings := p.settings
	r.running.Go(func() {
		trip := p.conn.RoundTrip(p.ctx, settings, kekID)
		r.send(p, func() {
			p.waiting = false
			p.trips.keys.see(time.Now(), r.config.Probe.Interval.Duration, trip.KEKID)
			p.trips.end(trip)
			if r.tripInterval() == 0 { // turned off meanwhile
				p.trips = trips{}
			}
			r.countTrip(p.keyID, trip)
			r.publishWhenComplete()
		})
	})
}

func (r *Reporter) tripInterval() time.Duration {
	return r.config.Probe.Checks.RoundTrip.Interval.Duration
}

// noteNotProbed logs when the reporter itself becomes unable to probe, since it lacks
// resources or does not run, and when it is able to again.
func (r *Reporter) noteNotProbed(p *plugin, why string) {
	switch {
	case why != "" && p.notProbed == "":
		klog.ErrorS(nil, "Failed to probe because of the reporter itself; the last result is kept and becomes stale",
			"keyID", p.keyID, "socket", p.address, "why", why)
	case why == "" && p.notProbed != "":
		klog.InfoS("Probing works again", "keyID", p.keyID, "socket", p.address)
	}
	p.notProbed = why
}

// awaitSocket waits until a socket exists, so that the plugin is probed at once and not
// an interval later. In a new pod the socket is usually missing at first.
func (r *Reporter) awaitSocket(p *plugin) {
	for exists := false; !exists; exists = probe.SocketExists(p.address) {
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(absence):
		}
	}
	r.send(p, func() {
		p.awaited = false
		r.probe([]*plugin{p})
	})
}

// publishWhenComplete publishes when all results of the round have arrived, otherwise
// when grace has passed.
func (r *Reporter) publishWhenComplete() {
	switch {
	case r.complete():
		r.publish()
	case r.grace == nil:
		r.grace = time.After(grace)
	}
}

func (r *Reporter) complete() bool {
	return !slices.ContainsFunc(r.plugins, func(p *plugin) bool { return p.waiting })
}

// logged is what was last logged of a plugin.
type logged struct {
	result probe.Result // its verdict includes the round trip's
	text   time.Time    // when another detail or key_id of it was last logged
}

// textGap is the shortest time between two log lines that differ in the detail or the key_id
// only: the plugin determines those texts, and may change them each time.
const textGap = time.Minute

// change logs the first verdict on a plugin, and each that differs from the one before.
func (l *logged) change(p *plugin) {
	now, before := p.last, l.result
	now.Status, now.Reason, now.Detail = verdict(p.last, p.trips.standing())
	sameKind := before.Status == now.Status && before.Gone == now.Gone && before.Reason == now.Reason
	sameText := before.Detail == now.Detail && before.KEKID == now.KEKID
	if sameKind && (sameText || time.Since(l.text) < textGap) {
		return
	}
	l.result, l.text = now, time.Time{}
	if sameKind {
		l.text = time.Now()
	}
	kekID := contract.CleanDetail(now.KEKID)
	switch {
	case now.Gone:
		klog.InfoS("Nothing to observe", "keyID", p.keyID, "socket", p.address, "why", now.Detail)
	case now.Status == contract.Healthy:
		klog.InfoS("Plugin is healthy", "keyID", p.keyID, "socket", p.address, "kekID", kekID)
	default:
		klog.ErrorS(nil, "Plugin is not healthy", "keyID", p.keyID, "socket", p.address, "status", now.Status, "reason",
			now.Reason, "kekID", kekID, "detail", now.Detail)
	}
}

func (r *Reporter) publish() {
	r.grace = nil
	r.show()
	interval := r.config.Probe.Interval.Duration
	for _, p := range r.plugins {
		if p.probed {
			p.logged.change(p)
			r.showStatus(p.entry(interval))
		}
	}
	list := observed(r.plugins, interval)
	for i := range list {
		list[i].Reporter = r.options.PodUID
	}
	if r.publisher != nil {
		r.publisher.Offer(list)
	}
	if r.output == nil {
		return
	}
	message, err := contract.EncodeMessage(list)
	if err != nil {
		klog.ErrorS(err, "Failed to encode the report")
		return
	}
	r.output.offer(message)
}

func (r *Reporter) show() {
	now := &serve.View{Configured: r.config != nil, ConfigError: r.configError, ConfigMismatch: r.mismatch}
	if r.publisher != nil {
		now.WriteError = r.publisher.LastError
	}
	for _, p := range r.plugins {
		now.Plugins = append(now.Plugins, serve.Plugin{Entry: p.entry(r.config.Probe.Interval.Duration), Probed: p.probed,
			Gone: p.last.Gone, NotProbed: p.notProbed})
	}
	r.shown.Store(now)
}

// output writes messages to standard output, by --output. It holds one message, the
// latest: a slow reader misses some messages, and does not delay the loop.
type output struct {
	to      io.Writer
	lines   chan []byte
	metrics *metrics.Registry
	problem serving.Problem
}

// line returns a message as a line that is safe to print to a terminal.
func line(message string) []byte { return append(contract.Printable(message), '\n') }

// offer replaces what was not written yet. Only the loop calls it.
func (o *output) offer(message string) {
	select {
	case <-o.lines:
	default:
	}
	o.lines <- line(message) // has room: only the loop sends
}

func (o *output) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-o.lines:
			_, err := o.to.Write(line)
			o.problem.Note(err, "Failed to write to --output; continuing without it")
			if err != nil {
				o.metrics.Add(contract.MetricOutputErrors, 1)
			}
		}
	}
}
