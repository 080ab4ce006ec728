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
		func(s *socket) []string { return []string{contract.KeyIDOfSocket(s.address)} },
		fromNames,
		asNamed,
		hashed,
	} {
		for _, s := range sockets {
			for _, id := range source(s) {
				if s.plugin.KeyID == "" && v1alpha1.ValidKeyID(id) && !used[id] {
					s.plugin.KeyID, used[id] = id, true
				}
			}
		}
	}
}

// fromNames reads {keyID}_{resource} and kms-{keyID}_{resource}: a provider's
// name must be unique in a file, so one plugin has a name for each resource.
func fromNames(s *socket) (ids []string) {
	for _, u := range s.uses {
		i := strings.LastIndexByte(u.provider, '_') // a resource has none
		if i >= 0 && slices.ContainsFunc(u.resources, func(resource string) bool {
			plural, _, _ := strings.Cut(resource, ".") // as in routes and route.openshift.io-routes
			return strings.Contains(u.provider[i:], plural)
		}) {
			ids = append(ids, strings.TrimPrefix(u.provider[:i], "kms-"))
		}
	}
	return ids
}

func asNamed(s *socket) (ids []string) {
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
