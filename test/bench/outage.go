package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/controlplane"
)

const (
	// outage is how long the API server is away: long enough for the reporter's
	// retries to be as rare as they get, and its last entry to be stale.
	outage = 12 * time.Second
	// startPoll and freshPoll are the resolution of the measurement.
	startPoll = 10 * time.Millisecond
	freshPoll = 20 * time.Millisecond
)

// apiServerReturns measures how long the condition is stale after an outage:
// from the first time that /livez answers 200 to an entry that was checked after
// that, as a reader of the API sees it. Entries have whole seconds, so up to one
// of those is the measurement's own.
func (l *lab) apiServerReturns(ctx context.Context) (err error) {
	l.say("%d outages of the API server", l.plan.outages)
	s, err := l.newSite("outage", 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	kubeconfig, err := s.kubeconfig(l.credential())
	if err != nil {
		return err
	}
	if _, err := s.file.swap(s.render(settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2}})); err != nil {
		return err
	}
	reporter, err := s.start(nil)
	if err != nil {
		return err
	}
	defer reporter.stop()
	o, err := newObserver(l.cluster, s.name)
	if err != nil {
		return err
	}
	defer o.client.CloseIdleConnections()
	if _, err := o.checkedAfter(ctx, time.Now()); err != nil {
		return errors.Join(err, reporter.alive())
	}
	var took []time.Duration
	for range l.plan.outages {
		d, err := l.oneOutage(ctx, o)
		if err != nil {
			return errors.Join(err, reporter.alive())
		}
		l.say("back to fresh in %s", milliseconds(d))
		took = append(took, d)
	}
	slowest := slices.Max(took)
	l.table.add(row{
		what:     fmt.Sprintf("API server's return to fresh condition, slowest of %d", l.plan.outages),
		measured: milliseconds(slowest),
		bound:    milliseconds(maxReturn),
		verdict:  atMost(slowest, maxReturn),
	})
	l.table.add(row{what: "  the median of them", measured: milliseconds(median(took))})
	return nil
}

func (l *lab) oneOutage(ctx context.Context, o *observer) (time.Duration, error) {
	if err := l.cluster.StopAPIServer(ctx); err != nil {
		return 0, err
	}
	if err := pause(ctx, outage); err != nil {
		return 0, err
	}
	started := make(chan error, 1)
	go func() { started <- l.cluster.StartAPIServer(ctx) }()
	back, err := o.back(ctx)
	if err != nil {
		return 0, errors.Join(err, <-started)
	}
	fresh, err := o.checkedAfter(ctx, back)
	return fresh.Sub(back), errors.Join(err, <-started)
}

// observer sees what an administrator can.
type observer struct {
	client    *http.Client
	token     string
	livez     string
	object    string
	condition string
}

func newObserver(cluster *controlplane.ControlPlane, node string) (*observer, error) {
	config := cluster.RESTConfig()
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	gvr := controlplane.OperatorGVR(resource)
	return &observer{
		// A starting server accepts connections before it answers.
		client:    &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: tls}},
		token:     config.BearerToken,
		livez:     cluster.URL() + "/livez",
		object:    fmt.Sprintf("%s/apis/%s/%s/%s/%s", cluster.URL(), gvr.Group, gvr.Version, gvr.Resource, controlplane.ClusterObject),
		condition: health.ConditionType(node),
	}, nil
}

// back waits until the API server says that it lives, and returns when it first
// did.
func (o *observer) back(ctx context.Context) (time.Time, error) {
	return o.poll(ctx, startPoll, "/livez of the API server", func() bool {
		return o.get(ctx, o.livez, nil) == nil
	})
}

// checkedAfter waits until every entry of the condition was checked after a
// time, and returns when that was first seen.
func (o *observer) checkedAfter(ctx context.Context, after time.Time) (time.Time, error) {
	return o.poll(ctx, freshPoll, "a fresh condition", func() bool {
		entries := o.entries(ctx)
		for _, e := range entries {
			if !e.LastChecked.After(after) {
				return false
			}
		}
		return len(entries) > 0
	})
}

func (o *observer) poll(ctx context.Context, every time.Duration, what string, ok func() bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a start on a busy machine
	defer cancel()
	for !ok() {
		if err := pause(ctx, every); err != nil {
			return time.Time{}, fmt.Errorf("wait for %s: %w", what, err)
		}
	}
	return time.Now(), nil
}

// entries returns what the condition says; nothing while it cannot be read.
func (o *observer) entries(ctx context.Context) []health.Entry {
	var object struct {
		Status struct {
			Conditions []struct{ Type, Message string }
		}
	}
	if o.get(ctx, o.object, &object) != nil {
		return nil
	}
	for _, c := range object.Status.Conditions {
		if c.Type == o.condition {
			entries, err := health.DecodeMessage(c.Message)
			if err != nil {
				return nil
			}
			return entries
		}
	}
	return nil
}

// get asks once and wants 200, and JSON if there is something to read it into.
func (o *observer) get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+o.token)
	answer, err := o.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if into == nil {
		_, err := io.Copy(io.Discard, answer.Body) // so that the connection is kept
		return err
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
