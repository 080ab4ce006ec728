package kmsplugin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"k8s.io/kms/pkg/service"
)

// usedKeyAnnotation has the number of the key that encrypted. So Decrypt finds the key even if a fault made Encrypt
// answer another key_id. kube-apiserver stores the annotation, and requires a fully qualified domain name.
const usedKeyAnnotation = "key.kmsplugin.kms-health.dev"

// keyring has numbered keys, derived from the seed in a state directory, which has a file for each number. The newest
// key encrypts, all keys decrypt. Several plugins may share the directory, as the nodes of a cluster share a remote
// key. A key that another plugin added encrypts only after a restart or refresh.
type keyring struct {
	dir    string
	seed   string
	newest atomic.Int64
}

// openKeyring reads the state in dir, and creates it if it is missing.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	k := &keyring{dir: dir}
	// The seed is the target of a symbolic link, which is created atomically: if plugins start concurrently, only one
	// creates it.
	seed := filepath.Join(dir, "seed")
	err := os.Symlink(rand.Text(), seed)
	if err == nil || errors.Is(err, fs.ErrExist) {
		k.seed, err = os.Readlink(seed)
	}
	k.newest.Store(1)
	k.refresh()
	return k, err
}

// refresh selects the newest key in the directory for encryption.
func (k *keyring) refresh() {
	for k.exists(k.newest.Load() + 1) {
		k.newest.Add(1)
	}
}

func (k *keyring) path(number int64) string {
	return filepath.Join(k.dir, "key-"+strconv.FormatInt(number, 10))
}

func (k *keyring) exists(number int64) bool {
	_, err := os.Stat(k.path(number))
	return err == nil
}

// rotate adds a key, and returns its ID.
func (k *keyring) rotate() (string, error) {
	number := k.newest.Load() + 1
	for k.exists(number) {
		number++
	}
	if err := os.WriteFile(k.path(number), nil, 0o600); err != nil {
		return "", err
	}
	k.newest.Store(number)
	return k.current(), nil
}

// current returns the ID of the key that encrypts.
func (k *keyring) current() string {
	id, _ := k.key(k.newest.Load())
	return id
}

// key returns a key and its ID. The ID has a hash of the key, so two plugins report the same key_id only if they have
// the same key.
func (k *keyring) key(number int64) (id string, aead cipher.AEAD) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d", k.seed, number))
	block, err := aes.NewCipher(key[:])
	if err == nil {
		aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // cannot happen: the key has the size of AES-256
	}
	sum := sha256.Sum256(key[:])
	return fmt.Sprintf("key-%d-%x", number, sum[:4]), aead
}

// encrypt encrypts plaintext with the current key. The answer has the key_id alias, or if alias is nil, the key's ID.
func (k *keyring) encrypt(plaintext []byte, alias *string) *service.EncryptResponse {
	number := k.newest.Load()
	keyID, aead := k.key(number)
	if alias != nil {
		keyID = *alias
	}
	return &service.EncryptResponse{
		Ciphertext: aead.Seal(nil, nil, plaintext, []byte(keyID)), KeyID: keyID,
		Annotations: map[string][]byte{usedKeyAnnotation: strconv.AppendInt(nil, number, 10)},
	}
}

// decrypt decrypts a ciphertext of encrypt. If versions is not 0, only that many of the newest keys decrypt.
func (k *keyring) decrypt(ciphertext []byte, keyID, usedKey string, versions int) ([]byte, error) {
	number, err := strconv.ParseInt(usedKey, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("no key %q", usedKey)
	}
	if versions > 0 && number <= k.newest.Load()-int64(versions) {
		return nil, fmt.Errorf("the KMS no longer has key %q: it keeps %d", keyID, versions)
	}
	_, aead := k.key(number)
	plaintext, err := aead.Open(nil, nil, ciphertext, []byte(keyID))
	if err != nil {
		return nil, fmt.Errorf("ciphertext does not belong to key %q and key_id %q: %w", usedKey, keyID, err)
	}
	return plaintext, nil
}
