package kmsplugin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/kms/pkg/service"
)

// usedKeyAnnotation carries the key that encrypted from Encrypt to Decrypt: it differs from
// the key_id when Encrypt is to answer with another one. kube-apiserver wants a fully
// qualified domain name, and stores it.
const usedKeyAnnotation = "key.kmsplugin.kms-health.dev"

// keyring is the keys of a state directory: a file of key material for each number. The newest one
// encrypts, all decrypt. Several plugins may share the directory, as the nodes of a cluster share a
// remote key; a key that another one added encrypts after a restart.
type keyring struct {
	dir    string
	newest atomic.Pointer[key]
}

// key has an ID that holds a hash of the material, so that two plugins report the same key_id only when
// they hold the same key.
type key struct {
	number int
	id     string
	aead   cipher.AEAD
}

// openKeyring reads the keys in dir, and makes the first where there are none.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	k := &keyring{dir: dir}
	number := 0
	for k.has(number + 1) {
		number++
	}
	if number == 0 {
		err := k.add(1)
		return k, err
	}
	newest, err := k.read(number)
	k.newest.Store(newest)
	return k, err
}

func (k *keyring) path(number int) string { return filepath.Join(k.dir, fmt.Sprintf("key-%d", number)) }

func (k *keyring) has(number int) bool {
	_, err := os.Stat(k.path(number))
	return err == nil
}

// rotate adds a key, and returns its ID. It encrypts only when it is on disk.
func (k *keyring) rotate() (string, error) {
	number := k.newest.Load().number + 1
	for k.has(number) {
		number++
	}
	err := k.add(number)
	return k.current(), err
}

// add makes the key of a number, unless another plugin made it at the same time.
func (k *keyring) add(number int) error {
	f, err := os.CreateTemp(k.dir, ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = io.CopyN(f, rand.Reader, sha256.Size)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), k.path(number)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	newest, err := k.read(number)
	if err == nil {
		k.newest.Store(newest)
	}
	return err
}

func (k *keyring) read(number int) (*key, error) {
	material, err := os.ReadFile(k.path(number))
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(material)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	sum := sha256.Sum256(material)
	return &key{number, fmt.Sprintf("key-%d-%x", number, sum[:4]), aead}, err
}

// current returns the ID of the key that encrypts.
func (k *keyring) current() string { return k.newest.Load().id }

// encrypt seals plaintext with the current key, under the key_id alias or, if
// that is nil, the key's own.
func (k *keyring) encrypt(plaintext []byte, alias *string) *service.EncryptResponse {
	key := k.newest.Load()
	keyID := key.id
	if alias != nil {
		keyID = *alias
	}
	return &service.EncryptResponse{
		Ciphertext: key.aead.Seal(nil, nil, plaintext, []byte(keyID)), KeyID: keyID,
		Annotations: map[string][]byte{usedKeyAnnotation: []byte(key.id)},
	}
}

// decrypt opens what encrypt sealed.
func (k *keyring) decrypt(ciphertext []byte, keyID, usedKey string) ([]byte, error) {
	var number int
	_, err := fmt.Sscanf(usedKey, "key-%d-", &number)
	if err != nil {
		return nil, fmt.Errorf("no key %q", usedKey)
	}
	key, err := k.read(number)
	if err != nil || key.id != usedKey {
		return nil, fmt.Errorf("no key %q", usedKey)
	}
	plaintext, err := key.aead.Open(nil, nil, ciphertext, []byte(keyID))
	if err != nil {
		return nil, fmt.Errorf("ciphertext does not belong to key %q and key_id %q: %w", usedKey, keyID, err)
	}
	return plaintext, nil
}
