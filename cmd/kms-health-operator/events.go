package main

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// events tells of changes where `kubectl get events` shows them.
type events struct {
	client    kubernetes.Interface
	namespace string
	queue     chan *corev1.Event
	done      chan struct{}
}

func newEvents(client kubernetes.Interface, namespace string) *events {
	e := &events{client: client, namespace: namespace, queue: make(chan *corev1.Event, 100), done: make(chan struct{})}
	go e.send()
	return e
}

// tell never waits: an event that finds no room is dropped.
func (e *events) tell(target, reason, message string) {
	now := metav1.Now()
	const maxMessage = 1024 // the API's
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "…"
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: e.namespace, GenerateName: "kms-health." + target + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: e.namespace, Namespace: e.namespace},
		Type:           eventType(reason), Reason: reason, Message: target + ": " + message,
		Source: corev1.EventSource{Component: "kms-health-operator"}, Count: 1, FirstTimestamp: now, LastTimestamp: now,
	}
	select {
	case e.queue <- event:
	default:
	}
}

// troubles are the reasons that somebody should see to.
var troubles = []string{
	rollup.PluginNotRunning, rollup.PluginError, rollup.PluginUnhealthy, rollup.ReporterNotRunning, rollup.ReporterStale, rollup.ReportUnreadable, rollup.ClockSkew,
	"DeploymentMissing", "EncryptionConfigUnreadable", "Forbidden", "ImageNotProven", "InjectionReverted", "ProvidersIgnored",
	"SocketVolumeMissing",
}

func eventType(reason string) string {
	if slices.Contains(troubles, reason) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

func (e *events) send() {
	defer close(e.done)
	for event := range e.queue {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if _, err := e.client.CoreV1().Events(e.namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			klog.V(1).InfoS("An event could not be written", "reason", event.Reason, "err", err)
		}
		cancel()
	}
}

// end sends what is left.
func (e *events) end() {
	close(e.queue)
	<-e.done
}
