package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// Metrics counts what became of writes. One serves all publishers of a process.
type Metrics struct {
	writes    *prometheus.CounterVec
	lastWrite *prometheus.GaugeVec
	duration  *prometheus.HistogramVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kms_health_reporter_writes_total",
			Help: "Writes to the operator resource, by form and result.",
		}, []string{"form", "result"}),
		lastWrite: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kms_health_reporter_last_successful_write_timestamp_seconds",
			Help: "When the operator resource last took a write, by form, in seconds since the epoch.",
		}, []string{"form"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kms_health_reporter_write_duration_seconds",
			Help:    "How long writes to the operator resource took, by form.",
			Buckets: []float64{.005, .025, .1, .5, 2, 10},
		}, []string{"form"}),
	}
	registry.MustRegister(m.writes, m.lastWrite, m.duration)
	return m
}

// Config is what a Publisher writes, and where.
type Config struct {
	Form       Form
	Resource   string // plural, of operator.openshift.io/v1
	Node       string
	Kubeconfig string
	Timeout    time.Duration
	UserAgent  string
	// Since returns the condition's lastTransitionTime: when the process first
	// wrote.
	Since func() time.Time
	// Turn has room for one, and is shared by those that write to one object: at the
	// same moment, the second write makes the API server begin again, some times over.
	// Nil: this one writes alone.
	Turn chan struct{}
}

// Publisher writes one form of report to one resource.
type Publisher struct {
	config      Config
	metrics     *Metrics
	credentials credentials
	outdated    bool // the credentials in use are older than their files

	mu       sync.Mutex
	freshest []Observation
	number   uint64 // of offers
	offered  chan struct{}
}

// New returns a Publisher. Run makes it write.
func New(config Config, metrics *Metrics) *Publisher {
	return &Publisher{
		config:      config,
		metrics:     metrics,
		credentials: credentials{kubeconfig: config.Kubeconfig, userAgent: config.UserAgent},
		offered:     make(chan struct{}, 1),
	}
}

// Offer hands over what was observed last, in place of anything not yet
// written; nothing at all withdraws it. It never waits. The caller does not
// change the slice afterwards.
func (p *Publisher) Offer(observed []Observation) {
	p.mu.Lock()
	p.freshest = observed
	p.number++
	p.mu.Unlock()
	select {
	case p.offered <- struct{}{}:
	default: // the writer was told already, and will take the freshest
	}
}

// take returns the freshest offer and its number.
func (p *Publisher) take() ([]Observation, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freshest, p.number
}

// Run writes each offer until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	defer p.credentials.close()
	var last Kind
	failures := 0
	written := uint64(0) // the last offer that was
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.offered:
		}
		for observed, number := p.take(); len(observed) > 0 && number != written; observed, number = p.take() {
			err := p.write(ctx, observed)
			if ctx.Err() != nil {
				return
			}
			kind, wait := Success, time.Duration(0)
			var failed *failure
			if errors.As(err, &failed) {
				kind = failed.kind
				if kind != last {
					failures = 0
				}
				failures++
				wait = delay(failed, failures)
			}
			p.report(kind, last, err)
			last = kind
			if kind == Success {
				written = number
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// report counts a write, and logs it when it ended otherwise than the last.
func (p *Publisher) report(kind, last Kind, err error) {
	form := string(p.config.Form)
	p.metrics.writes.WithLabelValues(form, string(kind)).Inc()
	if kind == Success {
		p.metrics.lastWrite.WithLabelValues(form).SetToCurrentTime()
	}
	switch {
	case kind == last:
	case kind == Success:
		klog.InfoS("Writing reports works", "form", form, "resource", p.config.Resource, "node", p.config.Node)
	default:
		klog.ErrorS(err, "Writing reports fails; the freshest is tried again", "result", kind, "form", form, "resource", p.config.Resource, "node", p.config.Node)
	}
}

// acceptMetadata asks for the object's metadata alone: the whole is large, and
// none of our business.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// write makes one attempt. Its error is a *failure.
func (p *Publisher) write(ctx context.Context, observed []Observation) error {
	client, err := p.credentials.current()
	if client == nil {
		return &failure{kind: BadCredentials, err: err}
	}
	if outdated := err != nil; outdated != p.outdated {
		p.outdated = outdated
		if outdated {
			klog.ErrorS(err, "Credential files cannot be used; the last good ones are", "form", p.config.Form)
		} else {
			klog.InfoS("Credential files can be used again", "form", p.config.Form)
		}
	}
	payload, err := body(p.config.Form, p.config.Resource, p.config.Node, p.config.Since(), observed)
	if err != nil {
		return &failure{kind: Invalid, err: err}
	}
	began := time.Now()
	defer func() {
		p.metrics.duration.WithLabelValues(string(p.config.Form)).Observe(time.Since(began).Seconds())
	}()
	if p.config.Turn != nil {
		select {
		case p.config.Turn <- struct{}{}:
			defer func() { <-p.config.Turn }()
		case <-ctx.Done():
			return transportFailure(ctx.Err(), p.config.Timeout)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	return p.apply(ctx, client, payload)
}

func (p *Publisher) apply(ctx context.Context, client *client, payload []byte) error {
	target := client.server.JoinPath("apis", group, version, p.config.Resource, name, "status")
	target.RawQuery = url.Values{"fieldManager": {manager(p.config.Form, p.config.Node)}, "force": {"true"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, target.String(), bytes.NewReader(payload))
	if err != nil {
		return &failure{kind: BadCredentials, err: fmt.Errorf("server %s: %w", client.server, err)}
	}
	request.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	request.Header.Set("Accept", acceptMetadata)
	answer, err := client.http.Do(request)
	if err != nil {
		return transportFailure(err, p.config.Timeout)
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or given up
	if answer.StatusCode/100 == 2 {
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
			return &failure{kind: Unexpected, err: fmt.Errorf("%s answered %d with %q: this is no API server", client.server.Host, answer.StatusCode, kind)}
		}
		// Read to the end, so that the connection can be used again.
		if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)); err != nil {
			return transportFailure(err, p.config.Timeout)
		}
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
	if err != nil {
		return transportFailure(err, p.config.Timeout)
	}
	return answerFailure(answer.StatusCode, answer.Header, text, time.Now())
}

const (
	// maxAnswer bounds what is read of an answer, in bytes: metadata with the
	// managed fields of some hundred reporters.
	maxAnswer = 4 << 20
	// maxErrorText bounds what is read of an answer that is an error.
	maxErrorText = 64 << 10
)
