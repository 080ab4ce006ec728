package operatorstatus

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Decoder decodes only what Read needs of an operator resource, with each condition at its index: the conditions of
// others and the managedFields would cost more than all other work of the operator. A list is decoded whole.
func Decoder(whole runtime.Decoder) runtime.Decoder { return decoder{whole} }

type decoder struct{ runtime.Decoder }

// needed is what Read and an informer need.
type needed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string         `json:"name"`
		UID             string         `json:"uid"`
		ResourceVersion string         `json:"resourceVersion"`
		Annotations     map[string]any `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Conditions       []ownCondition `json:"conditions"`
		EncryptionStatus any            `json:"encryptionStatus"`
		OAuthAPIServer   any            `json:"oauthAPIServer"`
		NodeStatuses     any            `json:"nodeStatuses"`
	} `json:"status"`
}

// ownCondition is a condition of this project; nil: another one.
type ownCondition map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (c *ownCondition) UnmarshalJSON(data []byte) error {
	if bytes.Contains(data, []byte(`"`+prefix)) {
		return utiljson.Unmarshal(data, (*map[string]any)(c))
	}
	return nil
}

// Decode implements runtime.Decoder.
func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error) {
	var n needed
	if err := utiljson.Unmarshal(data, &n); err != nil || n.Metadata.Name == "" { // also a Status or a bookmark
		return d.Decoder.Decode(data, defaults, into)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&n)
	o := &unstructured.Unstructured{Object: fields}
	kind := o.GroupVersionKind()
	return o, &kind, err
}
