package probe

import (
	"strings"
	"testing"

	kmsapi "k8s.io/kms/apis/v2"
)

func TestVerdictFollowsKubeAPIServersRules(t *testing.T) {
	longest := strings.Repeat("k", 1024)
	for name, tt := range map[string]struct {
		healthz, version, keyID, seen string
		wantKey, wantSeen, wantErr    string
	}{
		"good":                                  {"ok", "v2", "k", "", "k", "v2", ""},
		"beta":                                  {"ok", "v2beta1", "k", "", "k", "v2beta1", ""},
		"good again":                            {"ok", "v2", "k", "v2", "k", "v2", ""},
		"longest key":                           {"ok", "v2", longest, "", longest, "v2", ""},
		"healthz":                               {"sealed", "v2", "k", "", "k", "v2", `healthz is "sealed", not "ok"`},
		"healthz of another case":               {"OK", "v2", "k", "", "k", "v2", `healthz is "OK", not "ok"`},
		"healthz empty":                         {"", "v2", "k", "", "k", "v2", `healthz is "", not "ok"`},
		"version":                               {"ok", "v1", "k", "", "k", "", `version is "v1", not "v2" or "v2beta1"`},
		"version empty":                         {"ok", "", "k", "v2", "k", "v2", `version is "", not "v2" or "v2beta1"`},
		"version changed":                       {"ok", "v2beta1", "k", "v2", "k", "v2", `version changed from "v2" to "v2beta1", and kube-apiserver keeps the first one until it is restarted: restart it when the plugin works, and then this reporter`},
		"version of an unhealthy answer counts": {"no", "v2beta1", "k", "", "k", "v2beta1", `healthz is "no", not "ok"`},
		"key empty":                             {"ok", "v2", "", "", "", "v2", "key_id is empty (Node's proto-loader calls the field keyId, and drops key_id)"},
		"key empty while it is unhealthy":       {"unhealthy", "v2", "", "", "", "v2", `healthz is "unhealthy", not "ok"; key_id is empty`},
		"key too long":                          {"ok", "v2", longest + "k", "", "", "v2", "key_id is 1025 bytes, the bound is 1024"},
		"all at once":                           {"no", "v3", "", "", "", "", `healthz is "no", not "ok"; version is "v3", not "v2" or "v2beta1"; key_id is empty; the answer may be another message than StatusResponse`},
	} {
		t.Run(name, func(t *testing.T) {
			key, seen, v := judge(&kmsapi.StatusResponse{Healthz: tt.healthz, Version: tt.version, KeyId: tt.keyID}, tt.seen)
			text := ""
			if v != nil {
				text = v.detail
			}
			if key != tt.wantKey || seen != tt.wantSeen || text != tt.wantErr {
				t.Errorf("key %q, seen %q, %q", key, seen, text)
			}
		})
	}
}

func TestAnnotationsFollowKubeAPIServersRules(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string][]byte
		wantErr     string
	}{
		"none":           {nil, ""},
		"qualified":      {map[string][]byte{"key.kms.example.com": []byte("v")}, ""},
		"no domain name": {map[string][]byte{"key": nil}, "not a fully qualified domain name"},
		"just fits":      {map[string][]byte{"a.b": make([]byte, 32<<10-3)}, ""},
		"too large":      {map[string][]byte{"a.b": make([]byte, 32<<10-2)}, "annotations of 32769 bytes, the bound is 32768"},
	} {
		broken := checkSealed(&kmsapi.EncryptResponse{Ciphertext: []byte("c"), KeyId: strings.Repeat("k", maxKeyID), Annotations: tt.annotations})
		if (broken == "") != (tt.wantErr == "") || !strings.Contains(broken, tt.wantErr) {
			t.Errorf("%s: %s", name, broken)
		}
	}
}

// kube-apiserver takes 1 to 1024 bytes, and a key_id of 1 to 1024.
func TestSizesOfAnAnswerToEncrypt(t *testing.T) {
	for size, want := range map[int]bool{0: false, 1: true, 1024: true, 1025: false} {
		text := strings.Repeat("c", size)
		for what, answer := range map[string]*kmsapi.EncryptResponse{
			"ciphertext": {Ciphertext: []byte(text), KeyId: "k"},
			"key_id":     {Ciphertext: []byte("c"), KeyId: text},
		} {
			if broken := checkSealed(answer); (broken == "") != want {
				t.Errorf("a %s of %d bytes: %q", what, size, broken)
			}
		}
	}
}
