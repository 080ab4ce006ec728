package reportercontroller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// While KMS is off, as on most clusters, revisions permanently have no plugins.
func TestRevisionWithoutAPluginIsReadEachMinute(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{
		"not encrypted": nil,
		"encrypted otherwise": {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "encryption-config-5"},
			Data: map[string][]byte{"encryption-config": []byte("apiVersion: apiserver.config.k8s.io/v1\n" +
				"kind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{identity: {}}]}]\n")}}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client, clock := dynamicfake.NewSimpleDynamicClient(scheme, objects...), clocktesting.NewFakeClock(time.Unix(1e9, 0))
			c := New(Options{Client: client, Clock: clock, Now: clock.Now, Queue: syncqueue.New(clock, "deliver")})
			defer c.Queue.ShutDown()
			e := &serverState{revisions: map[string]revisionRead{}, target: v1alpha1.APIServer{Name: "api", Namespace: "ns",
				EncryptionConfig: v1alpha1.EncryptionConfig{Secret: "encryption-config", Key: "encryption-config"}}}
			reads := func(length time.Duration) int {
				client.ClearActions()
				for end := clock.Now().Add(length); clock.Now().Before(end); clock.Step(time.Second) {
					if r := c.revision(context.Background(), e, "encryption-config-5"); !r.Known || len(r.Config.Plugins) > 0 {
						t.Fatalf("%+v", r)
					}
				}
				return len(client.Actions())
			}
			if got := reads(time.Minute); got < 3 {
				t.Errorf("%d reads in the first minute, in which it may be about to be made", got)
			}
			reads(5 * time.Minute)
			if got := reads(10 * time.Minute); got < 10 || got > 11 {
				t.Errorf("%d reads in 10 minutes", got)
			}
		})
	}
}
