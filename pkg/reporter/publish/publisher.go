// Package publish writes observations to the status of an operator resource, by Server-Side Apply.
//
// A Publisher keeps only the latest observation: a failed write is dropped, and the observation that is then the latest
// is written soon after, so that a recovered API server gets the current report at once. If several API servers are
// configured, each write tries them in turn, those that failed lately last. A Publisher sends one kind of request only,
// a PATCH of one status; it never reads, and never creates the resource. No failed write ends it, and no slow write
// delays the caller. No error, log line or metric of it shows a user or password of a URL.
package publish

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/serving"
)

// Config is the configuration of a Publisher.
type Config struct {
	To        contract.Resource // with its object
	Node      string
	UserAgent string
	Since     func() time.Time // the condition's lastTransitionTime: when the process first tried to write
	v1alpha1.Destination
}

// Publisher writes reports to one resource.
type Publisher struct {
	config  *Config
	metrics *metrics.Registry
	offers  chan []contract.Entry // holds the latest, until Run takes it

	lastError atomic.Pointer[string] // of the last write, empty if it succeeded; nil before the first

	// The fields below are used by the goroutine of Run only.
	credentials credentials
	problem     serving.Problem // of the credentials
	log         writeLog
	order       serverOrder
	refused     *failure         // why nothing more is written; nil: writes continue
	written     []contract.Entry // by the last write; nil if it failed
	writtenAt   time.Time        // when that write began
}

var errNoNodeName = errors.New("the node has no name, so nothing is written: set --node-name or KMS_HEALTH_NODE")

// New returns a Publisher. Run makes it write.
func New(config Config, metrics *metrics.Registry) *Publisher {
	metrics.Add(contract.MetricWrites, 0, string(Success)) // a rate needs the zero before the one
	p := &Publisher{
		config:      &config,
		metrics:     metrics,
		offers:      make(chan []contract.Entry, 1),
		credentials: credentials{config: &config, age: credentialsAge},
		log:         newWriteLog("resource", config.To.String(), "node", config.Node),
	}
	if config.Node == "" {
		p.refused = &failure{kind: NoNodeName, err: errNoNodeName}
	}
	return p
}

// Offer replaces the entries to write; an empty list withdraws them. It raises each Interval to UnchangedEvery, and
// never blocks. Only one goroutine may call it, and must not use the slice afterwards.
func (p *Publisher) Offer(entries []contract.Entry) {
	for i := range entries {
		entries[i].Interval = max(entries[i].Interval, p.config.UnchangedEvery.Duration)
	}
	select {
	case <-p.offers:
	default:
	}
	p.offers <- entries // has room
}

// Run writes offers until ctx ends. With UnchangedEvery it skips unchanged ones.
func (p *Publisher) Run(ctx context.Context) {
	defer p.credentials.close()
	defer p.metrics.Delete(contract.MetricLastWrite, "", "") // nothing more is written there
	defer p.showCertificate(nil)
	// Counted for each kind since the last success: alternating kinds back off too, and after a new kind (an API server
	// that starts sends 403 and 404 for a short time) the retry comes soon.
	failures := map[Kind]int{}
	for {
		var latest []contract.Entry
		select {
		case <-ctx.Done():
			return
		case latest = <-p.offers:
		}
		if p.unchanged(latest) {
			klog.V(4).InfoS("Report is not written: it differs from the last one in times alone", p.log.fields...)
			continue
		}
		for failed := p.write(ctx, latest); failed != nil; failed = p.write(ctx, latest) {
			failures[failed.kind]++
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay(failed, failures[failed.kind])):
			}
			select {
			case latest = <-p.offers:
			default:
			}
		}
		clear(failures)
	}
}

// unchanged reports whether a report differs from the last written one in times alone, and that one is younger than
// UnchangedEvery. It is false for some writes after a server failed, which may still apply an earlier write that it
// did not answer. The age is by both clocks: the monotonic one stands still while a machine is suspended.
func (p *Publisher) unchanged(entries []contract.Entry) bool {
	now := time.Now()
	age := max(now.Sub(p.writtenAt), now.Round(0).Sub(p.writtenAt.Round(0)))
	stands := age < p.config.UnchangedEvery.Duration && p.order.left == 0
	return stands && len(entries) > 0 && slices.EqualFunc(entries, p.written, sameButTimes)
}

func sameButTimes(a, b contract.Entry) bool {
	a.LastChecked, a.RoundTrip = b.LastChecked, b.RoundTrip
	return reflect.DeepEqual(a, b)
}

// write makes one attempt to write an offer, and counts and logs it, unless ctx ends.
func (p *Publisher) write(ctx context.Context, entries []contract.Entry) *failure {
	began, kind, text := time.Now(), Success, ""
	failed := p.attempt(ctx, entries)
	p.written, p.writtenAt = entries, began
	if failed != nil {
		p.written, kind, text = nil, failed.kind, failed.Error()
	}
	p.lastError.Store(&text)
	if ctx.Err() != nil || len(entries) == 0 {
		return failed
	}
	if failed == nil {
		p.metrics.SetTime(contract.MetricLastWrite, time.Now())
	}
	p.metrics.Add(contract.MetricWrites, 1, string(kind))
	klog.V(2).InfoS("Write ended",
		append(p.log.fields, "result", kind, "plugins", len(entries), "took", time.Since(began))...)
	p.log.write(failed, time.Now())
	return failed
}

func (p *Publisher) attempt(ctx context.Context, entries []contract.Entry) *failure {
	if len(entries) == 0 || p.refused != nil {
		return p.refused
	}
	endpoints, err := p.credentials.current()
	if endpoints == nil {
		return &failure{kind: BadCredentials, err: err}
	}
	p.showCertificate(endpoints[0].transport.TLSClientConfig.Certificates)
	p.problem.Note(err, "Credential files cannot be used; the last valid ones stay in use", p.log.fields...)
	payload, err := body(p.config.To, p.config.Node, p.config.Since(), entries)
	if err != nil {
		return &failure{kind: Invalid, err: err}
	}
	began := time.Now()
	failed := p.send(ctx, endpoints, payload)
	p.metrics.Observe(contract.MetricWriteDuration, time.Since(began))
	if failed != nil {
		p.credentials.read = time.Time{}
		if failed.kind == AtomicList {
			p.refused = failed
		}
	}
	return failed
}

// showCertificate sets the metrics of the client certificate, which the owner of a sidecar renews, or deletes them.
func (p *Publisher) showCertificate(client []tls.Certificate) {
	if len(client) == 0 {
		p.metrics.Delete(contract.MetricCertificateRemaining, "", "")
		p.metrics.Delete(contract.MetricCertificateLifetime, "", "")
		return
	}
	leaf := client[0].Leaf
	p.metrics.Set(contract.MetricCertificateRemaining, time.Until(leaf.NotAfter).Seconds())
	p.metrics.Set(contract.MetricCertificateLifetime, leaf.NotAfter.Sub(leaf.NotBefore).Seconds())
}

// LastError is why the last write failed; empty: it did not, or there was none. Any goroutine may call it.
func (p *Publisher) LastError() string { return *cmp.Or(p.lastError.Load(), new("")) }
