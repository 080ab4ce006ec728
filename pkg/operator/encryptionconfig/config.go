// Package encryptionconfig reads which KMS plugins an API server's EncryptionConfiguration names, so that a reporter
// can probe them. It is pure.
//
// The file also contains local encryption keys. They are never decoded into a value, so no result can contain them.
// No error quotes the file, not even the position of a syntax error.
//
// Only what is needed is read, and the rest is tolerated: kube-apiserver rejects a file that it cannot use. A
// provider that cannot be probed does not hide the others; it is returned as ignored, with the reason.
package encryptionconfig

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// defaultTimeout is kube-apiserver's for a provider without a timeout: defaults.go of
// k8s.io/apiserver/pkg/apis/apiserver/v1. It counts also for one that is invalid, which kube-apiserver rejects.
const defaultTimeout = 3 * time.Second

// Config is what an EncryptionConfiguration contains about KMS plugins.
type Config struct {
	// Plugins are the KMS v2 plugins, one per socket: first those with the role Write, then the others, each in order of
	// appearance. There are at most v1alpha1.MaxPlugins. Never nil.
	Plugins []v1alpha1.Plugin
	// Ignored are the kms providers that cannot be probed, each as a text with its reason: plain and bounded, fit for a
	// log or a condition. A socket after the first v1alpha1.MaxPlugins is named by its first provider only.
	Ignored []string
	// Encrypted are the resources that kube-apiserver needs a KMS plugin for, v1 or v2. Only ConfigMaps and the
	// resources that have the reports are looked up. A pod that mounts an encrypted ConfigMap does not start while the
	// plugin is unhealthy.
	Encrypted []schema.GroupResource
	// Mixed lists which provider encrypts which resources, plain and bounded, if entries with a KMS v2 plugin have
	// different first providers. Empty: they do not, or none of these is a KMS v2 plugin.
	Mixed string
}

// Bounds on how many ignored providers, and entries of the file, a text names.
const maxIgnored, maxEntries = 5, 8

// IgnoredText lists ignored providers, each once, at most maxIgnored; it is empty if there are none.
func IgnoredText(all []string) string {
	return strings.Join(atMost(maxIgnored, slices.Compact(slices.Sorted(slices.Values(all)))), "; ")
}

// atMost returns the first texts and, if there are more, how many.
func atMost(most int, texts []string) []string {
	if more := len(texts) - most; more > 0 {
		return append(texts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return texts
}

// ConfigMaps is the resource of the core group.
var ConfigMaps = schema.GroupResource{Resource: "configmaps"}

// Why a provider is ignored.
const (
	reasonVersion  = "its apiVersion is not v2 (v1 is the default): only a KMS v2 plugin has a Status call"
	reasonEndpoint = "its endpoint " // followed by v1alpha1.SocketAddress's error
)

var reasonTooMany = fmt.Sprintf("there are %d plugins before it, and a reporter probes no more", v1alpha1.MaxPlugins)

// Parse reads an EncryptionConfiguration of apiserver.config.k8s.io/v1 (or an EncryptionConfig of v1, which is the
// same), YAML or JSON, of at most 1 MiB, which is what a Secret can hold.
//
// A plugin's role is Write if it is the first provider of any entry, else Read. Its timeout is the shortest of its
// providers, since kube-apiserver cannot use a provider that exceeds its own, within v1alpha1.MinTimeout and
// contract.MaxInterval. Its endpoint is rebuilt from the socket's address, so no other part of a URL is copied. See
// nameKeys for its keyID. An error contains nothing from the file but the names of fields.
func Parse(data []byte) (Config, error) {
	f, err := decode(data)
	if err != nil {
		return Config{}, fmt.Errorf("the EncryptionConfiguration %w", err)
	}
	sockets, ignored := collect(f.Resources)
	slices.SortStableFunc(sockets, func(a, b *socket) int { // Write comes first
		return -strings.Compare(string(a.plugin.Role), string(b.plugin.Role))
	})
	nameKeys(sockets)

	c := Config{Plugins: []v1alpha1.Plugin{}, Ignored: ignored, Mixed: f.mixed()}
	needed := []schema.GroupResource{ConfigMaps, contract.KMSHealths.GVR().GroupResource()}
	for _, r := range contract.Resources {
		needed = append(needed, r.GVR().GroupResource())
	}
	for _, r := range needed {
		if f.usesKMS(r) {
			c.Encrypted = append(c.Encrypted, r)
		}
	}
	for i, s := range sockets {
		if i < v1alpha1.MaxPlugins {
			c.Plugins = append(c.Plugins, s.plugin)
		} else {
			c.Ignored = append(c.Ignored, ignore(s.uses[0], reasonTooMany))
		}
	}
	return c, nil
}

// socket is an endpoint with all that the file contains about it.
type socket struct {
	address string // cleaned: two spellings of one endpoint are equal
	plugin  v1alpha1.Plugin
	uses    []use // at least one
}

// use is one kms provider, with the resource of its entry.
type use struct{ resource, provider string }

// ignore returns a text. From the file it quotes only the names of the provider and of its resource.
func ignore(u use, reason string) string {
	return fmt.Sprintf("provider %s of %s is not probed: %s", shown(u.provider), shown(u.resource), reason)
}

// presentable matches a name of the expected format. If a quote is missing in a file, a parsed "name" can be half of
// the file.
var presentable = regexp.MustCompile(`^[-A-Za-z0-9_.:*]{0,128}$`)

func shown(name string) string {
	if !presentable.MatchString(name) {
		return "(not shown)"
	}
	return name
}

// collect groups the KMS v2 providers by their sockets, in order of appearance, and lists the other kms providers
// with the reason why they are ignored.
func collect(entries []entry) (sockets []*socket, ignored []string) {
	for _, e := range entries {
		for i, p := range e.Providers {
			if p.kms() == nil {
				continue
			}
			u := use{e.resource(), p.kms().Name}
			address, timeout, why := p.kms().check()
			if why != "" {
				ignored = append(ignored, ignore(u, why))
				continue
			}
			at := slices.IndexFunc(sockets, func(s *socket) bool { return s.address == v1alpha1.CleanSocket(address) })
			if at < 0 {
				at = len(sockets)
				sockets = append(sockets, &socket{address: v1alpha1.CleanSocket(address),
					plugin: v1alpha1.Plugin{Endpoint: v1alpha1.Endpoint(address), Role: v1alpha1.RoleRead}})
			}
			s := sockets[at]
			s.uses = append(s.uses, u)
			s.plugin.Timeout.Duration = min(cmp.Or(s.plugin.Timeout.Duration, timeout), timeout)
			if i == 0 {
				s.plugin.Role = v1alpha1.RoleWrite
			}
		}
	}
	return sockets, ignored
}

// check returns the socket's address and the timeout of a provider, or why it cannot be probed.
func (k *kms) check() (address string, timeout time.Duration, why string) {
	address, err := v1alpha1.SocketAddress(k.Endpoint)
	switch {
	case k.APIVersion != "v2":
		why = reasonVersion
	case err != nil:
		why = reasonEndpoint + err.Error()
	}
	timeout, err = time.ParseDuration(k.Timeout)
	if err != nil || timeout <= 0 {
		timeout = defaultTimeout
	}
	return address, min(max(timeout, v1alpha1.MinTimeout), contract.MaxInterval), why
}

// nameKeys gives each socket the keyID of its strongest source: its file's name, kms-{keyID}.sock; a provider's name; a
// hash of its address, so that every plugin is probed: an unprobed one would look healthy.
//
// Each source is applied to all sockets before the next one is, and of several sockets the earlier one gets the keyID.
// A keyID that is invalid, or already another socket's, is skipped.
func nameKeys(sockets []*socket) {
	for _, s := range sockets { // the order in the file does not matter
		slices.SortStableFunc(s.uses, func(a, b use) int { return cmp.Compare(a.provider, b.provider) })
	}
	used := map[string]bool{}
	for _, source := range []func(*socket, use) string{
		func(s *socket, _ use) string { return contract.KeyIDOfSocket(s.address) },
		func(_ *socket, u use) string { return u.provider },
		func(s *socket, _ use) string { return "socket-" + contract.FileHash([]byte(s.address))[:10] },
	} {
		for _, s := range sockets {
			for _, u := range s.uses {
				if id := source(s, u); s.plugin.KeyID == "" && v1alpha1.ValidKeyID(id) && !used[id] {
					s.plugin.KeyID, used[id] = id, true
				}
			}
		}
	}
}

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

// entry is a list of resources and how they are encrypted: the first provider encrypts, and all decrypt. See split.
type entry struct {
	Resources []string   `json:"resources"`
	Providers []provider `json:"providers"`
}

// resource returns the only resource of an entry after split; empty: it has none.
func (e *entry) resource() string { return e.Resources[0] }

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
			text = append(text, shown(e.resource())+" by "+first.writer())
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
	f.split()
	return f, nil
}

// split makes one entry of each resource, with the providers of all entries that name it: the first of them encrypts,
// as in kube-apiserver (getTransformerOverridesAndKMSPluginProbes in
// k8s.io/apiserver/pkg/server/options/encryptionconfig). The name of a resource of the core group may end in a dot.
func (f *file) split() {
	var all []entry
	for _, e := range f.Resources {
		if len(e.Resources) == 0 {
			e.Resources = []string{""} // its plugins are probed all the same
		}
		for _, r := range e.Resources {
			at := slices.IndexFunc(all, func(a entry) bool {
				return schema.ParseGroupResource(a.resource()) == schema.ParseGroupResource(r)
			})
			if at < 0 {
				at, all = len(all), append(all, entry{Resources: []string{r}})
			}
			all[at].Providers = append(all[at].Providers, e.Providers...)
		}
	}
	f.Resources = all
}

// usesKMS reports whether a KMS plugin encrypts or decrypts a resource. The entry of its name counts, else the one for
// its group, else the one for all groups (transformerFromOverrides in
// k8s.io/apiserver/pkg/server/options/encryptionconfig).
func (f *file) usesKMS(resource schema.GroupResource) bool {
	for _, name := range []schema.GroupResource{
		resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"},
	} {
		for _, e := range f.Resources {
			if schema.ParseGroupResource(e.resource()) == name {
				return slices.ContainsFunc(e.Providers, func(p provider) bool { return p.kms() != nil })
			}
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
