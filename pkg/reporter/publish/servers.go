package publish

import (
	"context"
	"slices"
	"strings"
	"time"
)

const restWrites = 4 // for so many writes a server that failed is tried last

// serverOrder is the order in which writes try the servers, by their index: as configured, but with
// those that failed lately at the end. restWrites writes after the last failure it is as configured again.
type serverOrder struct {
	servers []int
	left    int // writes until the order is as configured again, including that write; 0: it is
}

// next returns the order of the next write, to n servers.
func (o *serverOrder) next(n int) []int {
	if o.left--; o.left <= 0 || len(o.servers) != n {
		*o = serverOrder{}
		for i := range n {
			o.servers = append(o.servers, i)
		}
	}
	return slices.Clone(o.servers)
}

// failed has the writes after the current one try a server last.
func (o *serverOrder) failed(server int) {
	o.servers = append(slices.DeleteFunc(o.servers, func(i int) bool { return i == server }), server)
	o.left = restWrites + 1
}

// send tries the servers in turn, within one timeout for all: each gets an equal share of the remaining time. It ends
// at the first server that accepts the write, and at a failure that every server would return. After any other failure
// it closes the connection: the next one may reach another server behind the same load balancer.
func (p *Publisher) send(ctx context.Context, endpoints []*endpoint, payload []byte) *failure {
	deadline := time.Now().Add(p.config.WriteTimeout.Duration)
	var failures []*failure
	order := p.order.next(len(endpoints))
	for tried, i := range order {
		share := time.Until(deadline) / time.Duration(len(order)-tried)
		why := endpoints[i].apply(ctx, payload, share)
		if why == nil {
			if len(failures) > 0 {
				p.log.another(together(failures), time.Now())
			}
			return nil
		}
		why.text = endpoints[i].server.String() + ": " + why.Error()
		failures = append(failures, why)
		if !why.kind.differsByServer() || ctx.Err() != nil {
			break
		}
		endpoints[i].disconnect() // also the one that is being made, once it is
		p.order.failed(i)
	}
	return together(failures)
}

// together joins the failures of several servers: the kind of the last, and all texts.
func together(failures []*failure) *failure {
	all, texts := *failures[len(failures)-1], []string{}
	for _, f := range failures {
		texts = append(texts, f.Error())
	}
	all.text = strings.Join(texts, "; ")
	return &all
}
