package view

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
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
	// Request is what was requested; Regular is why it was not, by API server.
	Request string
	Regular map[string]string

	first map[string][2]time.Time // round trip and check of the first status, by API server, node and key
}

// NoRequest is why a request for a round trip does not reach an API server's reporters; empty: it does.
func (s *Status) NoRequest(apiServer string) string {
	if s.Operator.State != OperatorWorks && s.Operator.State != OperatorNotKnown {
		return "no operator runs that hands a request on"
	}
	file, server := s.configured(apiServer)
	switch {
	case file != nil && file.ManagementState != v1alpha1.Managed:
		return "managementState is " + string(file.ManagementState)
	case server != nil && server.OwnerInjects():
		return "the owner of its pods writes the reporters' files"
	}
	return ""
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

// configured is the operator's file and an API server in it; nil where they are not known.
func (s *Status) configured(apiServer string) (*v1alpha1.OperatorConfiguration, *v1alpha1.APIServer) {
	object := s.snapshot.find(KindConfigMap)
	if object == nil {
		return nil, nil
	}
	file, err := configurationOf(object)
	if err != nil {
		return nil, nil
	}
	at := slices.IndexFunc(file.APIServers, func(a v1alpha1.APIServer) bool { return a.Name == apiServer })
	if at < 0 {
		return file, nil
	}
	return file, &file.APIServers[at]
}

// Follow returns each node's trip. One is done if each of its entries has the request, or shows a round trip that the
// first status did not have; where no request was made, a new check of a plugin that is not healthy counts as well.
func (t *Trips) Follow(s *Status) (all []Trip) {
	if t.first == nil {
		t.first = map[string][2]time.Time{}
	}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			if len(all) == 0 || all[len(all)-1].Node != p.Node || all[len(all)-1].APIServer != a.Name {
				all = append(all, Trip{APIServer: a.Name, Node: p.Node, Done: true})
			}
			trip := &all[len(all)-1]
			if waits := t.waits(a.Name, &p); waits != "" {
				trip.Done, trip.Waits = false, waits
			}
		}
	}
	return all
}

// waits is what a plugin waits for; empty: it is done.
func (t *Trips) waits(apiServer string, p *Plugin) string {
	switch p.State {
	case rollup.Missing:
		return "a first report"
	case rollup.Unreadable:
		return "a report that can be read"
	case rollup.Stale:
		return "a new report, since the last one is stale"
	}
	now := [2]time.Time{p.RoundTrip.Time, p.LastChecked.Time}
	key := apiServer + "/" + p.Node + "/" + p.KeyID
	first, known := t.first[key]
	if !known {
		t.first[key], first = now, now
	}
	regular := t.Regular[apiServer] != ""
	switch {
	case t.Request != "" && p.Requested == t.Request, p.State == rollup.Healthy && !now[0].Equal(first[0]),
		regular && p.State.Unhealthy() && !now[1].Equal(first[1]):
		return ""
	case p.State == rollup.Healthy && p.RoundTrip.IsZero():
		return "a first round trip of key " + p.KeyID + " (they may be turned off)"
	case regular:
		return "the regular round trip of key " + p.KeyID
	}
	return "the requested round trip of key " + p.KeyID
}
