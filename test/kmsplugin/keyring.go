package kmsplugin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Files of a state directory. Each key follows from the seed and its number.
const (
	seedFile   = "seed"
	newestFile = "newest"
	seedSize   = 32
)

// key is one key. Its ID holds a hash of the material, so that two plugins report the same
// key_id only when they hold the same key.
type key struct {
	id       string
	material []byte
}

// keyring is the keys of a state directory. The newest one that it has read encrypts, all
// decrypt. Several plugins may share the directory, as the nodes of a cluster share a remote
// key: a key that another one added encrypts only after reload, as on a node that has not
// seen a rotation.
type keyring struct {
	dir  string
	seed []byte

	mu     sync.Mutex
	newest int
}

// openKeyring reads the keys in dir, and makes the first where there are none.
func openKeyring(dir string) (*keyring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	seed, err := readSeed(filepath.Join(dir, seedFile))
	if err != nil {
		return nil, fmt.Errorf("read the seed of the keys: %w", err)
	}
	k := &keyring{dir: dir, seed: seed}
	if err := k.reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// readSeed makes the seed where there is none. Of several plugins that start at once, the
// first one's stays.
func readSeed(path string) ([]byte, error) {
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		made := make([]byte, seedSize)
		_, _ = rand.Read(made) // never fails
		temporary, err := writeTemporary(path, made)
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(temporary) }()
		if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return os.ReadFile(path)
	}
	if err == nil && len(seed) != seedSize {
		// Another seed in its place would make every Secret unreadable.
		err = fmt.Errorf("%s has %d bytes, not %d", path, len(seed), seedSize)
	}
	return seed, err
}

// writeTemporary writes a file beside path, complete and for its owner only.
func writeTemporary(path string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Sync(), f.Close())
}

// key returns the key of a number.
func (k *keyring) key(number int) key {
	mac := hmac.New(sha256.New, k.seed)
	_, _ = fmt.Fprint(mac, number) // a hash never fails
	material := mac.Sum(nil)
	sum := sha256.Sum256(material)
	return key{id: fmt.Sprintf("key-%d-%s", number, hex.EncodeToString(sum[:4])), material: material}
}

// find returns the key of an ID.
func (k *keyring) find(id string) (found key, ok bool) {
	var number int
	if _, err := fmt.Sscanf(id, "key-%d-", &number); err != nil {
		return key{}, false
	}
	found = k.key(number)
	return found, found.id == id
}

// current returns the ID of the key that encrypts.
func (k *keyring) current() string { return k.key(k.size()).id }

func (k *keyring) size() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest
}

// rotate adds a key to those on disk, and returns its ID. A key encrypts only when it is on disk.
func (k *keyring) rotate() (string, error) {
	newest, err := k.read()
	if err != nil {
		return "", err
	}
	path := filepath.Join(k.dir, newestFile)
	temporary, err := writeTemporary(path, []byte(strconv.Itoa(newest+1)))
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return "", fmt.Errorf("store the keys: %w", err)
	}
	if err := k.reload(); err != nil {
		return "", err
	}
	return k.current(), nil
}

// reload takes up the keys as they lie on disk.
func (k *keyring) reload() error {
	newest, err := k.read()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest = newest
	return nil
}

// read returns the number of the newest key on disk.
func (k *keyring) read() (int, error) {
	text, err := os.ReadFile(filepath.Join(k.dir, newestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the keys: %w", err)
	}
	newest, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("read the keys: %s: %w", newestFile, err)
	}
	return newest, nil
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
	current := k.key(k.size())
	aead, err := newAEAD(current)
	if err != nil {
		return sealed{}, err
	}
	keyID := current.id
	if alias != nil {
		keyID = *alias
	}
	return sealed{aead.Seal(nil, nil, plaintext, []byte(keyID)), keyID, current.id}, nil
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
	block, err := aes.NewCipher(k.material)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", k.id, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
