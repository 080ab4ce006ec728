package encryptionconfig

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// file is the part of an EncryptionConfiguration that is read: k8s.io/apiserver/pkg/apis/apiserver/v1 without the
// fields for keys. (That package would also link tracing and all that it needs.)
type file struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Resources  []entry `json:"resources"`
}

// kinds are those that kube-apiserver decodes as one (addKnownTypes in k8s.io/apiserver/pkg/apis/apiserver/v1).
var kinds = []v1alpha1.TypeMeta{
	{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"},
	{APIVersion: "v1", Kind: "EncryptionConfig"},
}

// entry is a list of resources and how they are encrypted: the first provider encrypts, and all decrypt.
type entry struct {
	Resources []string   `json:"resources"`
	Providers []provider `json:"providers"`
}

// provider has one key, its kind. Of another kind than kms no field is read: it may have local keys.
type provider map[string]*kms

func (p provider) kms() *kms { return p["kms"] }

func (p provider) isV2() bool { return p.kms() != nil && p.kms().APIVersion == "v2" }

// writer describes how a provider encrypts as the first of its entry.
func (p provider) writer() string {
	switch {
	case p.isV2():
		if address, err := v1alpha1.SocketAddress(p.kms().Endpoint); err == nil {
			return "the plugin at " + v1alpha1.CleanSocket(address)
		}
		return "a KMS v2 plugin that cannot be probed"
	case p.kms() != nil:
		return "a KMS v1 plugin"
	}
	for _, kind := range []string{"aescbc", "aesgcm", "secretbox", "identity"} {
		if p[kind] != nil {
			return kind
		}
	}
	return "an unknown provider"
}

// mixed lists the first provider of each entry that names a KMS v2 plugin. It is empty if these providers are all the
// same, or if none of them is a KMS v2 plugin.
func (f *file) mixed() string {
	var text []string
	writers, plugins := sets.New[string](), false
	for _, e := range f.Resources {
		if slices.ContainsFunc(e.Providers, provider.isV2) {
			first := e.Providers[0]
			writers.Insert(first.writer())
			plugins = plugins || first.isV2()
			text = append(text, shownFirst(e.Resources)+" by "+first.writer())
		}
	}
	if len(writers) < 2 || !plugins {
		return ""
	}
	return "encrypts by several providers: " + strings.Join(atMost(maxEntries, text), ", ")
}

type kms struct {
	APIVersion string `json:"apiVersion"`
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint"`
	Timeout    string `json:"timeout"`
}

// decode reads a file as kube-apiserver does: JSON as JSON, anything else as YAML. Only the first YAML document
// counts. Names of fields are case-sensitive, unknown fields are skipped, and the last of duplicate fields counts. A
// parser's errors quote the file, so the errors here consist of fixed text and names of fields.
func decode(data []byte) (*file, error) {
	if !stdjson.Valid(data) {
		converted, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil, errors.New("is neither YAML nor JSON")
		}
		data = converted
	}
	f := &file{}
	err, wrong := json.Unmarshal(data, f), new(stdjson.UnmarshalTypeError)
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return nil, fmt.Errorf("has a value of the wrong type in %s", wrong.Field)
	case err != nil:
		return nil, errors.New("is not a mapping")
	case !slices.Contains(kinds, v1alpha1.TypeMeta{APIVersion: f.APIVersion, Kind: f.Kind}):
		return nil, errors.New("has another apiVersion and kind than apiserver.config.k8s.io/v1, EncryptionConfiguration")
	case len(f.Resources) == 0:
		return nil, errors.New("has no resources")
	}
	f.merge()
	return f, nil
}

// merge assigns a resource that several entries name to the first of them. It appends the providers of the others
// there, where they only decrypt, as kube-apiserver does (getTransformerOverridesAndKMSPluginProbes in
// k8s.io/apiserver/pkg/server/options/encryptionconfig).
func (f *file) merge() {
	first, all := map[schema.GroupResource]int{}, []entry{}
	for _, e := range f.Resources {
		before := map[int]bool{} // entries that name some of its resources
		rest := slices.DeleteFunc(slices.Clone(e.Resources), func(r string) bool {
			resource := schema.ParseGroupResource(r)
			at, named := first[resource]
			if named {
				before[at] = true
			} else {
				first[resource] = len(all)
			}
			return named
		})
		delete(before, len(all)) // itself
		for at := range before {
			all[at].Providers = append(all[at].Providers, e.Providers...)
		}
		if len(rest) > 0 || len(before) == 0 {
			all = append(all, entry{rest, e.Providers})
		}
	}
	f.Resources = all
}

// usesKMS reports whether a KMS plugin encrypts or decrypts a resource. The entries that name it count, else those
// for its group, else those for all groups (transformerFromOverrides in
// k8s.io/apiserver/pkg/server/options/encryptionconfig). The name of a resource of the core group may end in a dot.
func (f *file) usesKMS(resource schema.GroupResource) bool {
	for _, name := range []schema.GroupResource{
		resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"},
	} {
		named := slices.DeleteFunc(slices.Clone(f.Resources), func(e entry) bool {
			return !slices.ContainsFunc(e.Resources, func(r string) bool { return schema.ParseGroupResource(r) == name })
		})
		if len(named) > 0 {
			return slices.ContainsFunc(named, func(e entry) bool {
				return slices.ContainsFunc(e.Providers, func(p provider) bool { return p.kms() != nil })
			})
		}
	}
	return false
}

// Set is the set of plugins of an API server.
type Set struct {
	Known   bool   // whether Config is valid. If not, the last known set stays active
	Config  Config // without any plugin, KMS is off
	Problem string // why a Secret gives no set, without anything from it but the names of fields
}

// Read returns the plugin set in the Secret of an encryption config. A nil Secret does not exist, so it has no plugin,
// as a revision from before KMS was turned on. Pass nil for a revision only if the live Secret could be read.
func Read(secret *corev1.Secret, config v1alpha1.EncryptionConfig) Set {
	if secret == nil {
		return Set{Known: true, Config: Config{Plugins: []v1alpha1.Plugin{}}}
	}
	data, exists := secret.Data[config.Key]
	c, err := Parse(data)
	switch {
	case !exists:
		return Set{Problem: fmt.Sprintf("the Secret has no key %q", config.Key)}
	case err != nil:
		return Set{Problem: err.Error()}
	}
	return Set{Known: true, Config: c}
}
