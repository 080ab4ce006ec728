package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/test/apiservers"
)

// followSecret measures the time from the answer to a write of an encryption
// config to the event of a ConfigMap that says the same.
func (l *lab) followSecret(ctx context.Context, e *estate) error {
	l.say("%d changes of an encryption config", l.plan.rotations)
	external := apiservers.OAuth
	events, err := e.kube.CoreV1().ConfigMaps(external.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: render.TargetLabel + "=" + external.Name})
	if err != nil {
		return err
	}
	defer events.Stop()
	var took []time.Duration
	for i := range l.plan.rotations {
		if err := between(ctx, i); err != nil {
			return err
		}
		keyIDs := rotation(i)
		if err := e.encrypt(ctx, external, "", keyIDs...); err != nil {
			return err
		}
		answered := time.Now()
		followed, err := await(ctx, events, func(event watch.Event) bool {
			cm, ok := event.Object.(*corev1.ConfigMap)
			return ok && event.Type != watch.Deleted && slices.Equal(keyIDsOf(cm.Data["config.yaml"]), keyIDs)
		})
		if err != nil {
			return fmt.Errorf("wait for the file of key ids %v: %w", keyIDs, err)
		}
		took = append(took, followed.Sub(answered))
	}
	slowest := slices.Max(took)
	l.table.add(row{
		what:     fmt.Sprintf("operator: encryption config to ConfigMap, slowest of %d", len(took)),
		measured: milliseconds(slowest), bound: milliseconds(maxFollow), verdict: atMost(slowest, maxFollow),
	})
	l.table.add(row{what: "  the median of them", measured: milliseconds(median(took))})
	return nil
}

// rotation is the plugin set after the i-th step of one key's way to the next: it
// comes, reads, writes, and is alone. None is ever one of before.
func rotation(i int) []string {
	last, next := strconv.Itoa(i/3+1), strconv.Itoa(i/3+2)
	return [][]string{{last, next}, {next, last}, {next}}[i%3]
}

// keyIDsOf are those of a reporter's file, the one that writes first, which is
// how the operator writes them.
func keyIDsOf(file string) []string {
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		return nil
	}
	var writes, reads []string
	for _, p := range c.Plugins {
		if p.Role == v1alpha1.RoleWrite {
			writes = append(writes, p.KeyID)
		} else {
			reads = append(reads, p.KeyID)
		}
	}
	return slices.Concat(writes, reads)
}

// followFile measures the time from a change of the operator's file to the event
// of the last of the companions that has it.
func (l *lab) followFile(ctx context.Context, e *estate) error {
	l.say("%d changes of the operator's file", l.plan.edits)
	events, err := e.kube.CoreV1().Pods(e.home).Watch(ctx, metav1.ListOptions{LabelSelector: render.TargetLabel + "=" + apiservers.Kube.Name})
	if err != nil {
		return err
	}
	defer events.Stop()
	var took []time.Duration
	for i := range l.plan.edits {
		if err := between(ctx, i); err != nil {
			return err
		}
		interval := time.Duration(40+i) * time.Second
		changed, err := e.file.swap(operatorFile(interval))
		if err != nil {
			return err
		}
		told := map[string]bool{}
		followed, err := await(ctx, events, func(event watch.Event) bool {
			pod, ok := event.Object.(*corev1.Pod)
			if ok && event.Type != watch.Deleted && strings.Contains(pod.Annotations[render.ConfigAnnotation], "interval: "+interval.String()) {
				told[pod.Spec.NodeName] = true
			}
			return len(told) == len(nodeNames)
		})
		if err != nil {
			return fmt.Errorf("wait for companions with interval %s: %w", interval, err)
		}
		took = append(took, followed.Sub(changed))
	}
	l.table.add(row{what: fmt.Sprintf("operator: its file to all companions' annotations, median of %d", len(took)), measured: milliseconds(median(took))})
	l.table.add(row{what: "  the slowest of them", measured: milliseconds(slices.Max(took))})
	return nil
}

// between waits until the operator has done the last change, out of step with its
// timers.
func between(ctx context.Context, i int) error {
	return pause(ctx, time.Duration(700+i%7*37)*time.Millisecond)
}

// await waits for an event, and returns when it came.
func await(ctx context.Context, events watch.Interface, found func(watch.Event) bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case event, open := <-events.ResultChan():
			at := time.Now()
			switch {
			case !open:
				return at, errors.New("the watch ended")
			case event.Type == watch.Error:
				return at, fmt.Errorf("the watch ended: %v", event.Object)
			case found(event):
				return at, nil
			}
		}
	}
}
