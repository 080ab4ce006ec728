package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Config is the configuration of a Publisher.
type Config struct {
	Form       Form
	Resource   operatorcr.Resource // with its object
	Node       string
	Kubeconfig string
	// Servers are the API servers in order of preference. Empty: the kubeconfig's.
	Servers []v1alpha1.Server
	// Timeout bounds one write, all servers together.
	Timeout   time.Duration
	UserAgent string
	// Since returns the condition's lastTransitionTime: when the process first
	// wrote.
	Since func() time.Time
	// Turn is a semaphore of one, shared by the publishers of one object: concurrent
	// writes would conflict, and make the API server retry several times. Nil: there is
	// no other publisher.
	Turn chan struct{}
	// RetryPreferred is how long after a try the servers before the one in use are tried
	// again, after the next successful write. Zero: 25 s, so that they are tried in each
	// round at the default interval of 30 s, less its jitter.
	RetryPreferred time.Duration
}

// Publisher writes one form of report to one resource.
type Publisher struct {
	config  Config
	metrics *Metrics

	mu       sync.Mutex
	freshest []Observation
	number   uint64 // of offers
	offered  chan struct{}
	state    state

	// The fields below are used by the goroutine of Run only.
	credentials credentials
	written     uint64 // number of the last offer that was written
	log         writeLog
	nextRetry   time.Time // of the servers before the one in use
	nextEarlier int       // index of the first of them to try
}

// New returns a Publisher. Run makes it write.
func New(config Config, metrics *Metrics) *Publisher {
	if config.RetryPreferred == 0 {
		config.RetryPreferred = 25 * time.Second
	}
	p := &Publisher{
		config:      config,
		metrics:     metrics,
		credentials: credentials{kubeconfig: config.Kubeconfig, userAgent: config.UserAgent, servers: config.Servers},
		offered:     make(chan struct{}, 1),
	}
	p.log = writeLog{fields: []any{"form", config.Form, "resource", config.Resource.String(), "node", config.Node}}
	for _, s := range config.Servers {
		p.state.servers = append(p.state.servers, s.URL)
	}
	metrics.add(p)
	return p
}

// Offer sets the latest observations to write, instead of earlier ones that are not yet
// written. An empty list withdraws those. It never blocks. The caller must not change
// the slice afterwards.
func (p *Publisher) Offer(observed []Observation) {
	p.mu.Lock()
	p.freshest = reportable(p.config.Form, observed)
	p.number++
	p.mu.Unlock()
	p.wake()
}

func (p *Publisher) wake() {
	select {
	case p.offered <- struct{}{}:
	default: // Run has not handled the last offer yet, and will take the latest
	}
}

// take returns the latest offer and its number.
func (p *Publisher) take() ([]Observation, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freshest, p.number
}

// pending reports whether there is an offer that is not written.
func (p *Publisher) pending() bool {
	observed, number := p.take()
	return len(observed) > 0 && number != p.written
}

// Run writes each offer until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	defer p.metrics.remove(p)
	defer p.credentials.close()
	// Counted for each kind since the last success: alternating kinds back off too, and
	// after a new kind (an API server that starts sends 403 and 404 for a short time) the
	// retry comes soon.
	failures := map[Kind]int{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.offered:
		}
		for p.pending() {
			payload, failed := p.write(ctx)
			if ctx.Err() != nil {
				return
			}
			if payload == nil && failed == nil {
				continue // withdrawn in the meantime
			}
			p.report(failed)
			if failed == nil {
				clear(failures)
				p.retryPreferred(ctx, payload)
				continue
			}
			failures[failed.kind]++
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay(failed, failures[failed.kind])):
			}
		}
	}
}

// write makes one attempt to write the offer that is the latest when its turn comes, and
// returns the body that was sent; nil if there is nothing to write.
func (p *Publisher) write(ctx context.Context) ([]byte, *failure) {
	defer p.begin(time.Time{})
	if p.config.Turn != nil {
		p.begin(time.Now()) // of the wait, at most one write of the other form
		select {
		case p.config.Turn <- struct{}{}:
			defer func() { <-p.config.Turn }()
		case <-ctx.Done():
			return nil, nil
		}
	}
	p.begin(time.Now())
	observed, number := p.take()
	if len(observed) == 0 {
		return nil, nil
	}
	endpoints, err := p.credentials.current()
	if endpoints == nil {
		return nil, &failure{kind: BadCredentials, err: err}
	}
	p.log.credentials(err, time.Now())
	p.setServers(endpoints)
	payload, err := body(p.config.Form, p.config.Resource, p.config.Node, p.config.Since(), observed)
	if err != nil {
		return nil, &failure{kind: Invalid, err: err}
	}
	began := time.Now()
	failed := p.send(ctx, endpoints, payload)
	p.metrics.duration.WithLabelValues(string(p.config.Form)).Observe(time.Since(began).Seconds())
	if failed == nil {
		p.written = number
	}
	return payload, failed
}

// begin records for Status when a write began; zero: none is running.
func (p *Publisher) begin(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.began = at
}

// report counts and logs a write.
func (p *Publisher) report(failed *failure) {
	form, kind, text := string(p.config.Form), Success, ""
	if failed == nil {
		p.metrics.lastWrite.WithLabelValues(form).SetToCurrentTime()
	} else {
		kind, text = failed.kind, failed.Error()
	}
	p.metrics.writes.WithLabelValues(form, string(kind)).Inc()
	p.mu.Lock()
	p.state.lastError = text
	p.mu.Unlock()
	p.log.write(kind, failed, time.Now())
}

// Status is the state of a Publisher's writes.
type Status struct {
	Form Form
	// Server is the URL of the API server in use: the server of the last successful
	// write, or the first one. Empty until the credentials were read.
	Server string
	// Preferred: Server is the first of the list.
	Preferred bool
	// PreferredError is why the preferred server is not in use; empty when it is.
	PreferredError string
	// LastError is why the last write failed; empty when it succeeded, and before the
	// first. A write that has no result a second after its timeout (it reads files on a
	// file system that hangs) counts as failed.
	LastError string
}

// Status returns the state of the writes. It may be called from any goroutine.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Form: p.config.Form, Preferred: p.state.active == 0, LastError: p.state.lastError}
	if began := p.state.began; !began.IsZero() && time.Since(began) > p.config.Timeout+time.Second {
		s.LastError = fmt.Sprintf("a write has had no result for %s", time.Since(began).Truncate(time.Second))
	}
	if len(p.state.servers) > 0 {
		s.Server = p.state.servers[p.state.active]
	}
	if !s.Preferred {
		s.PreferredError = p.state.preferredError
	}
	return s
}
