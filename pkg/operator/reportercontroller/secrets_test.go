package reportercontroller

import (
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// While KMS is off, as on most clusters, revisions permanently have no plugins.
func TestRevisionWithoutAPluginIsReadEachMinute(t *testing.T) {
	const encryptedOtherwise = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n" +
		"resources: [{resources: [secrets], providers: [{identity: {}}]}]\n"
	secret := object("v1", "Secret", "ns", "encryption-config-5")
	secret.Object["data"] = map[string]any{"encryption-config": base64.StdEncoding.EncodeToString([]byte(encryptedOtherwise))}
	for name, objects := range map[string][]runtime.Object{"not encrypted": nil, "encrypted otherwise": {secret}} {
		synctest.Test(t, func(t *testing.T) {
			client := newClient(objects...)
			c := New(Options{Client: client, Now: time.Now, Queue: syncqueue.New("deliver")})
			defer c.Queue.ShutDown()
			e := &serverState{revisions: map[string]revisionRead{}, target: v1alpha1.APIServer{Name: "api", Namespace: "ns",
				EncryptionConfig: v1alpha1.EncryptionConfig{Secret: "encryption-config", Key: "encryption-config"}}}
			reads := func(length time.Duration) int {
				client.ClearActions()
				for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(time.Second) {
					if r := c.revision(t.Context(), e, "encryption-config-5"); !r.Known || len(r.Config.Plugins) > 0 {
						t.Fatalf("%s: %+v", name, r)
					}
				}
				return len(client.Actions())
			}
			if got := reads(time.Minute); got < 3 {
				t.Errorf("%s: %d reads in the first minute, in which it may be about to be made", name, got)
			}
			reads(5 * time.Minute)
			if got := reads(10 * time.Minute); got < 10 || got > 11 {
				t.Errorf("%s: %d reads in 10 minutes", name, got)
			}
		})
	}
}
