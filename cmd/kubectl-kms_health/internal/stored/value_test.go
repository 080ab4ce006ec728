package stored

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
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
	for name, tt := range map[string]struct {
		value, provider, kekID, problem string
	}{
		"protobuf in the clear":               {value: "k8s\x00\n\x0f\n\x02v1", provider: Identity},
		"JSON in the clear":                   {value: `{"kind":"APIService"}`, provider: Identity},
		"nothing":                             {value: "", provider: Identity},
		"KMS v2":                              {value: string(whole), provider: "kms:v2:kms-1", kekID: "key-1"},
		"KMS v1":                              {value: "k8s:enc:kms:v1:old:" + data, provider: "kms:v1:old"},
		"aescbc":                              {value: "k8s:enc:aescbc:v1:key1:" + data, provider: "aescbc:v1:key1"},
		"aesgcm":                              {value: "k8s:enc:aesgcm:v1:key1:" + data, provider: "aesgcm:v1:key1"},
		"secretbox":                           {value: "k8s:enc:secretbox:v1:key1:" + data, provider: "secretbox:v1:key1"},
		"provider of a later version":         {value: "k8s:enc:kms:v3:kms-1:" + data, provider: "kms:v3:kms-1"},
		"prefix alone":                        {value: "k8s:enc:", problem: "no name"},
		"provider without a name":             {value: "k8s:enc:aescbc:v1::" + data, problem: "no name"},
		"provider without an end":             {value: "k8s:enc:aescbc:v1:key1", problem: "no name"},
		"name that is longer than any":        {value: "k8s:enc:kms:v1:" + strings.Repeat("a", 2000) + ":", problem: "no name"},
		"name that is no text":                {value: "k8s:enc:kms:v1:\xff:" + data, problem: "no name"},
		"KMS v2 without an envelope":          {value: "k8s:enc:kms:v2:kms-1:", problem: "no data"},
		"KMS v2 that is cut":                  {value: string(whole[:len(whole)-1]), problem: "no data"},
		"KMS v2 of random bytes":              {value: "k8s:enc:kms:v2:kms-1:\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", problem: "no data"},
		"KMS v2 with a length beyond the end": {value: "k8s:enc:kms:v2:kms-1:\x12\xff\xff\xff\x7fkey", problem: "no data"},
		"KMS v2 without a KEK ID":             {value: string(envelope(t, "", []byte(data))), problem: "no KEK ID"},
		"KMS v2 without data":                 {value: string(envelope(t, "key-1", nil)), problem: "no data"},
		"KEK ID that kube-apiserver refuses":  {value: string(envelope(t, strings.Repeat("k", 1025), []byte(data))), problem: "no KEK ID"},
		"KEK ID as a number":                  {value: "k8s:enc:kms:v2:kms-1:\x0a\x01d\x10\x07", problem: "no KEK ID"},
	} {
		t.Run(name, func(t *testing.T) {
			provider, kekID, err := encryptionOf([]byte(tt.value))
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("got %v; want an error with %q", err, tt.problem)
				}
			} else if err != nil || provider != tt.provider || kekID != tt.kekID {
				t.Errorf("got %q, %q, %v; want %q, %q", provider, kekID, err, tt.provider, tt.kekID)
			}
		})
	}
}
