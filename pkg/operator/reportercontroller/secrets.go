package reportercontroller

import (
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	t := s.Target
	revisions, allowed := append(s.Revisions(), liveRevision), slices.Collect(maps.Keys(e.sources.Secrets))
	if role, exists := e.sources.SecretRole.Get(t.Namespace, objects.SecretRoleName(t.Name)); exists {
		for _, rule := range informers.As[rbacv1.Role](role.Unstructured).Rules {
			allowed = append(allowed, rule.ResourceNames...)
		}
	}
	var names []string
	for _, revision := range revisions {
		if name := s.EncryptionSecret(revision); slices.Contains(allowed, name) {
			names = append(names, name)
		}
	}
	e.sources.FollowSecrets(names...)
	liveName := s.EncryptionSecret(liveRevision)
	from, secret := e.sources.Secrets[liveName], "Secret "+t.Namespace+"/"+liveName
	if from == nil || !c.reads(s, secret, from) || from.Problem() != nil { // denied: it may have changed since
		return
	}
	s.Sets = map[string]encryptionconfig.Set{}
	var encrypted []schema.GroupResource
	for _, revision := range revisions {
		name := s.EncryptionSecret(revision)
		from := e.sources.Secrets[name]
		if from == nil || !from.HasSynced() && from.Problem() == nil {
			continue
		}
		set, exists := from.Get(t.Namespace, name)
		if !exists && from.HasSynced() {
			set = encryptionconfig.Read(nil, t.EncryptionConfig)
		}
		s.Sets[revision] = set
		encrypted = append(encrypted, set.Config.Encrypted...)
	}
	live := s.Sets[liveRevision]
	if live.Problem != "" {
		s.add(contract.EncryptionConfigUnreadable, secret+": "+live.Problem)
	}
	s.LiveSeen = e.seenLive(fmt.Sprint(delivery.Writer(live.Config.Plugins), live.Config.Mixed))
	if live.Known && t.Name == kubeAPIServer && !slices.Equal(*c.encrypted.Swap(&encrypted), encrypted) {
		c.Queue.Enqueue(syncqueue.All)
	}
}
