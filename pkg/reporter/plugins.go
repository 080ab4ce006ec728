package reporter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

// wanted is a plugin as configured. One with the same id in the next configuration keeps its history.
type wanted struct {
	keyID, address string
	settings       probe.Settings
}

func (w wanted) id() string { return w.keyID + " " + w.address }

type plugin struct {
	wanted
	conn   *probe.Plugin
	ctx    context.Context // of its probes; ends when the plugin is dropped
	cancel context.CancelFunc

	probes    chan probe.Settings // of the next probe
	busy      bool                // a probe is under way
	waiting   bool                // the round waits for it
	last      probe.Result
	entry     contract.Entry // what is reported
	observed  bool           // there is an entry: not before the first verdict, and not after the plugin's pod was deleted
	notProbed string         // why the reporter could not probe it; empty when it could
	awaited   bool           // awaitSocket runs for it
	waking    bool           // wake runs for it
	trips     trips
	logged    logged
}

// want lists the plugins of a configuration, those of role Write before those of role Read.
func want(c *v1alpha1.ReporterConfiguration) []wanted {
	var list []wanted
	plugins := slices.Clone(c.Plugins)
	slices.SortStableFunc(plugins, func(a, b v1alpha1.Plugin) int { return -cmp.Compare(a.Role, b.Role) })
	for _, p := range plugins {
		address, err := v1alpha1.SocketAddress(p.Endpoint)
		if err != nil {
			panic("a valid configuration has valid endpoints: " + err.Error())
		}
		list = append(list, wanted{p.KeyID, address, probe.Settings{Timeout: p.Timeout.Duration,
			Bound: tripIntervals * c.Probe.Interval.Duration}})
	}
	return list
}

// arrange returns the wanted plugins, in their order: existing ones, with their new settings, and new ones from make.
// changed are the new ones and those with other settings; leftOver are the existing ones that are no longer configured.
func arrange(have []*plugin, list []wanted, make func(wanted) *plugin) (plugins, changed, leftOver []*plugin) {
	for _, w := range list {
		i := slices.IndexFunc(have, func(p *plugin) bool { return p.id() == w.id() })
		if i < 0 {
			have = append(have, make(w))
			i = len(have) - 1
			changed = append(changed, have[i])
		} else if have[i].settings != w.settings {
			have[i].settings = w.settings
			changed = append(changed, have[i])
		}
		plugins = append(plugins, have[i])
	}
	leftOver = slices.DeleteFunc(slices.Clone(have), func(p *plugin) bool { return slices.Contains(plugins, p) })
	return plugins, changed, leftOver
}

// judged reports whether there is a verdict, or nothing to observe.
func (p *plugin) judged() bool { return p.observed || p.last.Gone }

func entriesOf(plugins []*plugin) []contract.Entry {
	list := make([]contract.Entry, 0, len(plugins))
	for _, p := range plugins {
		if p.observed {
			list = append(list, p.entry)
		}
	}
	return list
}

// judge updates the entry after a probe or a round trip. While round trips are on, a good Status is not enough: until
// one shows whether the plugin works, a first entry is withheld, and an earlier one stays as it is, so that it ages.
func (p *plugin) judge(now time.Time, c v1alpha1.Probe) {
	trip := probe.Trip{}
	if c.Checks.RoundTrip.Interval.Duration != 0 && !p.last.Gone {
		if trip = p.trips.verdict(now, p.last); !trip.Made && p.last.Status == contract.Healthy {
			return
		}
	}
	before := p.entry
	p.observed = !p.last.Gone
	p.entry = contract.Entry{KeyID: p.keyID, Interval: c.Interval.Duration, Socket: v1alpha1.CleanSocket(p.address)}
	if p.last.Gone {
		return
	}
	e := &p.entry
	e.Status, e.Reason, e.Detail = verdict(p.last, trip)
	if !p.last.Answered && p.trips.notMade > 0 {
		e.Detail = contract.CleanDetail(e.Detail + "; before, the connection broke during a round trip, so the plugin " +
			"may end at this call: " + p.trips.why)
	}
	e.KEKID, e.LastChecked, e.Since = p.last.KEKID, p.last.At, p.last.At
	if e.Status == before.Status && e.Reason == before.Reason {
		e.Since = before.Since
	}
	e.RoundTrip, e.Requested, e.Lost = p.trips.good, p.trips.samples.Answered, p.trips.samples.lost(now)
}

// verdict combines the result of a probe with that of the last round trip. A failed round trip makes a healthy plugin
// unhealthy. To an unhealthy plugin that answered it adds its detail, and its reason where the plugin's own names no
// cause: Encrypt's error often has the cause where healthz does not.
func verdict(r probe.Result, t probe.Trip) (contract.Status, contract.Reason, string) {
	switch {
	case !t.Failed() || !r.Answered:
		return r.Status, r.Reason, r.Detail
	case r.Status == contract.Healthy:
		return t.Status, t.Reason, t.Detail
	}
	reason := r.Reason
	if reason == contract.ReportedUnhealthy {
		reason = t.Reason
	}
	return r.Status, reason, contract.CleanDetail(r.Detail + "; " + t.Detail)
}
