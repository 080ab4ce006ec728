package kmsplugin

import (
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

func TestRotationChangesTheKeyIDAndOldDataStaysReadable(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	c := dial(t, p)
	first := p.KeyID()
	old := c.encrypt(t, "old")

	second, err := p.Rotate()
	if err != nil {
		t.Fatal(err)
	}
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
	id, err := before.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}

	after := start(t, Options{StateDir: dir})
	c = dial(t, after)
	if after.KeyID() != id {
		t.Errorf("key %s after the restart, %s before", after.KeyID(), id)
	}
	mustDecrypt(t, c, old, "old")
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
