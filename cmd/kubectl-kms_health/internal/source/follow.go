package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Update is a change of one target.
type Update struct {
	// Target may also be kmshealths: its Problem is that of all of them, and without one
	// they are known.
	Target string
	// Found is its current state; nil: it does not exist.
	Found *view.Target
	// Problem is why it could not be read; the previous state is kept.
	Problem *Problem
}

// The wait before a retry: doubled from the first to the last.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Follow sends every change of the targets, their first state included,
// until ctx ends; it retries without a limit. The target kmshealths is all of them.
func (c *Cluster) Follow(ctx context.Context, targets []string) <-chan Update {
	updates := make(chan Update)
	for _, target := range targets {
		go c.follow(ctx, target, func(u Update) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	}
	return updates
}

func (c *Cluster) follow(ctx context.Context, target string, send func(Update)) {
	wait := firstWait
	known := map[string]bool{target: true}
	for ctx.Err() == nil {
		received, err := c.listAndWatch(ctx, target, known, send)
		if received {
			wait = firstWait
		}
		if err != nil && ctx.Err() == nil {
			send(Update{Target: target, Problem: c.explain([]string{target}, "list and watch", err)})
		}
		timer := c.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
		wait = min(2*wait, lastWait)
	}
}

// listAndWatch sends the state of the target, then its changes, until the watch ends,
// as each does after some minutes. received: the watch sent anything. known are the targets
// that were sent.
func (c *Cluster) listAndWatch(ctx context.Context, target string, known map[string]bool, send func(Update)) (received bool, err error) {
	r := contract.ResourceNamed(target)
	which := metav1.ListOptions{}
	if r.Name != "" {
		which.FieldSelector = "metadata.name=" + r.Name
	}
	list, err := c.client.Resource(r.GVR()).List(ctx, which)
	// The API server does not have this resource yet, or there was never a right to KMSHealths,
	// which are optional.
	if apierrors.IsNotFound(err) || r.Name == "" && len(known) == 1 && apierrors.IsForbidden(err) {
		sendAll(target, nil, known, send)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sendAll(target, list.Items, known, send)

	which.ResourceVersion = list.GetResourceVersion()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// Bounds the wait for the answer's head; the answer itself goes on.
	late := time.AfterFunc(c.timeout, cancel)
	w, err := c.watches.Resource(r.GVR()).Watch(watching, which)
	if !late.Stop() && err == nil {
		w.Stop()
		err = context.DeadlineExceeded
	}
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("no answer within %s", c.timeout)
		}
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		o, _ := event.Object.(*unstructured.Unstructured)
		switch {
		case event.Type == watch.Deleted && o != nil:
			send(Update{Target: nameOf(target, o)})
		case (event.Type == watch.Added || event.Type == watch.Modified) && o != nil:
			found := view.Read(nameOf(target, o), o)
			known[found.Name] = true
			send(Update{Target: found.Name, Found: &found})
		case event.Type == watch.Error:
			return received, nil // usually an expired resource version: list again
		default:
			continue
		}
		received = true
	}
	return received, nil
}

// sendAll sends the objects of a list, and for known targets that it does not have that they do
// not exist.
func sendAll(target string, items []unstructured.Unstructured, known map[string]bool, send func(Update)) {
	listed := map[string]bool{}
	for i := range items {
		found := view.Read(nameOf(target, &items[i]), &items[i])
		listed[found.Name], known[found.Name] = true, true
		send(Update{Target: found.Name, Found: &found})
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !listed[name] {
			send(Update{Target: name})
		}
	}
}

// nameOf is the name of an object's target: the followed one, or one of all KMSHealths.
func nameOf(target string, o *unstructured.Unstructured) string {
	if r := contract.ResourceNamed(target); r.Name != "" {
		return target
	}
	return contract.ResourceFor(target, o.GetName()).TargetName()
}
