package reporter

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
)

// grace is how long the first answers of a round wait for the others, so
// that a round is one write. A plugin that hangs holds up nobody for longer.
const grace = 250 * time.Millisecond

// absence is how often a socket that is not there is looked for.
const absence = 250 * time.Millisecond

// probe asks targets, all at once; one that is still being asked is left alone.
func (r *Reporter) probe(ctx context.Context, targets []*target) {
	for _, t := range targets {
		if t.busy {
			continue
		}
		t.busy = true
		r.waiting++
		settings := t.settings
		r.running.Go(func() {
			result := t.plugin.Probe(t.ctx, settings)
			select {
			case r.answers <- answer{t, result}:
			case <-ctx.Done():
				t.plugin.Close() // nobody takes the answer any more
			}
		})
	}
}

// observe takes in one answer, and publishes when it completes a round.
func (r *Reporter) observe(a answer) {
	t := a.target
	t.busy = false
	if t.dropped {
		t.plugin.Close()
		return
	}
	r.waiting--
	r.metrics.observe(t.keyID, a.result)
	logChange(t, a.result)
	t.probed, t.last = true, a.result
	if a.result.Gone {
		r.absent.Reset(absence)
	}
	if a.result.KEKID != "" {
		t.lastKEKID = a.result.KEKID
	}
	switch {
	case r.waiting == 0:
		r.publish()
	case !r.hurrying:
		r.hurrying = true
		r.hurry.Reset(grace)
	}
}

// lookForAbsent probes a plugin as soon as its socket is there, not an interval later:
// that is how a new pod begins.
func (r *Reporter) lookForAbsent(ctx context.Context) {
	for _, t := range r.targets {
		if !t.probed || !t.last.Gone || t.busy {
			continue
		}
		if t.plugin.SocketExists() {
			r.probe(ctx, []*target{t})
		} else {
			r.absent.Reset(absence)
		}
	}
}

// logChange logs the first result of a plugin, and each that differs in kind
// from the one before.
func logChange(t *target, now probe.Result) {
	before := t.last
	if t.probed && before.Status == now.Status && before.Gone == now.Gone && before.KEKID == now.KEKID && (!now.Gone || before.Detail == now.Detail) {
		return
	}
	switch {
	case now.Gone:
		klog.InfoS("Nothing to observe", "keyID", t.keyID, "socket", t.address, "why", now.Detail)
	case now.Status == health.Healthy:
		klog.InfoS("Plugin is healthy", "keyID", t.keyID, "socket", t.address, "kekID", now.KEKID)
	default:
		klog.ErrorS(nil, "Plugin is not healthy", "keyID", t.keyID, "socket", t.address, "status", now.Status, "detail", now.Detail)
	}
}

// publish hands what is known to everyone who wants it.
func (r *Reporter) publish() {
	r.hurry.Stop()
	r.hurrying = false
	r.show()
	list := observed(r.targets, r.config.Probe.Interval.Duration)
	for _, p := range r.publishers {
		p.Offer(list)
	}
	if r.output == nil {
		return
	}
	message, err := health.EncodeMessage(entriesOf(list))
	if err != nil {
		klog.ErrorS(err, "Cannot encode what was observed")
		return
	}
	r.output.offer(message)
}

// show makes the current state visible to the server.
func (r *Reporter) show() {
	view := &serve.View{Configured: r.config != nil, ConfigError: r.complaint, ConfigMismatch: r.mismatch}
	for _, t := range r.targets {
		view.Plugins = append(view.Plugins, serve.Plugin{Entry: t.entry(r.config.Probe.Interval.Duration), Probed: t.probed, Gone: t.last.Gone})
	}
	if r.config == nil && view.ConfigError == "" {
		view.ConfigError = "not read yet"
	}
	r.view.Store(view)
}
