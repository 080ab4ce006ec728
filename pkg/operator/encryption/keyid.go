package encryption

import (
	"maps"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// nameKeys gives each socket the keyID of its strongest source:
//
//  1. given, by endpoint
//  2. its file's name, kms-{keyID}.sock
//  3. a provider's name, {keyID}_{resource} or kms-{keyID}_{resource}
//  4. a provider's name as it is
//  5. a hash of its address
//
// Each source is applied to all sockets before the next one is, and of several sockets
// the earlier one gets the keyID. A keyID that is invalid, or already another socket's,
// is skipped.
func nameKeys(sockets []*socket, given map[string]string) {
	byAddress := map[string]string{}
	for _, endpoint := range slices.Sorted(maps.Keys(given)) {
		if address, err := v1alpha1.SocketAddress(endpoint); err == nil {
			byAddress[v1alpha1.CleanSocket(address)] = given[endpoint]
		}
	}
	used := map[string]bool{}
	for _, source := range []func(*socket) []string{
		func(s *socket) []string { return []string{byAddress[s.address]} },
		fromFile,
		fromNames,
		asNamed,
		hashed,
	} {
		for _, s := range sockets {
			if s.plugin.KeyID != "" {
				continue
			}
			for _, id := range source(s) {
				if v1alpha1.ValidKeyID(id) && !used[id] {
					s.plugin.KeyID, used[id] = id, true
					break
				}
			}
		}
	}
}

// fromFile reads kms-{keyID}.sock.
func fromFile(s *socket) []string { return []string{contract.KeyIDOfSocket(s.address)} }

// fromNames reads {keyID}_{resource} and kms-{keyID}_{resource}: a provider's
// name must be unique in a file, so one plugin has a name for each resource.
func fromNames(s *socket) []string {
	var ids []string
	for _, u := range s.uses {
		i := strings.LastIndexByte(u.provider, '_') // a resource has none
		if i >= 0 && slices.ContainsFunc(u.resources, func(r string) bool { return names(u.provider[i+1:], r) }) {
			ids = append(ids, strings.TrimPrefix(u.provider[:i], "kms-"))
		}
	}
	return ids
}

// names reports whether a string is the name of a resource of the form plural.group: as it is,
// or by a plural among parts, as in "routes" and "route.openshift.io-routes".
func names(word, resource string) bool {
	plural, _, _ := strings.Cut(resource, ".")
	parts := strings.FieldsFunc(word, func(r rune) bool { return r == '.' || r == '-' })
	return word == resource || slices.Contains(parts, plural)
}

func asNamed(s *socket) []string {
	var ids []string
	for _, u := range s.uses {
		ids = append(ids, u.provider)
	}
	return ids
}

// hashed is for a plugin without a name: one that is not probed would look healthy.
func hashed(s *socket) []string {
	const digits = 10
	return []string{"socket-" + contract.FileHash([]byte(s.address))[:digits]}
}
