package apiservers

import (
	"bytes"

	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

// StoredKEKID returns the KEK ID of a value in etcd. It is empty unless a KMS v2 provider of this name encrypted
// the value.
func StoredKEKID(value []byte, provider string) (string, error) {
	_, object, _ := bytes.Cut(value, []byte("k8s:enc:kms:v2:"+provider+":"))
	var envelope kmstypes.EncryptedObject
	err := proto.Unmarshal(object, &envelope)
	return envelope.KeyID, err
}
