package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Config is the configuration of a Publisher.
type Config struct {
	Resource   contract.Resource // with its object
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
}

// Publisher writes reports to one resource.
type Publisher struct {
	config  Config
	metrics *Metrics

	mu       sync.Mutex
	freshest []contract.Entry
	number   uint64 // of offers
	offered  chan struct{}

	lastError string             // of the last write, if that failed
	began     time.Time          // of the running write
	withdraw  context.CancelFunc // ends it

	// The fields below are used by the goroutine of Run only.
	credentials credentials
	written     uint64 // number of the last offer that was written
	log         writeLog
	rests       rests
	refused     *failure // why nothing more is written; nil: it is
}

// New returns a Publisher. Run makes it write.
func New(config Config, metrics *Metrics) *Publisher {
	return &Publisher{
		config:      config,
		metrics:     metrics,
		credentials: credentials{kubeconfig: config.Kubeconfig, servers: config.Servers, timeout: config.Timeout},
		offered:     make(chan struct{}, 1),
		withdraw:    func() {},
		log:         writeLog{fields: []any{"resource", config.Resource.String(), "node", config.Node}},
	}
}

// Offer sets the latest entries to write, instead of earlier ones that are not yet
// written. An empty list withdraws those, also one that is being written, and the error of the
// last write. It never blocks. The caller must not change
// the slice afterwards.
func (p *Publisher) Offer(entries []contract.Entry) {
	p.mu.Lock()
	p.freshest = entries
	p.number++
	if len(entries) == 0 {
		p.lastError = ""
		p.withdraw()
	}
	p.mu.Unlock()
	select {
	case p.offered <- struct{}{}:
	default: // Run has not handled the last offer yet, and will take the latest
	}
}

// begin returns the latest offer and its number, with the context of its write, which ends when
// the offer is withdrawn; nil if it is not to be written.
func (p *Publisher) begin(ctx context.Context) (attempt context.Context, entries []contract.Entry, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.freshest) == 0 || p.number == p.written {
		return nil, nil, 0
	}
	attempt, p.withdraw = context.WithCancel(ctx)
	p.began = time.Now()
	return attempt, p.freshest, p.number
}

// Run writes each offer until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	defer p.credentials.close()
	defer p.metrics.lastWrite.Reset() // nothing is written there any more
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
		for {
			attempt, entries, number := p.begin(ctx)
			if attempt == nil {
				break
			}
			failed := p.write(attempt, entries, number)
			withdrawn := p.end(attempt, failed)
			switch {
			case ctx.Err() != nil:
				return
			case withdrawn:
				continue
			}
			p.report(failed)
			if failed == nil {
				clear(failures)
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

// write makes one attempt to write an offer.
func (p *Publisher) write(ctx context.Context, entries []contract.Entry, number uint64) *failure {
	if p.refused != nil {
		return p.refused
	}
	endpoints, err := p.credentials.current()
	if endpoints == nil {
		return &failure{kind: BadCredentials, err: err}
	}
	p.log.credentials(err, time.Now())
	payload, err := body(p.config.Resource, p.config.Node, p.config.Since(), entries)
	if err != nil {
		return &failure{kind: Invalid, err: err}
	}
	began := time.Now()
	failed := p.send(ctx, endpoints, payload)
	p.metrics.duration.Observe(time.Since(began).Seconds())
	switch {
	case failed == nil:
		p.written = number
	case failed.kind == AtomicList:
		p.refused = failed
	}
	return failed
}

// end records the end of a write for LastError, and reports whether it failed because its offer
// was withdrawn.
func (p *Publisher) end(attempt context.Context, failed *failure) (withdrawn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Time{}
	withdrawn = failed != nil && attempt.Err() != nil
	p.withdraw()
	if p.lastError = ""; failed != nil && !withdrawn {
		p.lastError = failed.Error()
	}
	return withdrawn
}

// report counts and logs a write.
func (p *Publisher) report(failed *failure) {
	kind := Success
	if failed == nil {
		p.metrics.lastWrite.WithLabelValues().SetToCurrentTime()
	} else {
		kind = failed.kind
	}
	p.metrics.writes.WithLabelValues(string(kind)).Inc()
	p.log.write(kind, failed, time.Now())
}

// LastError is why the last write failed; empty when it succeeded, and before the first. A
// write that has no result a second after its timeout (it reads files on a file system that
// hangs) counts as failed. It may be called from any goroutine.
func (p *Publisher) LastError() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took := time.Since(p.began); !p.began.IsZero() && took > p.config.Timeout+time.Second {
		return fmt.Sprintf("a write has had no result for %s", took.Truncate(time.Second))
	}
	return p.lastError
}
