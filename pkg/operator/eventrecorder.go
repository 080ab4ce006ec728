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

// maxEvent bounds a message, in bytes, as events.k8s.io/v1 does, the newer version of the API.
const maxEvent = 1024

// newEvents returns a function that records an Event about a target in the background, and one that stops the
// recording. The object of every Event is the operator's namespace: Events of the operator resources, which have no
// namespace, would need a right in the namespace default.
func newEvents(sink record.EventSink, namespace string) (event eventFunc, shutdown func()) {
	// The broadcaster would log every attempt. The content of each Event is in the log already.
	ctx := klog.NewContext(context.Background(), logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		// All Events have one object, and the first delivery to a large cluster records many. client-go's defaults would
		// merge or drop most of them.
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

// recorded returns a function that counts and logs each change, and records its Event.
func recorded(event eventFunc, registry prometheus.Registerer) eventFunc {
	changes := metric.CounterVec(registry, contract.MetricChanges)
	return func(target, eventType, reason, message string) {
		changes.WithLabelValues(target, reason).Inc()
		klog.InfoS("Changed", "apiServer", target, "reason", reason, "message", message)
		event(target, eventType, reason, message)
	}
}
