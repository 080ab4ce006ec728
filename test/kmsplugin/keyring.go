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

// usedKeyAnnotation carries the number of the key that encrypted from Encrypt to Decrypt, also when
// Encrypt is to answer with another key_id. kube-apiserver wants a fully qualified domain name, and
// stores it.
const usedKeyAnnotation = "key.kmsplugin.kms-health.dev"

// keyring is numbered keys, all made from the seed in a state directory, which has a file for each number.
// The newest one encrypts, all decrypt. Several plugins may share the directory, as the nodes of a cluster
// share a remote key; a key that another one added encrypts after a restart, or refresh.
type keyring struct {
	dir    string
	seed   string
	newest atomic.Int64
}

// openKeyring reads the state in dir, and makes it where there is none.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	k := &keyring{dir: dir}
	// The seed is the target of a link, which is made in one step: of plugins that start at once, one does.
	seed := filepath.Join(dir, "seed")
	err := os.Symlink(rand.Text(), seed)
	if err == nil || errors.Is(err, fs.ErrExist) {
		k.seed, err = os.Readlink(seed)
	}
	k.newest.Store(1)
	k.refresh()
	return k, err
}

// refresh makes the newest key of the directory encrypt.
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

// key has an ID that holds a hash of the key, so that two plugins report the same key_id only when
// they hold the same key.
func (k *keyring) key(number int64) (id string, aead cipher.AEAD) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d", k.seed, number))
	block, err := aes.NewCipher(key[:])
	if err == nil {
		aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the size is AES-256's
	}
	sum := sha256.Sum256(key[:])
	return fmt.Sprintf("key-%d-%x", number, sum[:4]), aead
}

// encrypt seals plaintext with the current key, under the key_id alias or, if
// that is nil, the key's own.
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

// decrypt opens what encrypt sealed, with one of the newest keys if versions is not 0.
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
