package encryptionconfig

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

const anotherKind = "has another apiVersion and kind than apiserver.config.k8s.io/v1, EncryptionConfiguration"

func TestGarbageIsRejectedWithTheReason(t *testing.T) {
	resources := entryOf("secrets", v2("1_secrets", sock1))
	for name, tt := range map[string]struct{ file, want string }{
		"empty":            {"", anotherKind},
		"blank":            {" \n\n", anotherKind},
		"comments":         {"# nothing\n", anotherKind},
		"null":             {"null", anotherKind},
		"a scalar":         {"hello", "is not a mapping"},
		"a list":           {"- 1\n", "is not a mapping"},
		"binary":           {"\x7fELF\x02\x01", "is neither YAML nor JSON"},
		"not UTF-8":        {"a: \xff\xfe\n", "is neither YAML nor JSON"},
		"half a file":      {head + resources[:20], "is neither YAML nor JSON"},
		"half a JSON file": {`{"kind": "EncryptionConfiguration", "resou`, "is neither YAML nor JSON"},
		"no kind":          {"resources:\n" + resources, anotherKind},
		"wrong kind":       {strings.Replace(head, "EncryptionC", "AdmissionC", 1) + resources, anotherKind},
		"wrong version":    {strings.Replace(head, "/v1", "/v2", 1) + resources, anotherKind},
		"legacy kind in the group": {strings.Replace(head, "EncryptionConfiguration", "EncryptionConfig", 1) + resources,
			anotherKind},
		"kind in the legacy version": {strings.Replace(head, "apiserver.config.k8s.io/v1", "v1", 1) + resources,
			anotherKind},
		"no resources":      {head, "has no resources"},
		"empty resources":   {head + "  []\n", "has no resources"},
		"resources no list": {head + "  secrets: 1\n", "has a value of the wrong type in resources"},
		"name a number": {head + entryOf("secrets", "{kms: {name: 12345}}"),
			"has a value of the wrong type in resources.providers.name"},
		"version a number": {strings.Replace(head, "apiserver.config.k8s.io/v1", "1", 1) + resources,
			"has a value of the wrong type in apiVersion"},
		"timeout a number": {head + entryOf("secrets", "{kms: {timeout: 12345}}"),
			"has a value of the wrong type in resources.providers.timeout"},
		"aliases that grow": {bomb(), "is neither YAML nor JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse([]byte(tt.file))
			if want := "the EncryptionConfiguration " + tt.want; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			if len(c.Ignored) > 0 || c.Plugins != nil {
				t.Errorf("with an error: %+v", c)
			}
		})
	}
}

// bomb returns a file whose aliases expand to ten billion scalars.
func bomb() string {
	b := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		b += fmt.Sprintf("a%d: &a%[1]d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return b
}

// kube-apiserver accepts this kind "due to a docs bug" (k8s.io/apiserver/pkg/apis/apiserver/v1).
func TestLegacyKindIsRead(t *testing.T) {
	const legacy = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n"
	got, err := Parse([]byte(legacy + entryOf("secrets", v2("2_secrets", sock2))))
	if diff := cmp.Diff([]v1alpha1.Plugin{writer("2", sock2)}, got.Plugins); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// JSON allows surrogate pairs as escapes, YAML does not.
func TestJSONIsReadAsJSON(t *testing.T) {
	c, err := Parse([]byte(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", ` +
		`"resources": [{"providers": [{"kms": {}}]}], "note": "\ud83d\ude00"}`))
	if err != nil || len(c.Ignored) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// allowed matches the errors that contain nothing from a file.
var allowed = regexp.MustCompile(`^the EncryptionConfiguration (` +
	`is not a mapping|has no resources|is neither YAML nor JSON` +
	`|has another apiVersion and kind than apiserver\.config\.k8s\.io/v1, EncryptionConfiguration` +
	`|has a value of the wrong type in ` +
	`(apiVersion|kind|resources(\.(resources|providers(\.(apiVersion|name|endpoint|timeout))?))?)` +
	`)$`)

// key is key material. No part of it occurs elsewhere in the test data.
const key = "UVdFUlRZVUlPUEFTREZHSEpLTFpYQ1ZCTk0="

// leaks reports whether a text contains a part of the key.
func leaks(text string) bool {
	for i := range len(key) - 4 {
		if strings.Contains(text, key[i:i+5]) {
			return true
		}
	}
	return false
}

// local is a file whose local keys come before and after a plugin.
const local = head + `- resources: [secrets]
  providers:
  - aescbc:
      keys:
      - name: "1"
        secret: ` + key + `
  - kms: {apiVersion: v2, name: 2_secrets, endpoint: "unix:///run/kms-2.sock", timeout: 3s}
  - kms: {name: old, endpoint: unix:///run/kms.sock}
  - secretbox: {keys: [{name: "3", secret: "` + key + `"}]}
  - identity: {}
`

func TestKeyMaterialIsInNoErrorOfABrokenFile(t *testing.T) {
	check := func(file string) {
		t.Helper()
		c, err := Parse([]byte(file))
		if err != nil && (!allowed.MatchString(err.Error()) || leaks(err.Error())) {
			t.Errorf("%v, of\n%s", err, file)
		}
		if leaks(fmt.Sprintf("%+v", c)) {
			t.Errorf("%+v, of\n%s", c, file)
		}
	}
	if c, err := Parse([]byte(local)); err != nil || len(c.Plugins) != 1 || len(c.Ignored) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	for i := range local {
		check(local[:i])
		check(local[i:])
		check(local[:i] + local[i+1:])
		for _, s := range []string{"\t", "\n", "*", "!!int ", "\"", "{", "}", ": ", "- ", "<<: ", "\xff"} {
			check(local[:i] + s + local[i:])
		}
	}
	for _, file := range []string{
		key,
		"- " + key,
		"? {" + key + ": 1}\n: 1\n",
		"a: *" + key[:30],
		"a: !" + key[:30] + " b",
		"a: !!int " + key,
		"a: " + key + ": " + key,
		`"` + key,
		`{"` + key + `": ` + key + `}`,
		"apiVersion: " + key + "\nkind: " + key,
		head + "  " + key,
		head + "- " + key,
		head + "- resources: " + key,
		head + "- providers: " + key,
		head + "- providers: [" + key + "]",
		head + "- providers: [{kms: " + key + "}]",
		head + "- providers: [{kms: {apiVersion: " + key + "}}]",
		head + "- providers: [{kms: {apiVersion: v2, timeout: " + key + "}}]",
		head + "- providers: [{kms: {apiVersion: v2, endpoint: " + key + "}}]",
		head + "- providers: [{kms: {apiVersion: v2, endpoint: 'unix:///x', name: 'x\n  - secret: " + key + "'}}]",
		head + "- {resources: ['x\n  - secret: " + key + "'], providers: [{kms: {}}]}",
	} {
		check(file)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(local))
	f.Add([]byte(head + entryOf("secrets", v2("2_secrets", sock2), v2("1_secrets", sock1))))
	f.Add([]byte(head + entryOf("*.*", "{kms: {apiVersion: v2, name: \"\\u0085\", "+
		"endpoint: \"unix:///%00\\u2028\\U000E0001/kms-a.sock\"}}")))
	f.Add([]byte(`{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1",` +
		`"resources":[{"providers":[{"kms":{"name":"a"}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			if !allowed.MatchString(err.Error()) {
				t.Fatalf("%q", err)
			}
			return
		}
		configured(t, c.Plugins)
		for i := 1; i < len(c.Plugins); i++ {
			if c.Plugins[i-1].Role == v1alpha1.RoleRead && c.Plugins[i].Role == v1alpha1.RoleWrite {
				t.Fatalf("a writer after a reader: %+v", c.Plugins)
			}
		}
		for _, i := range c.Ignored {
			if len(i) > 512 || strings.ContainsFunc(i, unicode.IsControl) {
				t.Fatalf("%q", i)
			}
		}
	})
}
