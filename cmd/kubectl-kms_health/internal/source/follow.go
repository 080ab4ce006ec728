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
)

// Update is news of one target.
type Update struct {
	Target string
	// Found is how it is now; nil: it is not there.
	Found *view.Target
	// Problem is why it is not known; what was known before stands.
	Problem *Problem
}

// How long to wait before asking again: doubled from the first to the last.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Follow tells of every change of the targets, how they are at first among it,
// until ctx ends; it never gives up.
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

func (c *Cluster) follow(ctx context.Context, target string, tell func(Update)) {
	wait := firstWait
	for ctx.Err() == nil {
		heard, err := c.listAndWatch(ctx, target, tell)
		if heard {
			wait = firstWait
		}
		if err != nil && ctx.Err() == nil {
			tell(Update{Problem: c.explain([]string{target}, "list and watch", err)})
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

// listAndWatch tells how the target is, then what changes, until the watch ends,
// as each does after some minutes. heard says that the watch told anything.
func (c *Cluster) listAndWatch(ctx context.Context, target string, tell func(Update)) (heard bool, err error) {
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + objectName}
	list, err := c.client.Resource(resource(target)).List(ctx, one)
	if apierrors.IsNotFound(err) { // the API server does not have this resource, and may yet
		tell(Update{})
		return false, nil
	}
	if err != nil {
		return false, err
	}
	u := Update{}
	for i := range list.Items {
		if list.Items[i].GetName() == objectName {
			found := view.Read(target, &list.Items[i])
			u.Found = &found
		}
	}
	tell(u)

	one.ResourceVersion = list.GetResourceVersion()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// Bounds the wait for the answer's head; the answer itself goes on.
	late := time.AfterFunc(c.timeout, cancel)
	w, err := c.watches.Resource(resource(target)).Watch(watching, one)
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
			tell(Update{})
		case (event.Type == watch.Added || event.Type == watch.Modified) && o != nil:
			found := view.Read(target, o)
			tell(Update{Found: &found})
		case event.Type == watch.Error:
			return heard, nil // too old a version, most of all: the next list tells
		default:
			continue
		}
		heard = true
	}
	return heard, nil
}
