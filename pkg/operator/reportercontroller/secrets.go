package reportercontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// The Secret of a revision in which no plugin was found is read again after revisionRetry. The delay grows up to
// maxRevisionRetry: while KMS is off, no Secret has a plugin.
const (
	revisionRetry    = 5 * time.Second
	maxRevisionRetry = time.Minute
)

// revisionRead is the plugin set of a revision's Secret.
type revisionRead struct {
	encryptionconfig.Set
	first, until time.Time // when it was first read, and when to read it again
}

// observeSecrets adds the encryption configs in use, once the Role exists by which the operator reads them.
func (c *Controller) observeSecrets(ctx context.Context, s *Snapshot, e *serverState, role *unstructured.Unstructured) {
	t, from := s.Target, e.sources.Secret
	secret := "Secret " + t.Namespace + "/" + t.EncryptionConfig.Secret
	if from == nil || !c.reads(s, secret, from) {
		return
	}
	if informers.Denied(from.Err()) && from.FailedFor() > informers.AuthorizerWarmup { // the Secret may have changed since
		return
	}
	live, exists := from.Get(t.Namespace, t.EncryptionConfig.Secret)
	if !exists {
		live = encryptionconfig.Read(nil, t.EncryptionConfig)
	}
	encrypted := slices.Clone(live.Config.Encrypted)
	if live.Problem != "" {
		s.add(contract.EncryptionConfigUnreadable, secret+": "+live.Problem)
	}
	s.Live, s.Sets = &live, map[string]encryptionconfig.Set{}
	s.LiveSeen = e.seenLive(fmt.Sprint(delivery.Writer(live.Config.Plugins), live.Config.Mixed))
	used := s.Revisions()
	// After etcd was restored, a revision's number may be used again for another Secret.
	maps.DeleteFunc(e.revisions, func(name string, _ revisionRead) bool {
		return !slices.Contains(used, strings.TrimPrefix(name, t.EncryptionConfig.Secret+"-"))
	})
	var allowed []string
	for _, rule := range informers.As[rbacv1.Role](role).Rules {
		allowed = append(allowed, rule.ResourceNames...)
	}
	for _, revision := range used {
		name := t.EncryptionConfig.Secret + "-" + revision
		if _, asked := e.revisions[name]; !asked && !slices.Contains(allowed, name) {
			continue
		}
		// The API server's authorizer may not have read the Role yet.
		r := c.revision(ctx, e, name)
		if r.Known || r.Problem != "" || time.Since(r.first) >= informers.AuthorizerWarmup {
			s.Sets[revision] = r.Set
		}
		encrypted = append(encrypted, r.Config.Encrypted...)
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

// revision returns the plugin set of a revision. It is called only after the live Secret was read. A Secret without
// plugins is read again, since it may be created or repaired; one with plugins does not change.
func (c *Controller) revision(ctx context.Context, e *serverState, name string) revisionRead {
	r, was := e.revisions[name]
	now := time.Now()
	if !was {
		r.first = now
	}
	if len(r.Config.Plugins) > 0 || now.Before(r.until) {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	t := &e.target
	o, err := c.Client.Resource(informers.Secrets).Namespace(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.Set = encryptionconfig.Read(nil, t.EncryptionConfig)
	case err == nil:
		r.Set = encryptionconfig.Read(informers.As[corev1.Secret](o), t.EncryptionConfig)
	}
	if !r.Known {
		klog.InfoS("Failed to read the encryption config of a revision, retrying", "secret", t.Namespace+"/"+name,
			"reason", r.Problem, "err", err)
	}
	again := min(max(revisionRetry, now.Sub(r.first)), maxRevisionRetry) // about doubled each time
	r.until = now.Add(again)
	if len(r.Config.Plugins) == 0 {
		c.Queue.AddAfter(t.Name, again)
	}
	e.revisions[name] = r
	return r
}
