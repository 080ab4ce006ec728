package stored

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	kmsv2 "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

const (
	// encrypted begins each value that kube-apiserver encrypts. Its identity provider neither writes
	// nor reads such a value.
	encrypted = "k8s:enc:"
	// Identity is the provider of a value that is stored in the clear.
	Identity = "identity"
	kmsV1    = "kms:v1:"
	kmsV2    = "kms:v2:"
	// maxName bounds a provider's name here, and a KEK ID in kube-apiserver (KeyIDMaxSize).
	maxName = 1024
)

// providers are those of kube-apiserver, each with the version of its format.
var providers = []string{kmsV2, kmsV1, "aescbc:v1:", "aesgcm:v1:", "secretbox:v1:"}

// encryptionOf returns how a value is encrypted: the provider as kube-apiserver's prefix names it, such as
// aescbc:v1:KEY, and of KMS v2 the KEK ID. It verifies nothing, since that needs the key. The value may be anything. A
// name of KMS v1 or of a local key may have a colon, and is cut there: nothing shows where it ends.
func encryptionOf(value []byte) (provider, kekID string, err error) {
	rest, is := bytes.CutPrefix(value, []byte(encrypted))
	if !is {
		return Identity, "", nil
	}
	for _, kind := range providers {
		named, is := bytes.CutPrefix(rest, []byte(kind))
		if !is {
			continue
		}
		length := bytes.IndexByte(named[:min(len(named), maxName)], ':')
		if length < 1 || !utf8.Valid(named[:length]) {
			return "", "", errors.New("no name of a provider")
		}
		if kind == kmsV2 {
			kekID, err = kekIDOf(named[length+1:])
		}
		return kind + string(named[:length]), kekID, err
	}
	return "", "", errors.New("not a known provider")
}

// kekIDOf decodes an envelope of KMS v2 by kube-apiserver's own type.
func kekIDOf(envelope []byte) (string, error) {
	var object kmsv2.EncryptedObject
	err := proto.Unmarshal(envelope, &object)
	if err != nil || len(object.EncryptedData) == 0 || object.KeyID == "" || len(object.KeyID) > maxName {
		return "", errors.New("no data, or no KEK ID that kube-apiserver would read")
	}
	return object.KeyID, nil
}
