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
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

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

// use is one kms provider, with the resources of its entry.
type use struct {
	resources []string
	provider  string
}

// ignore returns a text. From the file it quotes only the names of the provider and of its first resource.
func ignore(u use, reason string) string {
	return fmt.Sprintf("provider %s of %s is not probed: %s", shown(u.provider), shownFirst(u.resources), reason)
}

// presentable matches a name of the expected format. If a quote is missing in a file, a parsed "name" can be half of
// the file.
var presentable = regexp.MustCompile(`^[-A-Za-z0-9_.:*]{0,128}$`)

// shownFirst returns the first of the resources, fit to be shown.
func shownFirst(resources []string) string {
	return shown(strings.Join(resources[:min(1, len(resources))], ""))
}

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
			u := use{e.Resources, p.kms().Name}
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
