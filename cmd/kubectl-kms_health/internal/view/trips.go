package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Trip is whether the plugins of a node made a round trip since the command began.
type Trip struct {
	APIServer string `json:"apiServer"`
	Node      string `json:"node"`
	Done      bool   `json:"done"`
	Waits     string `json:"waits,omitempty"` // for what; empty if it is done
}

// Trips follows round trips over several statuses of one cluster.
type Trips struct {
	Request string               // what is requested
	Made    []Trip               // of each node, in the last status
	plugins map[string]*followed // by API server, node and key
}

// Regular is how many regular round trips of a plugin together count as the requested one. The first of them may have
// been under way before, or have been reported late (unchangedEvery).
const Regular = 2

// followed has when a plugin was checked as first seen, its last round trip, and how often that has changed.
type followed struct {
	checked, roundTrip metav1.Time
	changes            int
}

// Follow sets each node's trip by a new status. It is done if all plugins on the node have made theirs.
func (t *Trips) Follow(s *Status) {
	if t.plugins == nil {
		t.plugins = map[string]*followed{}
	}
	t.Made = []Trip{}
	for _, a := range s.APIServers {
		for i, p := range a.Plugins {
			if i == 0 || a.Plugins[i-1].Node != p.Node {
				t.Made = append(t.Made, Trip{APIServer: a.Name, Node: p.Node, Done: true})
			}
			if waits := t.waits(a.Name, &p); waits != "" {
				trip := &t.Made[len(t.Made)-1]
				trip.Done, trip.Waits = false, waits
			}
		}
	}
}

// waits is what a plugin waits for; empty: it is done. A healthy one has the request, or enough later round trips. An
// unhealthy one was checked again: it may make none.
func (t *Trips) waits(apiServer string, p *Plugin) string {
	if !isFresh(p.State) {
		return "a valid report"
	}
	key := apiServer + "/" + p.Node + "/" + p.KeyID
	f := t.plugins[key]
	if f == nil {
		f = &followed{checked: p.LastChecked, roundTrip: p.RoundTrip}
		t.plugins[key] = f
	}
	if !p.RoundTrip.Equal(&f.roundTrip) {
		f.roundTrip, f.changes = p.RoundTrip, f.changes+1
	}
	checked := p.State.Unhealthy() && !p.LastChecked.Equal(&f.checked)
	if checked || p.Requested == t.Request || f.changes >= Regular {
		return ""
	}
	return "a new round trip of key " + p.KeyID
}

// awaited returns on how many nodes a trip is not done, and what these wait for.
func awaited(trips []Trip) (nodes int, text string) {
	waits := byNode{}
	for _, t := range trips {
		if !t.Done {
			waits.add(t.Node, t.Waits)
		}
	}
	_, text = waits.groups()
	return len(waits), text
}

// Await adds to a healthy status the trips that are not done: its reports may be older than a change. It returns
// whether the status stays healthy.
func (s *Status) Await(trips []Trip) bool {
	if nodes, text := awaited(trips); nodes > 0 && s.Verdict == Healthy {
		e := &evaluation{Status: s, snapshot: &Snapshot{}} // no files, which do not change
		s.Verdict, s.Problems = NotKnown, nil
		e.add(Problem{Verdict: NotKnown, Reason: contract.RoundTripAwaited,
			Summary: "the reports may be old; awaited: " + text})
		s.Summary = e.summary()
	}
	return s.Verdict == Healthy
}
