package stored

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"google.golang.org/protobuf/proto"
)

// envelope is a value as kube-apiserver writes it.
func envelope(t testing.TB, kekID string, data []byte) []byte {
	t.Helper()
	object, err := proto.Marshal(&kmstypes.EncryptedObject{
		EncryptedData: data, KeyID: kekID, EncryptedDEKSource: []byte("dek"),
		Annotations:            map[string][]byte{"a.example.com": []byte("b")},
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s:enc:kms:v2:kms-1:"), object...)
}

func TestProviderAndKEKIDOfAValue(t *testing.T) {
	const data = "\x00\xff:data"
	whole := envelope(t, "key-1", []byte(data))
	twice := protowire.AppendString(protowire.AppendTag(whole, kekIDField, protowire.BytesType), "key-2")
	for name, tt := range map[string]struct {
		value, provider, kekID, problem string
	}{
		"protobuf in the clear":               {value: "k8s\x00\n\x0f\n\x02v1", provider: Identity},
		"JSON in the clear":                   {value: `{"kind":"APIService"}`, provider: Identity},
		"nothing":                             {value: "", provider: Identity},
		"KMS v2":                              {value: string(whole), provider: "kms:v2:kms-1", kekID: "key-1"},
		"KMS v2 with the field twice":         {value: string(twice), provider: "kms:v2:kms-1", kekID: "key-2"},
		"KMS v1":                              {value: "k8s:enc:kms:v1:old:" + data, provider: "kms:v1:old"},
		"aescbc":                              {value: "k8s:enc:aescbc:v1:key1:" + data, provider: "aescbc:v1:key1"},
		"aesgcm":                              {value: "k8s:enc:aesgcm:v1:key1:" + data, provider: "aesgcm:v1:key1"},
		"secretbox":                           {value: "k8s:enc:secretbox:v1:key1:" + data, provider: "secretbox:v1:key1"},
		"provider of a later version":         {value: "k8s:enc:kms:v3:kms-1:" + data, problem: "not a known provider"},
		"prefix alone":                        {value: "k8s:enc:", problem: "not a known provider"},
		"provider without a name":             {value: "k8s:enc:aescbc:v1::" + data, problem: "no name"},
		"provider without an end":             {value: "k8s:enc:aescbc:v1:key1", problem: "no name"},
		"name that is longer than any":        {value: "k8s:enc:kms:v1:" + strings.Repeat("a", 2000) + ":", problem: "no name"},
		"name that is no text":                {value: "k8s:enc:kms:v1:\xff:" + data, problem: "no name"},
		"KMS v2 without an envelope":          {value: "k8s:enc:kms:v2:kms-1:", problem: "no data"},
		"KMS v2 that is cut":                  {value: string(whole[:len(whole)-1]), problem: "unexpected EOF"},
		"KMS v2 of random bytes":              {value: "k8s:enc:kms:v2:kms-1:\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", problem: "overflow"},
		"KMS v2 with a length beyond the end": {value: "k8s:enc:kms:v2:kms-1:\x12\xff\xff\xff\x7fkey", problem: "unexpected EOF"},
		"KMS v2 without a KEK ID":             {value: string(envelope(t, "", []byte(data))), problem: "no KEK ID"},
		"KMS v2 without data":                 {value: string(envelope(t, "key-1", nil)), problem: "no data"},
		"KEK ID that kube-apiserver refuses":  {value: string(envelope(t, strings.Repeat("k", 1025), []byte(data))), problem: "no KEK ID"},
		"KEK ID as a number":                  {value: "k8s:enc:kms:v2:kms-1:\x0a\x01d\x10\x07", problem: "no KEK ID"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := encryptionOf([]byte(tt.value))
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("got %+v, %v; want an error with %q", got, err, tt.problem)
				}
			} else if want := (encryption{tt.provider, tt.kekID}); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// Values that kube-apiserver's own type decodes give the same result, and no value causes a panic.
func FuzzEncryptionOf(f *testing.F) {
	f.Add(envelope(f, "key-1", []byte("data")))
	f.Add([]byte("k8s:enc:aescbc:v1:key1:x"))
	f.Add([]byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := encryptionOf(value)
		if len(got.provider) > maxName+20 || len(got.kekID) > maxName {
			t.Errorf("%d and %d bytes", len(got.provider), len(got.kekID))
		}
		object, ok := strings.CutPrefix(string(value), "k8s:enc:kms:v2:kms-1:")
		var want kmstypes.EncryptedObject
		if !ok || proto.Unmarshal([]byte(object), &want) != nil {
			return
		}
		readable := len(want.EncryptedData) > 0 && want.KeyID != "" && len(want.KeyID) <= maxName
		if readable != (err == nil) || readable && got.kekID != want.KeyID {
			t.Errorf("got %+v, %v; want %q", got, err, want.KeyID)
		}
	})
}
