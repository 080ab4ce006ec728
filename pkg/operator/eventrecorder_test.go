package operator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corefake "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestEventsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &corefake.FakeCoreV1{Fake: &clienttesting.Fake{}}
		api.AddReactor("*", "*", clienttesting.ObjectReaction(
			clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())))
		event, shutdown := newEvents(&typedcorev1.EventSinkImpl{Interface: api.Events("home")}, "home")
		// The first delivery to many nodes emits as many Events.
		for i := range 60 {
			event("kube", corev1.EventTypeNormal, "Created", fmt.Sprintf("Pod %d", i))
			time.Sleep(time.Nanosecond) // an Event's name contains its time
		}
		for range 3 {
			event("kube", corev1.EventTypeWarning, "Forbidden", "no right")
			time.Sleep(time.Second)
		}
		all, err := api.Events("home").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(all.Items) != 61 {
			t.Fatalf("%d events, want 60 different ones, and one that counts: %v", len(all.Items), err)
		}
		for _, e := range all.Items {
			want := corev1.Event{Type: corev1.EventTypeNormal, Reason: "Created", Count: 1}
			if e.Reason == "Forbidden" {
				want = corev1.Event{Type: corev1.EventTypeWarning, Reason: "Forbidden", Count: 3}
			}
			about := corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "home", Namespace: "home"}
			if e.Type != want.Type || e.Reason != want.Reason || e.Count != want.Count || e.InvolvedObject != about ||
				e.Source.Component != "kms-health-operator" || !strings.HasPrefix(e.Message, "kube: ") {
				t.Errorf("%+v", e)
			}
		}
		shutdown()
	})
}
