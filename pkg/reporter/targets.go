package reporter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
)

// identity is what makes a plugin the same across two configurations: it then
// keeps its connection, its history and its place.
type identity struct{ keyID, address string }

// target is one plugin that is probed.
type target struct {
	identity
	settings probe.Settings
	plugin   *probe.Plugin
	ctx      context.Context // of its probes; ends when the target is dropped
	cancel   context.CancelFunc

	busy      bool // a probe is under way
	dropped   bool // no longer configured; closed when not busy
	probed    bool // at least once
	last      probe.Result
	lastKEKID string // the last that was answered, ever
}

// close ends a target; a probe under way is cut short, and its result closes the
// connection.
func (t *target) close() {
	t.dropped = true
	t.cancel()
	if !t.busy {
		t.plugin.Close()
	}
}

// wanted is a target as a configuration asks for it.
type wanted struct {
	identity
	settings probe.Settings
}

// want lists the targets of a configuration, those that are written with first.
func want(c *v1alpha1.ReporterConfiguration) []wanted {
	checks := probe.Checks{
		RoundTrip:  false,
		GRPCHealth: c.Probe.Checks.GRPCHealth,
	}
	list := make([]wanted, 0, len(c.Plugins))
	for _, p := range c.Plugins {
		address, err := v1alpha1.SocketAddress(p.Endpoint)
		if err != nil {
			panic("a valid configuration has valid endpoints: " + err.Error())
		}
		list = append(list, wanted{
			identity: identity{p.KeyID, address},
			settings: probe.Settings{Timeout: p.Timeout.Duration, Writes: p.Role == v1alpha1.RoleWrite, Checks: checks},
		})
	}
	slices.SortStableFunc(list, func(a, b wanted) int {
		return cmp.Compare(rank(a.settings), rank(b.settings))
	})
	return list
}

func rank(s probe.Settings) int {
	if s.Writes {
		return 0
	}
	return 1
}

// arrange returns the targets for what is wanted, in its order: those there are,
// with their new settings, and new ones from make. Both kinds are changed. What
// is left over is no longer wanted.
func arrange(have []*target, list []wanted, make func(wanted) *target) (targets, changed, leftOver []*target) {
	for _, w := range list {
		i := slices.IndexFunc(have, func(t *target) bool { return t.identity == w.identity })
		if i < 0 {
			t := make(w)
			targets, changed = append(targets, t), append(changed, t)
			continue
		}
		if have[i].settings != w.settings {
			have[i].settings = w.settings
			changed = append(changed, have[i])
		}
		targets = append(targets, have[i])
	}
	for _, t := range have {
		if !slices.Contains(targets, t) {
			leftOver = append(leftOver, t)
		}
	}
	return targets, changed, leftOver
}

// observed returns what there is to say of the targets: nothing of one that was
// not probed yet, or whose pod is gone.
func observed(targets []*target, interval time.Duration) []publish.Observation {
	var list []publish.Observation
	for _, t := range targets {
		if t.probed && !t.last.Gone {
			list = append(list, publish.Observation{Entry: t.entry(interval), LastKEKID: t.lastKEKID})
		}
	}
	return list
}

// entry is the target's last result in the terms of the contract; its
// LastChecked is zero when there is none.
func (t *target) entry(interval time.Duration) health.Entry {
	if !t.probed || t.last.Gone {
		return health.Entry{KeyID: t.keyID, Interval: interval}
	}
	return health.Entry{
		KeyID:       t.keyID,
		KEKID:       t.last.KEKID,
		Status:      t.last.Status,
		LastChecked: t.last.At,
		Detail:      t.last.Detail,
		Interval:    interval,
	}
}

func entriesOf(list []publish.Observation) []health.Entry {
	entries := make([]health.Entry, len(list))
	for i, o := range list {
		entries[i] = o.Entry
	}
	return entries
}
