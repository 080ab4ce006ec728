package apiserver

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

const (
	// roleSettled is how long the API server's authorizer may take to read a new Role.
	roleSettled = 500 * time.Millisecond
	// revisionRetry is when to read a revision's Secret again that could not be read.
	revisionRetry = 10 * time.Second
	// revisionSettled is when to read one again that had no plugin.
	revisionSettled = 30 * time.Second
	readTimeout     = 10 * time.Second
)

// roleRead is since when the current version of the Role by which Secrets are read was seen.
type roleRead struct {
	version string
	since   time.Time
	// active means that this version, or an earlier one, has existed for long enough.
	active bool
}

// revisionRead is the plugin set of a revision, from its Secret.
type revisionRead struct {
	set encryption.Set
	// until is when to read it again; zero: never, since its Secret does not change.
	until time.Time
}

// observeSecrets adds the encryption configs in use, as far as the Role by which the
// operator reads them has been active for a moment.
func (c *Controller) observeSecrets(s *Observed, e *entry) {
	t := s.Target
	role, exists := e.sources.SecretRole.Get(t.Namespace, objects.SecretRoleName(t.Name))
	if !exists {
		return
	}
	current, secret := c.roleActive(e, role), "Secret "+t.Namespace+"/"+t.EncryptionConfig.Secret
	if e.sources.Secret == nil || !c.reads(s, secret, e.sources.Secret) {
		return // without a source, it is watched from the next sync on
	}
	live, exists := e.sources.Secret.Get(t.Namespace, t.EncryptionConfig.Secret)
	if !exists {
		live = encryption.Read(nil, t.EncryptionConfig)
	}
	encrypted := slices.Clone(live.Config.Encrypted)
	config := &Encryption{
		Live: live.Config, Revisions: map[string][]v1alpha1.Plugin{}, Pending: map[string]bool{},
		Ignored: live.Config.Ignored, Written: live.Written,
	}
	if live.Problem != "" {
		config.Problem = secret + ": " + live.Problem
	}
	allowed := allowedNames(role)
	for _, revision := range s.Revisions() {
		name := t.EncryptionConfig.Secret + "-" + revision
		if _, asked := e.revisions[name]; !asked && !(allowed.Has(name) && current) {
			config.Pending[revision] = true
			continue
		}
		set := c.revision(e, name)
		if set.Known {
			config.Revisions[revision] = set.Config.Plugins
			config.Ignored = slices.Concat(config.Ignored, set.Config.Ignored)
		}
		encrypted = append(encrypted, set.Config.Encrypted...)
	}
	s.Encryption = config
	if live.Problem == "" {
		c.shareEncrypted(e, encrypted)
	}
}

// roleActive reports whether a Role has been as it is for a moment, and syncs again
// when it will have been.
func (c *Controller) roleActive(e *entry, role *unstructured.Unstructured) bool {
	r := &e.role
	if r.version != role.GetResourceVersion() {
		r.version, r.since = role.GetResourceVersion(), c.Clock.Now()
	}
	if left := roleSettled - c.Clock.Since(r.since); left > 0 {
		c.queue.AddAfter(e.target.Name, left)
		return false
	}
	if !r.active {
		r.active = true
		c.Wake(e.target.Name)
	}
	return true
}

// allowedNames are those that a Role names.
func allowedNames(role *unstructured.Unstructured) sets.Set[string] {
	all := sets.New[string]()
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
		all.Insert(names...)
	}
	return all
}

// revision is the plugin set of a revision, while the live Secret can be read. What may not
// exist yet, or be repaired, is read again.
func (c *Controller) revision(e *entry, name string) encryption.Set {
	r, was := e.revisions[name]
	now := c.Clock.Now()
	if was && (r.until.IsZero() || now.Before(r.until)) {
		return r.set
	}
	after, secret := time.Duration(0), e.target.Namespace+"/"+name
	set, err := c.readRevision(e, name)
	if err != nil {
		klog.V(2).InfoS("Failed to read the encryption config of a revision, retrying", "secret", secret, "err", err)
		after = revisionRetry
	} else if r.set = set; !set.Known || len(set.Config.Plugins) == 0 {
		after = revisionSettled
	}
	if r.set.Problem != "" {
		klog.InfoS("Rejected the encryption config of a revision, its plugins are not known", "secret", secret,
			"reason", r.set.Problem)
	}
	if r.until = (time.Time{}); after > 0 {
		r.until = now.Add(after)
		c.queue.AddAfter(e.target.Name, after)
	}
	e.revisions[name] = r
	return r.set
}

func (c *Controller) readRevision(e *entry, name string) (encryption.Set, error) {
	ctx, cancel := context.WithTimeout(c.ctx, readTimeout)
	defer cancel()
	t := &e.target
	o, err := c.Client.Resource(source.Secrets).Namespace(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return encryption.Read(nil, t.EncryptionConfig), nil
	}
	if err != nil {
		return encryption.Set{}, err
	}
	return encryption.Read(source.As[corev1.Secret](o), t.EncryptionConfig), nil
}
