package stored

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
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

// encryption is how a value is encrypted. It is not verified, since that needs the key.
type encryption struct {
	provider string // as kube-apiserver's prefix names it, such as kms:v2:NAME or aescbc:v1:KEY
	kekID    string // of KMS v2; other providers store none
}

// encryptionOf reads what kube-apiserver wrote before the data. The value may be anything. A name of KMS v1
// or of a local key may have a colon, and is cut there: nothing shows where it ends.
func encryptionOf(value []byte) (encryption, error) {
	rest, ok := bytes.CutPrefix(value, []byte(encrypted))
	if !ok {
		return encryption{provider: Identity}, nil
	}
	for _, kind := range providers {
		named, ok := bytes.CutPrefix(rest, []byte(kind))
		if !ok {
			continue
		}
		length := bytes.IndexByte(named[:min(len(named), maxName)], ':')
		if length < 1 || !utf8.Valid(named[:length]) {
			return encryption{}, errors.New("no name of a provider")
		}
		e := encryption{provider: kind + string(named[:length])}
		var err error
		if kind == kmsV2 {
			e.kekID, err = kekIDOf(named[length+1:])
		}
		return e, err
	}
	return encryption{}, errors.New("not a known provider")
}

// Fields of EncryptedObject (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2).
const (
	dataField  protowire.Number = 1
	kekIDField protowire.Number = 2
)

// kekIDOf reads the KEK ID of an EncryptedObject, and copies nothing else.
func kekIDOf(object []byte) (string, error) {
	var data, kekID []byte
	for len(object) > 0 {
		number, kind, n := protowire.ConsumeTag(object)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		object = object[n:]
		if n = protowire.ConsumeFieldValue(number, kind, object); n < 0 {
			return "", protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			field, _ := protowire.ConsumeBytes(object)
			switch number { // if a field is repeated, the last one counts
			case dataField:
				data = field
			case kekIDField:
				kekID = field
			}
		}
		object = object[n:]
	}
	if len(data) == 0 || len(kekID) == 0 || len(kekID) > maxName || !utf8.Valid(kekID) {
		return "", errors.New("no data, or no KEK ID that kube-apiserver would read")
	}
	return string(kekID), nil
}
