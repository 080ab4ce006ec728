package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/dynamic"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// reportTyped reports in the form of OpenShift's reporter until the end of the test: at each interval it calls Status
// of the node's plugin, and applies a typed list.
func (n *node) reportTyped(admin dynamic.Interface, interval time.Duration) {
	conn, err := grpc.NewClient("unix://"+n.socket(1), grpc.WithTransportCredentials(insecure.NewCredentials()))
	n.must(err)
	ctx, stop := context.WithCancel(running)
	ended := make(chan struct{})
	n.Cleanup(func() {
		stop()
		<-ended
		_ = conn.Close()
	})
	plugin, sum := kmsapi.NewKeyManagementServiceClient(conn), sha256.Sum256([]byte(n.name))
	manager := "kms-health-reporter-" + hex.EncodeToString(sum[:])
	go func() {
		defer close(ended)
		for tick := time.Tick(interval); ctx.Err() == nil; {
			report := typedReport(ctx, plugin)
			report["nodeName"], report["keyID"], report["lastCheckedTime"] = n.name, "1", time.Now().UTC().Format(time.RFC3339)
			object := apiservers.Kube.Status()
			object["status"] = map[string]any{"encryptionStatus": map[string]any{"healthReports": []any{report}}}
			err := apiservers.Apply(ctx, admin, manager, controlplane.OperatorGVR(apiservers.Kube.Resource), "", object, "status")
			if err != nil && ctx.Err() == nil {
				n.Errorf("typed report of %s: %v", n.name, err)
			}
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
	}()
}

// typedReport returns a typed report on a plugin. Upstream sends a remoteKeyID only for a healthy plugin. The schema
// requires one, so upstream's reports of this fault are rejected. Here each report has a remoteKeyID, to measure how
// soon a report in this form would arrive.
func typedReport(ctx context.Context, plugin kmsapi.KeyManagementServiceClient) map[string]any {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch answer, err := plugin.Status(ctx, &kmsapi.StatusRequest{}); {
	case err != nil:
		return map[string]any{"status": "Error", "detail": "Status failed", "remoteKeyID": "unknown"}
	case answer.GetHealthz() != "ok":
		detail := fmt.Sprintf("healthz is %q", answer.GetHealthz())
		return map[string]any{"status": "Unhealthy", "detail": detail, "remoteKeyID": answer.GetKeyId()}
	default:
		return map[string]any{"status": "Healthy", "remoteKeyID": answer.GetKeyId()}
	}
}
