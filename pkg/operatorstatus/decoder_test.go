package operatorstatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

// Decoder drops fields, but keeps everything that Read needs.
func TestDecoderKeepsWhatReadNeeds(t *testing.T) {
	objects := map[string]*unstructured.Unstructured{"a resource": object(t, kubeAPIServer)}
	for name, tt := range malformed {
		objects[name] = object(t, tt.text)
	}
	for _, r := range contract.Resources {
		o := object(t, `{metadata: {uid: u-1}}`)
		reports := []any{map[string]any{"nodeName": "a", "keyID": "1", "status": "Healthy",
			"lastCheckedTime": "2026-05-08T11:59:55Z"}}
		path := append(slices.Clone(r.EncryptionStatus), contract.HealthReports)
		must.Succeed(t, unstructured.SetNestedSlice(o.Object, reports, path...))
		objects[r.Kind] = o
	}
	for name, o := range objects {
		t.Run(name, func(t *testing.T) {
			o.SetAPIVersion("operator.openshift.io/v1")
			o.SetKind("KubeAPIServer")
			o.SetName("cluster")
			data, err := json.Marshal(o)
			must.Succeed(t, err)
			whole := decode(t, unstructured.UnstructuredJSONScheme, data)
			lean := decode(t, Decoder(unstructured.UnstructuredJSONScheme), data)
			byText := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
			if diff := cmp.Diff(Read(whole), Read(lean), byText); diff != "" {
				t.Error(diff)
			}
			if lean.GetName() != whole.GetName() || lean.GroupVersionKind() != whole.GroupVersionKind() {
				t.Errorf("%s %s", lean.GroupVersionKind(), lean.GetName())
			}
			if len(whole.GetManagedFields()) > 0 && len(lean.GetManagedFields()) > 0 {
				t.Error("the managedFields are decoded")
			}
		})
	}
}

// Lists, errors and bookmarks go to the wrapped decoder.
func TestDecoderLeavesOthersAlone(t *testing.T) {
	for _, text := range []string{
		`{"kind":"KubeAPIServerList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410}`,
		`{"kind":"KubeAPIServer","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`,
		`{"kind"`,
	} {
		want, _, wantErr := unstructured.UnstructuredJSONScheme.Decode([]byte(text), nil, nil)
		got, _, err := Decoder(unstructured.UnstructuredJSONScheme).Decode([]byte(text), nil, nil)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, %s", text, err, diff)
		}
	}
}

func decode(t *testing.T, d runtime.Decoder, data []byte) *unstructured.Unstructured {
	t.Helper()
	o, _, err := d.Decode(data, nil, nil)
	must.Succeed(t, err)
	return o.(*unstructured.Unstructured)
}
