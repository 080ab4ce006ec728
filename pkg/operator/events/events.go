// Package events writes Kubernetes Events for what the operator does and finds.
//
// An event is written in the background, in order, and tried again for about two
// minutes while the API server is unreachable. Equal events within ten minutes are one with a
// count. All are about the operator's namespace: Events about the operator resources,
// which have no namespace, would need a right in the namespace default.
package events

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/operator/outage"
)

// Recorder writes Events. Its methods may be called concurrently, and do not block.
type Recorder struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	about       *corev1.ObjectReference
}

// New returns a Recorder that writes into a namespace.
func New(config *rest.Config, namespace string) (*Recorder, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second // a request that hangs would hold up all events after it
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return newRecorder(&typedcorev1.EventSinkImpl{Interface: client.Events(namespace)}, namespace), nil
}

func newRecorder(to record.EventSink, namespace string) *Recorder {
	// Its log would repeat, at every attempt, what the sink logs once.
	ctx := klog.NewContext(context.Background(), logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		// All events are about one object, and the first delivery to a large cluster
		// makes many of them, each worth reading.
		MaxEvents: 100, MaxIntervalInSeconds: 600, BurstSize: 200, QPS: 1,
	}))
	broadcaster.StartRecordingToSink(sink{to, outage.NewLog("for events")})
	return &Recorder{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "kms-health-operator"}),
		about:       &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace},
	}
}

// Event writes that something happened to a target. eventType is corev1's
// EventTypeNormal or EventTypeWarning.
func (r *Recorder) Event(target, eventType, reason, message string) {
	r.recorder.Event(r.about, eventType, reason, shorten(target+": "+message))
}

// shorten bounds a message, as the API does in its newer version, events.k8s.io/v1.
func shorten(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len("…")], "") + "…"
}

// Shutdown stops the writing. Events that were not written yet are lost.
func (r *Recorder) Shutdown() { r.broadcaster.Shutdown() }

type sink struct {
	record.EventSink
	log *outage.Log
}

// Create is record.EventSink's.
func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	created, err := s.EventSink.Create(event)
	s.log.Observe(err)
	return created, err
}

// Patch is record.EventSink's.
func (s sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	patched, err := s.EventSink.Patch(event, data)
	s.log.Observe(err)
	return patched, err
}
