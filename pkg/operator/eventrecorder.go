package operator

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
)

// maxEvent bounds a message, as the API does in its newer version, events.k8s.io/v1.
const maxEvent = 1024

// newEvents returns a function that records an Event of a target, in the background, and one that stops
// the recording. All are about the operator's namespace: Events about the operator resources, which have
// no namespace, would need a right in the namespace default.
func newEvents(sink record.EventSink, namespace string) (event eventFunc, shutdown func()) {
	// It would log every try. What is in the Events is in the operator's own log.
	ctx := klog.NewContext(context.Background(), logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		// All events are about one object, and the first delivery to a large cluster
		// makes many of them, each worth reading.
		MaxEvents: 100, MaxIntervalInSeconds: 600, BurstSize: 200, QPS: 1,
	}))
	broadcaster.StartRecordingToSink(sink)
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: contract.OperatorName})
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace}
	return func(target, eventType, reason, message string) {
		recorder.Event(about, eventType, reason, contract.Cut(target+": "+message, maxEvent))
	}, broadcaster.Shutdown
}

type eventFunc = func(target, eventType, reason, message string)

// recorded is a function that counts and logs each change beside its Event.
func recorded(event eventFunc, registry prometheus.Registerer) eventFunc {
	changes := metric.CounterVec(registry, contract.MetricChanges)
	return func(target, eventType, reason, message string) {
		changes.WithLabelValues(target, reason).Inc()
		klog.InfoS("Changed", "apiServer", target, "reason", reason, "message", message)
		event(target, eventType, reason, message)
	}
}
