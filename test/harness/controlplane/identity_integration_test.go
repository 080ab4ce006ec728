//go:build integration

package controlplane

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func testOperatorObjects(t *testing.T, c *ControlPlane) {
	client := dynamicClient(t, c.RESTConfig())
	for _, resource := range []string{KubeAPIServers, OpenShiftAPIServers, Authentications} {
		object, err := client.Resource(OperatorGVR(resource)).Get(t.Context(), ClusterObject, metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		key := "/registry/" + OperatorGroup + "/" + resource + "/" + ClusterObject
		stored, err := c.EtcdGet(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		var raw unstructured.Unstructured
		if err := json.Unmarshal(stored, &raw); err != nil || raw.GetUID() != object.GetUID() {
			t.Errorf("etcd holds another object under %s: %v, %q", key, err, stored)
		}
	}
}

func testReporterIdentity(t *testing.T, c *ControlPlane) {
	const namespace, name = "test-reporter", "reporter"
	token := func() string {
		t.Helper()
		token, err := c.ServiceAccountToken(t.Context(), namespace, name, TokenOptions{Lifetime: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	user := ServiceAccountUser(namespace, name)
	if err := c.CreateServiceAccount(t.Context(), namespace, name); err != nil {
		t.Fatal(err)
	}
	if err := c.AllowStatusPatch(t.Context(), user, KubeAPIServers); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "credentials")
	path, err := c.WriteKubeconfig(dir, Kubeconfig{
		TLSServerName: "localhost",
		Credential:    Credential{Token: token()},
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	mustBeReporter(t, c, config, user)

	// A rotated token is another file of the same name.
	before, err := os.ReadFile(filepath.Join(dir, KubeconfigTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteKubeconfig(dir, Kubeconfig{Credential: Credential{Token: token()}}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(dir, KubeconfigTokenFile))
	if err != nil || string(before) == string(after) {
		t.Errorf("the token is the same: %v", err)
	}
}

func testReporterCertificate(t *testing.T, c *ControlPlane) {
	const user = "system:kms-health-reporter"
	if err := c.AllowStatusPatch(t.Context(), user, KubeAPIServers); err != nil {
		t.Fatal(err)
	}
	pair, err := c.ClientCertificate(time.Hour, user)
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.WriteKubeconfig(t.TempDir(), Kubeconfig{Credential: Credential{Certificate: pair}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	mustBeReporter(t, c, config, user)
}

// mustBeReporter tries what a reporter may and may not do, and finds exactly
// that in the audit log.
func mustBeReporter(t *testing.T, c *ControlPlane, config *rest.Config, user string) {
	t.Helper()
	ctx, client := t.Context(), dynamicClient(t, config)
	objects := client.Resource(OperatorGVR(KubeAPIServers))

	const condition = "KMSHealthReporter_node"
	body := []byte(`{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"},
		"status":{"conditions":[{"type":"` + condition + `","status":"True","reason":"AsExpected","message":"[]","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	apply := metav1.PatchOptions{FieldManager: "test", Force: new(true)}
	applied, err := objects.Patch(ctx, ClusterObject, types.ApplyPatchType, body, apply, "status")
	if err != nil {
		t.Fatal(err)
	}
	conditions, _, err := unstructured.NestedSlice(applied.Object, "status", "conditions")
	if err != nil || len(conditions) != 1 || conditions[0].(map[string]any)["type"] != condition {
		t.Errorf("the conditions after the apply: %v, %v", conditions, err)
	}

	for name, call := range map[string]func() error{
		"get":            func() error { _, err := objects.Get(ctx, ClusterObject, metav1.GetOptions{}); return err },
		"get the status": func() error { _, err := objects.Get(ctx, ClusterObject, metav1.GetOptions{}, "status"); return err },
		"list":           func() error { _, err := objects.List(ctx, metav1.ListOptions{}); return err },
		"patch the whole": func() error {
			_, err := objects.Patch(ctx, ClusterObject, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		"patch another object": func() error {
			_, err := objects.Patch(ctx, "other", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
			return err
		},
		"patch another resource": func() error {
			_, err := client.Resource(OperatorGVR(Authentications)).Patch(ctx, ClusterObject, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
			return err
		},
	} {
		if err := call(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, not forbidden", name, err)
		}
	}

	if err := c.AuditFence(ctx); err != nil {
		t.Fatal(err)
	}
	events, err := c.AuditEvents(ByUser(user))
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int32]int{}
	for _, event := range events {
		codes[event.ResponseStatus.Code]++
	}
	if codes[200] != 1 || codes[403] != 6 || len(events) != 7 {
		t.Errorf("the audit log has %v of %s, not one 200 and six 403", codes, user)
	}
}

func testVariantSwitch(t *testing.T, c *ControlPlane) {
	ctx := t.Context()
	config := c.RESTConfig()
	// The API server warns of each field that it prunes, as it is meant to here.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client := dynamicClient(t, config)
	report := `{"healthReports":[{"nodeName":"node","keyID":"1","remoteKeyID":"a","status":"Healthy","lastCheckedTime":"2026-01-01T00:00:00Z"}]}`
	bodies := map[string]struct {
		body string
		path []string
	}{
		KubeAPIServers:      {`{"status":{"encryptionStatus":` + report + `}}`, []string{"status", "encryptionStatus"}},
		OpenShiftAPIServers: {`{"status":{"encryptionStatus":` + report + `}}`, []string{"status", "encryptionStatus"}},
		Authentications:     {`{"status":{"oauthAPIServer":{"encryptionStatus":` + report + `}}}`, []string{"status", "oauthAPIServer", "encryptionStatus"}},
	}
	for _, step := range []struct {
		variant Variant
		kept    bool
	}{{Default, false}, {TechPreviewNoUpgrade, true}, {Default, false}, {TechPreviewNoUpgrade, true}, {Default, false}} {
		start := time.Now()
		if err := c.ApplyOperatorCRDs(ctx, step.variant); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s in force after %v", step.variant, time.Since(start).Round(time.Millisecond))
		// Each at once, without a retry: in force means in force.
		for resource, field := range bodies {
			written, err := client.Resource(OperatorGVR(resource)).Patch(ctx, ClusterObject, types.MergePatchType, []byte(field.body), metav1.PatchOptions{}, "status")
			if err != nil {
				t.Errorf("%s, %s: %v", step.variant, resource, err)
				continue
			}
			if _, kept, _ := unstructured.NestedMap(written.Object, field.path...); kept != step.kept {
				t.Errorf("%s, %s: encryptionStatus kept: %t, want %t", step.variant, resource, kept, step.kept)
			}
		}
	}
}

func dynamicClient(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfigAndClient(config, httpClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return client
}
