package kmsplugin

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	kmsapi "k8s.io/kms/apis/v2"
)

func mustDecrypt(t *testing.T, c caller, e *kmsapi.EncryptResponse, want string) {
	t.Helper()
	if plaintext, err := c.decrypt(t, e); err != nil || plaintext != want {
		t.Fatalf("Decrypt = %q, %v; want %q", plaintext, err, want)
	}
}

func mustRotate(t *testing.T, p *Plugin) string {
	t.Helper()
	id, err := p.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRotationChangesTheKeyIDAndOldDataStaysReadable(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	c := dial(t, p)
	first := p.KeyID()
	old := c.encrypt(t, "old")

	second := mustRotate(t, p)
	if second == first || p.KeyID() != second {
		t.Fatalf("key %s before, Rotate = %s, %s after", first, second, p.KeyID())
	}
	c.mustBeHealthy(t, p)
	if fresh := c.encrypt(t, "fresh"); old.KeyId != first || fresh.KeyId != second {
		t.Fatalf("key_id %s before and %s after, want %s and %s", old.KeyId, fresh.KeyId, first, second)
	}
	mustDecrypt(t, c, old, "old")
}

func TestARestartKeepsTheKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := start(t, Options{StateDir: dir})
	c := dial(t, before)
	old := c.encrypt(t, "old")
	aliased := func() *kmsapi.EncryptResponse {
		before.mustSet(t, Fault{Name: FaultKeyID, Args: []string{"alias"}})
		return c.encrypt(t, "aliased")
	}()
	id := mustRotate(t, before)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}

	after := start(t, Options{StateDir: dir})
	c = dial(t, after)
	if after.KeyID() != id {
		t.Errorf("key %s after the restart, %s before", after.KeyID(), id)
	}
	mustDecrypt(t, c, old, "old")
	mustDecrypt(t, c, aliased, "aliased")
}

func TestPluginsThatShareADirectoryReadEachOthersData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := start(t, Options{StateDir: dir}), start(t, Options{StateDir: dir})
	if a.KeyID() != b.KeyID() {
		t.Fatalf("keys %s and %s, want the same", a.KeyID(), b.KeyID())
	}
	mustRotate(t, a)
	if a.KeyID() == b.KeyID() {
		t.Error("a rotation reached the other plugin by itself")
	}
	mustDecrypt(t, dial(t, b), dial(t, a).encrypt(t, "from a"), "from a")
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	if a.KeyID() != b.KeyID() {
		t.Errorf("keys %s and %s after a reload, want the same", a.KeyID(), b.KeyID())
	}
	mustRotate(t, b)
	mustRotate(t, a)
	if n := a.State().Keys; n != 4 {
		t.Errorf("%d keys, want 4: one rotation overwrote another", n)
	}
}

func TestPluginsOfTheirOwnHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	a, b := start(t, Options{}), start(t, Options{})
	if a.KeyID() == b.KeyID() {
		t.Errorf("two plugins, one key_id: %s", a.KeyID())
	}
	_, err := dial(t, b).decrypt(t, dial(t, a).encrypt(t, "secret"))
	mustFail(t, err, codes.InvalidArgument, a.KeyID())
}

func TestDecryptWantsBackAllThatEncryptAnswered(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	c := dial(t, p)
	for name, spoil := range map[string]func(e *kmsapi.EncryptResponse){
		"ciphertext cut":     func(e *kmsapi.EncryptResponse) { e.Ciphertext = e.Ciphertext[:5] },
		"ciphertext flipped": func(e *kmsapi.EncryptResponse) { e.Ciphertext[20] ^= 1 },
		"other key_id":       func(e *kmsapi.EncryptResponse) { e.KeyId += "x" },
		"no key_id":          func(e *kmsapi.EncryptResponse) { e.KeyId = "" },
		"no annotations":     func(e *kmsapi.EncryptResponse) { e.Annotations = nil },
		"other annotation":   func(e *kmsapi.EncryptResponse) { e.Annotations[usedKeyAnnotation] = []byte("x") },
	} {
		encrypted := c.encrypt(t, "secret")
		spoil(encrypted)
		if _, err := c.decrypt(t, encrypted); err == nil {
			t.Errorf("%s: was decrypted", name)
		} else {
			mustFail(t, err, codes.InvalidArgument, "")
		}
	}
}

func TestKeysLieOnDiskForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	// A crash between two steps left a temporary file that all can read.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, keysFile+".tmp"), []byte("half a fi"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, Options{StateDir: dir})
	for range 2 {
		info, err := os.Stat(filepath.Join(dir, keysFile))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("keys: %v, %v; want mode 0600", info, err)
		}
		mustRotate(t, p)
	}
	names, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil || len(names) != 2 {
		t.Errorf("in the directory: %v, %v; want %s and %s only", names, err, keysFile, lockFile)
	}
}

func TestKeysThatCannotBeReadAreNotReplaced(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty file": "",
		"no keys":    "[]",
		"half":       `[{"id": "key-1", "mat`,
		"short key":  `[{"id": "key-1", "material": "AAAA"}]`,
		"no id":      `[{"material": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, keysFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := Start(Options{Endpoint: "@kmsplugin-test-unreadable", StateDir: dir}); err == nil {
			t.Errorf("%s: a plugin started", name)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%s: the file is now %q, %v", name, got, err)
		}
	}
}

func TestAKeyThatCannotBeStoredIsNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, Options{StateDir: dir})
	id := p.KeyID()
	// A directory in the way of the temporary file: storing fails, for root too.
	if err := os.Mkdir(filepath.Join(dir, keysFile+".tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Rotate(); err == nil {
		t.Error("Rotate succeeded")
	}
	if p.KeyID() != id || p.State().Keys != 1 {
		t.Errorf("key %s of %d, want %s alone", p.KeyID(), p.State().Keys, id)
	}
	var onDisk []key
	data, err := os.ReadFile(filepath.Join(dir, keysFile))
	if err == nil {
		err = json.Unmarshal(data, &onDisk)
	}
	if err != nil || len(onDisk) != 1 {
		t.Errorf("on disk: %d keys, %v", len(onDisk), err)
	}
}
