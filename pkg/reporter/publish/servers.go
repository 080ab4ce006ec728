package publish

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// restWrites is for how many writes a server that failed is tried last.
const restWrites = 4

// rests has for each server in how many of the next writes it is tried last.
type rests []int

// order returns in which order a write tries the servers: as they are configured, but those
// that rest last.
func (r rests) order() []int {
	order := make([]int, len(r))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(min(r[a], 1), min(r[b], 1)) })
	return order
}

// after returns the rests after a write in which some servers failed, and one worked or,
// with -1, none.
func (r rests) after(failed []int, worked int) rests {
	next := make(rests, len(r))
	for i, left := range r {
		switch {
		case slices.Contains(failed, i):
			next[i] = restWrites
		case i != worked:
			next[i] = max(left-1, 0)
		}
	}
	return next
}

// send tries the servers in turn, within one timeout for all: each gets an equal share of
// the remaining time. It ends at the first server that accepts the write, and at a failure
// that every server would return. After another one, which a server behind the same load balancer
// might not have, it closes the connection.
func (p *Publisher) send(ctx context.Context, endpoints []*endpoint, payload []byte) *failure {
	deadline := time.Now().Add(p.config.WriteTimeout.Duration)
	if len(p.rests) != len(endpoints) {
		p.rests = make(rests, len(endpoints))
	}
	order, worked := p.rests.order(), -1
	var failures []*failure
	var failed []int // servers of these failures that the next writes try last
	for tried, i := range order {
		share := time.Until(deadline) / time.Duration(len(order)-tried)
		why := endpoints[i].apply(ctx, &p.config, payload, share)
		if why == nil {
			worked = i
			break
		}
		why.text = endpoints[i].server.String() + ": " + why.Error()
		failures = append(failures, why)
		if !why.kind.differsByServer() || ctx.Err() != nil {
			break
		}
		endpoints[i].disconnect()
		failed = append(failed, i)
	}
	p.rests = p.rests.after(failed, worked)
	if worked < 0 {
		return together(failures)
	}
	p.log.server(endpoints[worked].server.String(), worked != 0, failures, time.Now())
	return nil
}

// together joins the failures of several servers into one: of the kind of the last, with
// the text of each, and with the longest delay that any of them requested.
func together(failures []*failure) *failure {
	last := failures[len(failures)-1]
	all := &failure{kind: last.kind, err: last.err}
	var texts []string
	for _, f := range failures {
		texts = append(texts, f.Error())
		all.retryAfter = max(all.retryAfter, f.retryAfter)
	}
	all.text = strings.Join(texts, "; ")
	return all
}
