//go:build integration

package commands

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// seconds is shorter than the operator's resync, which would hide that an annotation causes no sync.
const seconds = 45 * time.Second

// requestsInFiles returns the requests in the files of the operator's ConfigMaps and pods, by kind and API server. Each
// value is listed once.
func requestsInFiles(t *testing.T) map[string]string {
	t.Helper()
	all, err := fixture.ListMade(t.Context())
	must.Succeed(t, err)
	found := map[string]map[string]bool{}
	for i := range all {
		o := &all[i]
		file, has := o.GetAnnotations()[contract.ConfigAnnotation]
		where := o.GetKind() + " " + o.GetLabels()[contract.APIServerLabel]
		if o.GetKind() == "ConfigMap" {
			file, has, _ = unstructured.NestedString(o.Object, "data", contract.ConfigFile)
		}
		if !has {
			continue
		}
		c, err := v1alpha1.DecodeReporter([]byte(file))
		must.Succeed(t, err)
		if found[where] == nil {
			found[where] = map[string]bool{}
		}
		found[where][c.Probe.Checks.RoundTrip.Requested] = true
	}
	requests := map[string]string{}
	for where, values := range found {
		requests[where] = strings.Join(slices.Sorted(maps.Keys(values)), " and ")
	}
	return requests
}

// whatPodsAreReplacedFor returns the UIDs of the operator's pods, and the templates whose change replaces pods.
func whatPodsAreReplacedFor(t *testing.T) string {
	t.Helper()
	sets, err := fixture.Kube.AppsV1().DaemonSets(fixture.Namespace).List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	text := fmt.Sprintln(fixture.PodUIDs(t, contract.APIServerLabel), contract.Marshal(fixture.DeploymentNow(t).Spec.Template))
	for _, ds := range sets.Items {
		text += fmt.Sprintln(ds.Name, ds.Generation, contract.Marshal(ds.Spec.Template))
	}
	return text
}

// The request arrives in all three modes, with the file in an annotation and in a ConfigMap.
func TestARequestReachesRunningReportersInSeconds(t *testing.T) {
	const plugins = `plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}]`
	servers := []apiservers.Server{apiservers.Kube, apiservers.OAuth, apiservers.OpenShift}
	op := fixture.NewOperator(t)
	config := func(source string) string {
		return fixture.Every("30s", apiservers.Kube.Target("configSource: "+source), fixture.OpenShiftAPIServer(),
			apiservers.OAuth.Target("mode: DaemonSet", "configSource: "+source, plugins, "nodeSelector: {kubernetes.io/os: linux}"))
	}
	secretsOnly, _, _ := strings.Cut(apiservers.Encryption("1", "identity"), "- resources: [configmaps]")
	fixture.SetEncryption(t, apiservers.Kube, secretsOnly, "1")
	fixture.Deploy(t, "1", "1", "identity")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() {
		for _, server := range servers {
			fixture.RequestRoundTrip(t, server, "")
		}
	})
	requests := func() map[string]string { return requestsInFiles(t) }
	inSeconds := func(what string, want map[string]string) {
		t.Helper()
		began := time.Now()
		fixture.AwaitEqual(t, what, want, requests)
		if took := time.Since(began); took > seconds {
			t.Errorf("%s: after %s", what, took)
		}
	}
	for _, source := range []string{"Annotation", "ConfigMap"} {
		requested := func(text string) map[string]string {
			kind := map[string]string{"Annotation": "Pod ", "ConfigMap": "ConfigMap "}[source]
			return map[string]string{kind + "kube-apiserver": text, kind + "oauth-apiserver": text,
				"ConfigMap openshift-apiserver": text}
		}
		everywhere := func(text string) {
			for _, server := range servers {
				fixture.RequestRoundTrip(t, server, text)
			}
		}
		if source == "Annotation" {
			op.Start(config(source))
		}
		op.Configure(config(source))
		for _, server := range servers {
			fixture.AwaitDelivered(t, server)
		}
		fixture.AwaitEqual(t, "delivered by "+source, requested(""), requests)
		before := whatPodsAreReplacedFor(t)
		everywhere("before-restart.1")
		inSeconds("the files have the request", requested("before-restart.1"))
		everywhere("2_b")
		inSeconds("the files have another request", requested("2_b"))

		op.Restart(syscall.SIGKILL)
		fixture.RequestRoundTrip(t, apiservers.OpenShift, "after-restart")
		restarted := requested("2_b")
		restarted["ConfigMap "+apiservers.OpenShift.Name] = "after-restart"
		fixture.AwaitEqual(t, "after a restart of the operator only another request changes a file", restarted, requests)
		fixture.StaysEqual(t, 2*time.Second, restarted, requests)
		everywhere("")
		inSeconds("the files have no request", requested(""))

		since := time.Now()
		everywhere("two words " + source)
		for _, server := range servers {
			fixture.AwaitWarning(t, contract.EventRequestInvalid, since, server.Name+": the annotation ")
		}
		fixture.StaysEqual(t, 2*time.Second, requested(""), requests) // no request
		must.Equal(t, "pods and templates after requests", whatPodsAreReplacedFor(t), before)
		everywhere("")
	}
}
