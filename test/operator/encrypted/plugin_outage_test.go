//go:build integration

package encrypted

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// While the plugin is unhealthy, its API server can read neither Secrets nor ConfigMaps. Then reporters are needed
// most, and the operator must not remove them.
func TestUnhealthyPluginRemovesNothing(t *testing.T) {
	plugin := fixture.Plugin
	op := fixture.NewOperator(t)
	fixture.DeliverAll(t, op)
	companions := fixture.PodUIDs(t, fixture.Companions)
	generation := fixture.DeploymentNow(t).Generation
	kubeconfig := op.Credentials()

	must.Succeed(t, plugin.Crash())
	op.Kill(syscall.SIGKILL)
	must.Succeed(t, fixture.Cluster.StopAPIServer(t.Context()))
	must.Succeed(t, fixture.Cluster.StartAPIServer(t.Context()))
	if _, err := fixture.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(t.Context(), "encryption-config", metav1.GetOptions{}); err == nil {
		t.Fatal("the API server reads Secrets without its plugin")
	}

	awaitLongRetryAfter(t)
	// An operator that starts now restores the plugin sets from its recorded state: a new API server pod gets a companion.
	op.Run(kubeconfig)
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("2", false))
	fixture.Eventually(t, "the new pod has a companion", func() error {
		list, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: fixture.Companions})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			_, old := companions[p.Name]
			if !old && p.Spec.NodeName == fixture.NodeNames[0] && fixture.DescribeFile(p.Annotations[contract.ConfigAnnotation]) == "1W every 30s to kubeapiservers" {
				return nil
			}
		}
		return fmt.Errorf("there are %d: %v\n%s", len(list.Items), slices.Collect(maps.Keys(companions)), fixture.Tail(op.Logged()))
	})
	now := fixture.PodUIDs(t, fixture.Companions)
	kept := 0
	for name, uid := range companions {
		if now[name] == uid {
			kept++
		}
	}
	if kept < 2 {
		t.Errorf("companions of pods that were kept are deleted: %v, were %v", now, companions)
	}
	must.Equal(t, "the generation of the Deployment", fixture.DeploymentNow(t).Generation, generation)
	if c := fixture.Resource(t, apiservers.OAuth).Conditions[contract.HealthReporting]; c.Reason == "Off" || c.Reason == "Removing" {
		t.Errorf("%+v", c)
	}

	// The plugin recovers.
	must.Succeed(t, plugin.Return())
	fixture.Eventually(t, "Secrets are read again", func() error {
		_, err := fixture.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Get(t.Context(), "encryption-config", metav1.GetOptions{})
		return err
	})
	fixture.AwaitAllDelivered(t)
	must.Equal(t, "the generation of the Deployment", fixture.DeploymentNow(t).Generation, generation)
}

// awaitLongRetryAfter waits until the API server answers requests for ConfigMaps with a long Retry-After. It grows
// during the outage. client-go obeys it up to ten times in each request, so the request would take minutes.
func awaitLongRetryAfter(t *testing.T) {
	t.Helper()
	fixture.Eventually(t, "Retry-After is long", func() error {
		err := fixture.Kube.CoreV1().RESTClient().Get().Resource("configmaps").MaxRetries(0).Do(t.Context()).Error()
		if after, _ := apierrors.SuggestsClientDelay(err); after < 5 {
			return fmt.Errorf("%d s: %w", after, err)
		}
		return nil
	})
}
