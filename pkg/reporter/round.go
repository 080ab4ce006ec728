package reporter

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

const (
	grace   = 250 * time.Millisecond // the first answers of a round wait so long for the others, to be one write
	absence = 250 * time.Millisecond // how often the reporter checks whether a missing socket exists
)

// probe starts a probe of each plugin, concurrently; a plugin whose probe still runs is skipped.
func (r *Reporter) probe(plugins []*plugin) {
	for _, p := range plugins {
		if p.busy {
			continue
		}
		p.busy, p.waiting, p.trips.probing = true, true, p.trips.request
		p.probes <- p.settings // has room: no probe is under way
	}
}

// prober makes a plugin's probes until the plugin is dropped: the stack of a goroutine for each would have to grow.
func (r *Reporter) prober(p *plugin) {
	for {
		select {
		case <-p.ctx.Done():
			return
		case settings := <-p.probes:
			result := p.conn.Probe(p.ctx, settings)
			r.do(p.ctx, func() { r.observe(p, result) })
		}
	}
}

// observe stores the result of a probe, and publishes when it completes a round.
func (r *Reporter) observe(p *plugin, result probe.Result) {
	klog.V(4).InfoS("Probed", "keyID", p.keyID, "status", result.Status, "reason", result.Reason, "took", result.Took)
	p.busy, p.waiting = false, false
	r.countProbe(p.keyID, result)
	r.noteNotProbed(p, result.NotProbed)
	if result.NotProbed == "" { // otherwise the last result is kept, and becomes stale
		p.last = result
		if result.Reason == contract.SocketMissing && !p.awaited {
			p.awaited = true
			r.running.Go(func() { r.awaitSocket(p) })
		}
		now, probes := time.Now(), r.config.Probe
		p.trips.observe(now, probes.Interval.Duration, result)
		if p.trips.due(now, r.tripInterval(), result) {
			p.waiting = true
			r.trip(p, result.KEKID, p.trips.begin(now, result))
		}
		p.judge(now, probes)
		r.wake(p)
		r.save(now, false)
	}
	r.publishWhenComplete()
}

func (r *Reporter) trip(p *plugin, kekID string, kept []*probe.Sample) {
	settings := p.settings
	r.running.Go(func() {
		trip := p.conn.RoundTrip(p.ctx, settings, kekID, kept)
		r.do(p.ctx, func() { r.observeTrip(p, trip) })
	})
}

func (r *Reporter) observeTrip(p *plugin, trip probe.Trip) {
	klog.V(2).InfoS("Round trip ended", "keyID", p.keyID, "made", trip.Made, "status", trip.Status, "took", trip.Took)
	p.waiting = false
	now, again := time.Now(), false
	if r.tripInterval() == 0 { // turned off meanwhile
		p.trips = trips{}
	} else {
		again = p.trips.end(now, r.config.Probe.Interval.Duration, trip)
		p.judge(now, r.config.Probe)
	}
	r.countTrip(p.keyID, trip)
	if again {
		r.probe([]*plugin{p})
	}
	r.wake(p)
	r.publishWhenComplete()
	r.save(now, true)
}

// wake schedules a probe for when a requested round trip may be made.
func (r *Reporter) wake(p *plugin) {
	if p.waking || p.trips.busy || !p.trips.pending() || r.tripInterval() == 0 {
		return
	}
	p.waking = true
	time.AfterFunc(max(p.trips.gap()-time.Since(p.trips.at), time.Second), func() {
		r.do(p.ctx, func() {
			p.waking = false
			r.probe([]*plugin{p})
		})
	})
}

func (r *Reporter) tripInterval() time.Duration {
	return r.config.Probe.Checks.RoundTrip.Interval.Duration
}

// noteNotProbed logs when the reporter itself becomes unable to probe, and when it can probe again.
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

// awaitSocket has the plugin probed as soon as its socket exists. In a new pod the socket is usually missing at first.
func (r *Reporter) awaitSocket(p *plugin) {
	for err := fs.ErrNotExist; errors.Is(err, fs.ErrNotExist); _, err = os.Stat(p.address) {
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(absence):
		}
	}
	r.do(p.ctx, func() {
		p.awaited = false
		r.probe([]*plugin{p})
	})
}

// publishWhenComplete publishes when all results of the round have arrived, otherwise when grace has passed.
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

// logged is the content of the last log line about a plugin.
type logged struct {
	entry contract.Entry
	gone  bool
	text  time.Time // when it was logged, if only texts had changed; else zero
}

const textGap = time.Minute // the shortest time between two log lines that differ only in texts of the plugin

// change logs the first verdict on a plugin and each other one, but a change of texts alone at most each textGap.
func (l *logged) change(p *plugin) {
	now, before := p.entry, l.entry
	sameKind := before.Status == now.Status && l.gone == p.last.Gone && before.Reason == now.Reason
	sameText := before.Detail == now.Detail && before.KEKID == now.KEKID && slices.Equal(before.Lost, now.Lost)
	if sameKind && (sameText || time.Since(l.text) < textGap) {
		return
	}
	l.entry, l.gone, l.text = now, p.last.Gone, time.Time{}
	if sameKind {
		l.text = time.Now()
	}
	kekID, lost := contract.CleanDetail(now.KEKID), contract.CleanDetail(strings.Join(now.Lost, " "))
	switch {
	case l.gone:
		klog.InfoS("Nothing to observe", "keyID", p.keyID, "socket", p.address, "why", p.last.Detail)
	case now.Status == contract.Healthy:
		klog.InfoS("Plugin is healthy", "keyID", p.keyID, "socket", p.address, "kekID", kekID, "lost", lost)
	default:
		klog.ErrorS(nil, "Plugin is not healthy", "keyID", p.keyID, "socket", p.address, "status", now.Status, "reason",
			now.Reason, "kekID", kekID, "lost", lost, "detail", now.Detail)
	}
}

func (r *Reporter) publish() {
	r.grace = nil
	for _, p := range r.plugins {
		if p.judged() {
			p.logged.change(p)
			r.showStatus(p.entry)
		}
	}
	list := entriesOf(r.plugins)
	for i := range list {
		list[i].Reporter = r.options.PodUID
	}
	if r.output != nil {
		if message, err := contract.EncodeMessage(list); err == nil {
			r.output.put(line(message))
		} else {
			klog.ErrorS(err, "Failed to encode the report")
		}
	}
	if r.publisher != nil {
		r.publisher.Offer(list)
	}
}

// sink writes values in a goroutine of its own. A slow writer skips values: only the latest one waits.
type sink struct {
	latest chan []byte
	write  func([]byte)
}

func newSink(write func([]byte)) *sink { return &sink{make(chan []byte, 1), write} }

// put is called by the loop only.
func (s *sink) put(value []byte) {
	select {
	case <-s.latest:
	default:
	}
	s.latest <- value // has room
}

// run writes values until ctx ends, and then one that still waits.
func (s *sink) run(ctx context.Context) {
	for {
		select {
		case value := <-s.latest:
			s.write(value)
		case <-ctx.Done():
			select {
			case value := <-s.latest:
				s.write(value)
			default:
			}
			return
		}
	}
}

func (r *Reporter) writeOutput(line []byte) {
	_, err := r.options.Output.Write(line)
	r.outputProblem.Note(err, "Failed to write to --output; continuing without it")
	if err != nil {
		r.metrics.Add(contract.MetricOutputErrors, 1)
	}
}

// line returns a message as a line that is safe to print to a terminal.
func line(message string) []byte { return append(contract.Printable(message), '\n') }
