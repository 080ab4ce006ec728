package publish

import (
	"context"
	"strings"
	"time"
)

// state is the server in use and the last errors. Publisher.mu guards it.
type state struct {
	servers        []string // their names, in order of preference
	active         int
	preferredError string    // of the last attempt on the first, if that failed
	lastError      string    // of the last write, if that failed
	began          time.Time // of the running write, or of the wait for its turn
}

func (p *Publisher) setServers(endpoints []*endpoint) {
	var names []string
	for _, e := range endpoints {
		names = append(names, e.name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.servers = names
}

func (p *Publisher) serverNames() (names []string, active int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.servers, p.state.active
}

// send tries the servers in turn, beginning with the one in use, within one timeout for
// all: each gets an equal share of the remaining time. It ends at the first server that
// accepts the write, and at a failure that every server would return.
func (p *Publisher) send(ctx context.Context, endpoints []*endpoint, payload []byte) *failure {
	deadline := time.Now().Add(p.config.Timeout)
	_, active := p.serverNames()
	order := []int{active}
	for i := range endpoints {
		if i != active {
			order = append(order, i)
		}
	}
	var failures []*failure
	for tried, i := range order {
		share := time.Until(deadline) / time.Duration(len(order)-tried)
		failed := p.attempt(ctx, endpoints, i, payload, share)
		if failed == nil {
			if i != active {
				p.use(i, failures[0].Error())
			}
			return nil
		}
		failures = append(failures, failed)
		if !failed.kind.differsByServer() || ctx.Err() != nil {
			break
		}
	}
	return together(failures)
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

// attempt sends a write to one server. It closes the connection after a failure that
// another server behind the same load balancer might not have.
func (p *Publisher) attempt(ctx context.Context, endpoints []*endpoint, i int, payload []byte, timeout time.Duration) *failure {
	e := endpoints[i]
	failed := e.apply(ctx, p.config.Resource, manager(p.config.Form, p.config.Node), payload, timeout)
	if failed == nil {
		return nil
	}
	why := failed.Error()
	failed.text = e.name + ": " + why
	if failed.kind.differsByServer() {
		e.disconnect()
	}
	if i == 0 && ctx.Err() == nil {
		p.mu.Lock()
		p.state.preferredError = why
		p.mu.Unlock()
	}
	return failed
}

// use makes writes begin with a server.
func (p *Publisher) use(i int, why string) {
	p.mu.Lock()
	server, previous := p.state.servers[i], p.state.servers[p.state.active]
	p.state.active = i
	p.mu.Unlock()
	p.nextRetry = time.Now().Add(p.config.RetryPreferred)
	p.log.server(server, previous, why, time.Now())
}

// retryPreferred sends the last written body to the servers before the one in use, at
// most every RetryPreferred: an apply without changes writes nothing to etcd. Each server
// gets an equal share of the timeout. The first that accepts it is used from then on. The
// next offer ends this, so that no report waits for it; the next retry then begins with
// the server after the one that was tried last.
func (p *Publisher) retryPreferred(ctx context.Context, payload []byte) {
	_, active := p.serverNames()
	if active == 0 || time.Now().Before(p.nextRetry) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	endpoints, works := p.credentials.endpoints, make(chan int, 1)
	go func() {
		defer close(works)
		for range active {
			i := p.nextEarlier % active
			p.nextEarlier = i + 1
			if p.attempt(ctx, endpoints, i, payload, p.config.Timeout/time.Duration(active)) == nil {
				p.nextEarlier = 0
				works <- i
				return
			}
			if ctx.Err() != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-p.offered:
			if p.pending() { // unless the new offer was already written
				cancel()
			}
		case i, ok := <-works:
			p.nextRetry = time.Now().Add(p.config.RetryPreferred)
			if ok {
				p.use(i, "it is preferred, and works again")
			}
			return
		}
	}
}
