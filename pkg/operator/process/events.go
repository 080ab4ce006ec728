package process

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/retry"
)

// recorder writes Kubernetes Events for what the operator does and finds. Its methods may be
// called concurrently, and do not block.
//
// An event is written in the background, in order, and tried again for about two minutes while
// the API server is unreachable. Equal events within ten minutes are one with a count. All are
// about the operator's namespace: Events about the operator resources, which have no namespace,
// would need a right in the namespace default.
type recorder struct {
	broadcaster record.EventBroadcaster
	events      record.EventRecorder
	about       *corev1.ObjectReference
}

// newEventRecorder returns a recorder that writes into a namespace.
func newEventRecorder(config *rest.Config, namespace string) (*recorder, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second // a request that hangs would hold up all events after it
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return newRecorder(&typedcorev1.EventSinkImpl{Interface: client.Events(namespace)}, namespace), nil
}

func newRecorder(to record.EventSink, namespace string) *recorder {
	// Its log would repeat, at every attempt, what the sink logs once.
	ctx := klog.NewContext(context.Background(), logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		// All events are about one object, and the first delivery to a large cluster
		// makes many of them, each worth reading.
		MaxEvents: 100, MaxIntervalInSeconds: 600, BurstSize: 200, QPS: 1,
	}))
	broadcaster.StartRecordingToSink(sink{to, retry.NewOutageLog("for events")})
	return &recorder{
		broadcaster: broadcaster,
		events:      broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: contract.OperatorName}),
		about:       &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace},
	}
}

// maxMessage bounds a message, as the API does in its newer version, events.k8s.io/v1.
const maxMessage = 1024

// Event writes that something happened to a target. eventType is corev1's
// EventTypeNormal or EventTypeWarning.
func (r *recorder) Event(target, eventType, reason, message string) {
	r.events.Event(r.about, eventType, reason, contract.Cut(target+": "+message, maxMessage))
}

// Shutdown stops the writing. Events that were not written yet are lost.
func (r *recorder) Shutdown() { r.broadcaster.Shutdown() }

type sink struct {
	record.EventSink
	log *retry.OutageLog
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
