package kmsplugin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"k8s.io/kms/pkg/service"
)

// usedKeyAnnotation carries the key that encrypted from Encrypt to Decrypt: it differs from
// the key_id when Encrypt is to answer with another one. kube-apiserver wants a fully
// qualified domain name, and stores it.
const usedKeyAnnotation = "key.kmsplugin.kms-health.dev"

// keyring is the keys of a state directory. Each key follows from the seed and its number.
// The newest one encrypts, all decrypt. Several plugins may share the directory, as the nodes
// of a cluster share a remote key; a key that another one added encrypts after a restart.
type keyring struct {
	dir    string
	seed   atomic.Pointer[[]byte]
	newest atomic.Int64
}

// openKeyring reads the keys in dir, and makes the first where there are none.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	k := &keyring{dir: dir}
	if err := k.add(0); err != nil {
		return nil, err
	}
	return k, nil
}

// rotate adds a key, and returns its ID. It encrypts only when it is on disk.
func (k *keyring) rotate() (string, error) {
	err := k.add(1)
	return k.current(), err
}

// add reads the keys on disk, adds n, and stores them. Plugins that share them do so one
// after another.
func (k *keyring) add(n int64) error {
	dir, err := os.Open(k.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", k.dir, err)
	}
	stored := struct {
		Seed   []byte
		Newest int64
	}{make([]byte, sha256.Size), 1}
	path := filepath.Join(k.dir, "keys")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, _ = rand.Read(stored.Seed) // never fails
	} else if err = errors.Join(err, json.Unmarshal(text, &stored)); err != nil {
		return fmt.Errorf("keys in %s: %w", k.dir, err)
	}
	stored.Newest += n
	if text, err = json.Marshal(stored); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	k.seed.Store(&stored.Seed)
	k.newest.Store(stored.Newest)
	return nil
}

// key returns the key of a number. Its ID holds a hash of the material, so that two plugins
// report the same key_id only when they hold the same key.
func (k *keyring) key(number int64) (id string, material []byte) {
	mac := hmac.New(sha256.New, *k.seed.Load())
	_, _ = fmt.Fprint(mac, number) // a hash never fails
	material = mac.Sum(nil)
	sum := sha256.Sum256(material)
	return fmt.Sprintf("key-%d-%s", number, hex.EncodeToString(sum[:4])), material
}

// current returns the ID of the key that encrypts.
func (k *keyring) current() string {
	id, _ := k.key(k.newest.Load())
	return id
}

// encrypt seals plaintext with the current key, under the key_id alias or, if
// that is nil, the key's own.
func (k *keyring) encrypt(plaintext []byte, alias *string) (*service.EncryptResponse, error) {
	id, material := k.key(k.newest.Load())
	aead, err := newAEAD(material)
	if err != nil {
		return nil, err
	}
	keyID := id
	if alias != nil {
		keyID = *alias
	}
	return &service.EncryptResponse{
		Ciphertext: aead.Seal(nil, nil, plaintext, []byte(keyID)), KeyID: keyID,
		Annotations: map[string][]byte{usedKeyAnnotation: []byte(id)},
	}, nil
}

// decrypt opens what encrypt sealed.
func (k *keyring) decrypt(ciphertext []byte, keyID, usedKey string) ([]byte, error) {
	var number int64
	_, err := fmt.Sscanf(usedKey, "key-%d-", &number)
	id, material := k.key(number)
	if err != nil || id != usedKey {
		return nil, fmt.Errorf("no key %q", usedKey)
	}
	aead, err := newAEAD(material)
	if err != nil {
		return nil, err
	}
	plaintext, err := aead.Open(nil, nil, ciphertext, []byte(keyID))
	if err != nil {
		return nil, fmt.Errorf("ciphertext does not belong to key %q and key_id %q: %w", usedKey, keyID, err)
	}
	return plaintext, nil
}

func newAEAD(material []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(material)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
