package kmsplugin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	keysFile = "keys.json"
	lockFile = "lock"
	// keySize makes it AES-256.
	keySize = 32
)

// key is one key as it lies on disk. Its ID holds a hash of the material, so
// that two plugins report the same key_id only when they hold the same key.
type key struct {
	ID       string `json:"id"`
	Material []byte `json:"material"`
}

func newKey(ordinal int) (key, error) {
	material := make([]byte, keySize)
	if _, err := rand.Read(material); err != nil {
		return key{}, fmt.Errorf("making a key: %w", err)
	}
	sum := sha256.Sum256(material)
	return key{ID: fmt.Sprintf("key-%d-%s", ordinal, hex.EncodeToString(sum[:4])), Material: material}, nil
}

// keyring is the keys of a state directory. The last one encrypts, all
// decrypt. Several plugins may share the directory, as the nodes of a cluster
// share a remote key: a key that another one added is found when something
// must be decrypted with it, but encrypts only after reload, as on a node that
// has not seen a rotation.
type keyring struct {
	dir string

	mu   sync.Mutex
	keys []key
}

// openKeyring reads the keys in dir, and makes the first where there are none.
// A file that cannot be understood is an error: a new key in its place would
// make every Secret unreadable.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	k := &keyring{dir: dir}
	unlock, err := k.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = k.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = k.add()
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// current returns the ID of the key that encrypts.
func (k *keyring) current() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[len(k.keys)-1].ID
}

func (k *keyring) size() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}

// rotate adds a key to those on disk, and returns its ID.
func (k *keyring) rotate() (string, error) {
	unlock, err := k.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return "", err
	}
	if err := k.add(); err != nil {
		return "", err
	}
	return k.keys[len(k.keys)-1].ID, nil
}

// reload takes up the keys as they lie on disk.
func (k *keyring) reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.load()
}

// sealed is what decrypt needs to find the plaintext again.
type sealed struct {
	ciphertext []byte
	// keyID is what the ciphertext is bound to, and usedKey the key's own ID.
	// They differ only when Encrypt is to answer with another key_id.
	keyID, usedKey string
}

// encrypt seals plaintext with the current key, under the key_id alias or, if
// that is nil, the key's own.
func (k *keyring) encrypt(plaintext []byte, alias *string) (sealed, error) {
	k.mu.Lock()
	current := k.keys[len(k.keys)-1]
	k.mu.Unlock()
	aead, err := newAEAD(current)
	if err != nil {
		return sealed{}, err
	}
	keyID := current.ID
	if alias != nil {
		keyID = *alias
	}
	return sealed{aead.Seal(nil, nil, plaintext, []byte(keyID)), keyID, current.ID}, nil
}

// decrypt opens what encrypt sealed.
func (k *keyring) decrypt(s sealed) ([]byte, error) {
	used, ok := k.find(s.usedKey)
	if !ok {
		return nil, fmt.Errorf("no key %q", s.usedKey)
	}
	aead, err := newAEAD(used)
	if err != nil {
		return nil, err
	}
	plaintext, err := aead.Open(nil, nil, s.ciphertext, []byte(s.keyID))
	if err != nil {
		return nil, fmt.Errorf("ciphertext does not belong to key %q and key_id %q: %w", s.usedKey, s.keyID, err)
	}
	return plaintext, nil
}

func newAEAD(k key) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.Material)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", k.ID, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// find looks for a key, at last on disk, where a plugin that shares the
// directory may have put it. It does not change which key encrypts.
func (k *keyring) find(id string) (key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, candidate := range k.keys {
		if candidate.ID == id {
			return candidate, true
		}
	}
	onDisk, err := readKeys(k.dir)
	if err != nil {
		return key{}, false
	}
	for _, candidate := range onDisk {
		if candidate.ID == id {
			return candidate, true
		}
	}
	return key{}, false
}

// load replaces the keys by those on disk. The caller holds mu, or is alone.
func (k *keyring) load() error {
	keys, err := readKeys(k.dir)
	if err != nil {
		return err
	}
	k.keys = keys
	return nil
}

// add makes a key, stores it, and only then lets it encrypt: a key that is
// not on disk must not have been used. The caller holds mu, or is alone.
func (k *keyring) add() error {
	added, err := newKey(len(k.keys) + 1)
	if err != nil {
		return err
	}
	keys := slices.Concat(k.keys, []key{added})
	if err := writeKeys(k.dir, keys); err != nil {
		return err
	}
	k.keys = keys
	return nil
}

// lock keeps other processes from changing the keys at the same time.
func (k *keyring) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(k.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func readKeys(dir string) ([]key, error) {
	path := filepath.Join(dir, keysFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	var keys []key
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("reading the keys in %s: %w", path, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("reading the keys in %s: there are none", path)
	}
	for i, k := range keys {
		if k.ID == "" || len(k.Material) != keySize {
			return nil, fmt.Errorf("reading the keys in %s: key %d (%q) has no id, or not %d bytes", path, i, k.ID, keySize)
		}
	}
	return keys, nil
}

// writeKeys replaces the file as a whole, so that a crash leaves the old keys
// or the new. The temporary file's name is fixed: a crash leaves one at most,
// and the caller holds the lock.
func writeKeys(dir string, keys []key) error {
	data, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return fmt.Errorf("storing the keys: %w", err)
	}
	path := filepath.Join(dir, keysFile)
	if err := writeSynced(path+".tmp", data); err != nil {
		return fmt.Errorf("storing the keys: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("storing the keys: %w", err)
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// The file may be a leftover with another mode.
	err = f.Chmod(0o600)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
