package apiserver

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

const (
	// When to read a revision's Secret again that could not be read, at first and later.
	firstRevisionRetry, revisionRetry = time.Second, 10 * time.Second
	// revisionSettled is when to read one again that had no plugin.
	revisionSettled = 30 * time.Second
)

// revisionRead is the plugin set of a revision, from its Secret.
type revisionRead struct {
	set   encryption.Set
	first time.Time // when it was first read
	// pending means that it could not be read, since the API server's authorizer may not have
	// read the Role yet.
	pending bool
	// until is when to read it again; zero: never, since its Secret does not change.
	until time.Time
}

// observeSecrets adds the encryption configs in use, once there is the Role by which the operator
// reads them.
func (c *Controller) observeSecrets(s *Observed, e *entry, role *unstructured.Unstructured) {
	t := s.Target
	secret := "Secret " + t.Namespace + "/" + t.EncryptionConfig.Secret
	if e.sources.Secret == nil || !c.reads(s, secret, e.sources.Secret) {
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
		if _, asked := e.revisions[name]; !asked && !slices.Contains(allowed, name) {
			config.Pending[revision] = true
			continue
		}
		r := c.revision(e, name)
		if r.set.Known {
			config.Revisions[revision] = r.set.Config.Plugins
			config.Ignored = slices.Concat(config.Ignored, r.set.Config.Ignored)
		}
		config.Pending[revision] = r.pending
		encrypted = append(encrypted, r.set.Config.Encrypted...)
	}
	s.Encryption = config
	if live.Problem == "" {
		c.shareEncrypted(e, encrypted)
	}
}

// allowedNames are those that a Role names.
func allowedNames(role *unstructured.Unstructured) (all []string) {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
		all = append(all, names...)
	}
	return all
}

// revision is the plugin set of a revision, while the live Secret can be read. What may not
// exist yet, or be repaired, is read again.
func (c *Controller) revision(e *entry, name string) revisionRead {
	r, was := e.revisions[name]
	now := c.Clock.Now()
	if !was {
		r.first = now
	} else if r.until.IsZero() || now.Before(r.until) {
		return r
	}
	after, secret := revisionSettled, e.target.Namespace+"/"+name
	set, err := c.readRevision(e, name)
	if r.pending = err != nil && now.Sub(r.first) < Starting; r.pending {
		after = firstRevisionRetry
	} else if err != nil {
		after = revisionRetry
		klog.V(2).InfoS("Failed to read the encryption config of a revision, retrying", "secret", secret, "err", err)
	} else if r.set = set; !set.Known {
		klog.InfoS("Rejected the encryption config of a revision, its plugins are not known", "secret", secret,
			"reason", set.Problem)
	}
	if r.until = now.Add(after); len(r.set.Config.Plugins) > 0 {
		r.until = time.Time{}
	} else {
		c.queue.AddAfter(e.target.Name, after)
	}
	e.revisions[name] = r
	return r
}

func (c *Controller) readRevision(e *entry, name string) (encryption.Set, error) {
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	t := &e.target
	o, err := c.Client.Resource(source.Secrets).Namespace(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return encryption.Read(nil, t.EncryptionConfig), nil
	case err != nil:
		return encryption.Set{}, err
	}
	return encryption.Read(source.As[corev1.Secret](o), t.EncryptionConfig), nil
}
