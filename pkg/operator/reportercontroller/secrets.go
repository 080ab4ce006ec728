package reportercontroller

import (
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// observeSecrets follows the encryption configs in use, once the Role exists by which the operator reads them, and adds
// what is known of them. Before the Role names a Secret, each read of it is denied.
func (c *Controller) observeSecrets(s *Snapshot, e *serverState) {
	t, liveName, used := s.Target, s.Target.EncryptionConfig.Secret, s.Revisions()
	names, allowed := []string{liveName}, slices.Collect(maps.Keys(e.sources.Secrets))
	for _, revision := range used {
		names = append(names, liveName+"-"+revision)
	}
	if role, exists := e.sources.SecretRole.Get(t.Namespace, objects.SecretRoleName(t.Name)); exists {
		for _, rule := range informers.As[rbacv1.Role](role.Unstructured).Rules {
			allowed = append(allowed, rule.ResourceNames...)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(allowed, name) })
	e.sources.FollowSecrets(names...)
	from, secret := e.sources.Secrets[liveName], "Secret "+t.Namespace+"/"+liveName
	if from == nil || !c.reads(s, secret, from) || from.Problem() != nil { // denied: it may have changed since
		return
	}
	read := func(name string, from *informers.Informer[encryptionconfig.Set]) encryptionconfig.Set {
		set, exists := from.Get(t.Namespace, name)
		if !exists && from.HasSynced() {
			set = encryptionconfig.Read(nil, t.EncryptionConfig)
		}
		return set
	}
	live := read(liveName, from)
	encrypted := slices.Clone(live.Config.Encrypted)
	if live.Problem != "" {
		s.add(contract.EncryptionConfigUnreadable, secret+": "+live.Problem)
	}
	s.Live, s.Sets = &live, map[string]encryptionconfig.Set{}
	s.LiveSeen = e.seenLive(fmt.Sprint(delivery.Writer(live.Config.Plugins), live.Config.Mixed))
	for _, revision := range used {
		name := liveName + "-" + revision
		if from := e.sources.Secrets[name]; from != nil && (from.HasSynced() || from.Problem() != nil) {
			s.Sets[revision] = read(name, from)
			encrypted = append(encrypted, s.Sets[revision].Config.Encrypted...)
		}
	}
	if live.Known {
		c.mu.Lock()
		changed := !slices.Equal(e.encrypted, encrypted)
		e.encrypted = encrypted
		c.mu.Unlock()
		if changed && t.Name == kubeAPIServer {
			c.Queue.Enqueue(syncqueue.All)
		}
	}
}
