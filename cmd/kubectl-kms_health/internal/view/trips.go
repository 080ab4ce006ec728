package view

import (
	"slices"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// Trip is whether the plugins of a node made a round trip since the preflight began.
type Trip struct {
	APIServer string `json:"apiServer"`
	Node      string `json:"node"`
	Done      bool   `json:"done"`
	// Waits is what it waits for; empty if it is done.
	Waits string `json:"waits,omitempty"`
}

// Trips follows round trips over several statuses of one cluster.
type Trips struct {
	Request string            // what was requested
	first   map[string]Plugin // as the first status had them, by API server, node and key
}

// Narrow drops API servers that neither report a plugin nor have a condition of the operator, if others remain.
func (s *Status) Narrow() {
	used := slices.DeleteFunc(slices.Clone(s.APIServers), func(a APIServer) bool {
		return len(a.Plugins)+len(a.Conditions) == 0
	})
	if len(used) > 0 {
		s.APIServers = used
	}
}

// Follow returns each node's trip, which is done if that of each plugin is.
func (t *Trips) Follow(s *Status) (all []Trip) {
	if t.first == nil {
		t.first = map[string]Plugin{}
	}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			if len(all) == 0 || all[len(all)-1].Node != p.Node || all[len(all)-1].APIServer != a.Name {
				all = append(all, Trip{APIServer: a.Name, Node: p.Node, Done: true})
			}
			if waits := t.waits(a.Name, &p); waits != "" {
				trip := &all[len(all)-1]
				trip.Done, trip.Waits = false, waits
			}
		}
	}
	return all
}

// waits is what a plugin waits for; empty: it is done. A healthy one has the request, or a later round trip than in the
// first status. An unhealthy one was checked again: it may make none.
func (t *Trips) waits(apiServer string, p *Plugin) string {
	switch p.State {
	case rollup.Missing:
		return "a first report"
	case rollup.Unreadable:
		return "a report that can be read"
	case rollup.Stale:
		return "a new report, since the last one is stale"
	}
	key := apiServer + "/" + p.Node + "/" + p.KeyID
	first, known := t.first[key]
	if !known {
		t.first[key], first = *p, *p
	}
	checked := p.State.Unhealthy() && !p.LastChecked.Equal(&first.LastChecked)
	if checked || p.Requested == t.Request || !p.RoundTrip.Equal(&first.RoundTrip) {
		return ""
	}
	return "a new round trip of key " + p.KeyID
}
