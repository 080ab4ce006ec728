package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Update is a change of one target.
type Update struct {
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
// until ctx ends; it retries without a limit.
func (c *Cluster) Follow(ctx context.Context, targets []string) <-chan Update {
	updates := make(chan Update)
	for _, target := range targets {
		go c.follow(ctx, target, func(u Update) {
			u.Target = target
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
	for ctx.Err() == nil {
		received, err := c.listAndWatch(ctx, target, send)
		if received {
			wait = firstWait
		}
		if err != nil && ctx.Err() == nil {
			send(Update{Problem: c.explain([]string{target}, "list and watch", err)})
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
// as each does after some minutes. received: the watch sent anything.
func (c *Cluster) listAndWatch(ctx context.Context, target string, send func(Update)) (received bool, err error) {
	r := operatorcr.Named(target)
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + r.Name}
	list, err := c.client.Resource(r.GVR()).List(ctx, one)
	if apierrors.IsNotFound(err) { // the API server does not have this resource yet
		send(Update{})
		return false, nil
	}
	if err != nil {
		return false, err
	}
	u := Update{}
	for i := range list.Items {
		if list.Items[i].GetName() == r.Name {
			found := view.Read(target, &list.Items[i])
			u.Found = &found
		}
	}
	send(u)

	one.ResourceVersion = list.GetResourceVersion()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// Bounds the wait for the answer's head; the answer itself goes on.
	late := time.AfterFunc(c.timeout, cancel)
	w, err := c.watches.Resource(r.GVR()).Watch(watching, one)
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
		case event.Type == watch.Deleted:
			send(Update{})
		case (event.Type == watch.Added || event.Type == watch.Modified) && o != nil:
			found := view.Read(target, o)
			send(Update{Found: &found})
		case event.Type == watch.Error:
			return received, nil // usually an expired resource version: list again
		default:
			continue
		}
		received = true
	}
	return received, nil
}
