package stored

import (
	"bytes"
	"errors"
	"strings"
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
	kms      = "kms:" // begins the providers of KMS
	kmsV2    = "kms:v2:"
	// maxName bounds a provider's name here, and a KEK ID in kube-apiserver (KeyIDMaxSize).
	maxName = 1024
)

// encryptionOf returns how a value is encrypted: the provider as kube-apiserver's prefix names it, such as
// aescbc:v1:KEY, and of KMS v2 the KEK ID. It verifies nothing, since that needs the key. The value may be anything. A
// name of KMS v1 or of a local key may have a colon, and is cut there: nothing shows where it ends.
func encryptionOf(value []byte) (provider, kekID string, err error) {
	rest, is := bytes.CutPrefix(value, []byte(encrypted))
	if !is {
		return Identity, "", nil
	}
	parts := bytes.SplitN(rest, []byte(":"), 4) // kind, version, name, data
	provider = string(bytes.Join(parts[:len(parts)-1], []byte(":")))
	if len(parts) < 4 || len(parts[2]) == 0 || len(provider) > maxName || !utf8.ValidString(provider) {
		return "", "", errors.New("no name of a provider")
	}
	if strings.HasPrefix(provider, kmsV2) {
		kekID, err = kekIDOf(parts[3])
	}
	return provider, kekID, err
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
