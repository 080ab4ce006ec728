package apiserver

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// roleRead is since when the Role by which Secrets are read has been as it is.
type roleRead struct {
	version string
	since   time.Time
	// active means that this form of it, or an earlier one, has existed for long enough.
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
func (c *Controller) observeSecrets(s *Snapshot, e *entry) {
	t := s.Target
	role, exists := e.sources.SecretRole.Get(t.Namespace, objects.SecretRoleName(t.Name))
	if !exists {
		return
	}
	current := c.roleActive(e, role)
	if e.sources.Secret == nil {
		return // it is watched from the next sync on
	}
	secret := "Secret " + t.Namespace + "/" + t.EncryptionConfig.Secret
	if known := s.readable(secret, e.sources.Secret); !known {
		return
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
		if _, asked := e.revisions[name]; !asked && (!allowed[name] || !current) {
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
	left := roleSettled - c.Clock.Since(r.since)
	if left > 0 {
		c.queue.AddAfter(e.target.Name, left)
		return false
	}
	if !r.active {
		r.active = true
		c.Wake(e.target.Name)
	}
	return true
}

func allowedNames(role *unstructured.Unstructured) map[string]bool {
	all := map[string]bool{}
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
		for _, name := range names {
			all[name] = true
		}
	}
	return all
}

// revision is the plugin set of a revision, while the live Secret can be read.
func (c *Controller) revision(e *entry, name string) encryption.Set {
	r, was := e.revisions[name]
	if now := c.Clock.Now(); !was || !r.until.IsZero() && !now.Before(r.until) {
		set, err := c.readRevision(e, name)
		if r.until = (time.Time{}); err == nil {
			r.set = set
		}
		if err != nil {
			klog.V(2).InfoS("Failed to read the encryption config of a revision, retrying", "secret",
				e.target.Namespace+"/"+name, "err", err)
			c.readAgain(e, &r, now, revisionRetry)
		} else if !r.set.Known || len(r.set.Config.Plugins) == 0 { // it may not exist yet, or be repaired
			c.readAgain(e, &r, now, revisionSettled)
		}
		if r.set.Problem != "" {
			klog.InfoS("Rejected the encryption config of a revision, its plugins are not known", "secret",
				e.target.Namespace+"/"+name, "reason", r.set.Problem)
		}
		e.revisions[name] = r
	}
	return r.set
}

func (c *Controller) readAgain(e *entry, r *revisionRead, now time.Time, after time.Duration) {
	r.until = now.Add(after)
	c.queue.AddAfter(e.target.Name, after)
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
	return encryption.Read(source.Secret(o), t.EncryptionConfig), nil
}
