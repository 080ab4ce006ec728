package operator

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/watch"
)

// secretRead is an encryption config as it was read. Nothing else of the Secret
// is kept.
type secretRead struct {
	config encryption.Config
	err    string
}

func readSecret(t *v1alpha1.Target) func(*unstructured.Unstructured) secretRead {
	return func(o *unstructured.Unstructured) secretRead {
		encoded, found, _ := unstructured.NestedString(o.Object, "data", t.EncryptionConfig.Key)
		if !found {
			return secretRead{err: "it has no key " + t.EncryptionConfig.Key}
		}
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return secretRead{err: "its data is not base64"}
		}
		config, err := encryption.Parse(data, t.EncryptionConfig.KeyIDs)
		if err != nil {
			return secretRead{err: err.Error()}
		}
		return secretRead{config: config}
	}
}

// settled is how long the API server's authorizer may take to know of a role.
const settled = 500 * time.Millisecond

// observeSecrets reads the encryption configs in use, as far as the role by which
// the operator reads them has been in force for a moment.
func (o *Operator) observeSecrets(ctx context.Context, w *target.World, role *unstructured.Unstructured) *target.Encryption {
	t := w.Target
	if role == nil {
		return nil
	}
	inForce, earlier := o.inForce(role)
	if !inForce && !earlier {
		return nil
	}
	live := watch.Follow(ctx, o.view, watch.Selection{Resource: secretResource, Namespace: t.Namespace, Name: t.EncryptionConfig.Secret}, readSecret(t), nil, t.EncryptionConfig)
	if !live.Known() {
		if err := live.Err(); err != nil {
			w.Trouble = fmt.Sprintf("Secret %s/%s cannot be read: %v", t.Namespace, t.EncryptionConfig.Secret, err)
		}
		return nil
	}
	e := &target.Encryption{Revisions: map[string]encryption.Config{}, Pending: map[string]bool{}}
	read, _ := live.Get(t.Namespace, t.EncryptionConfig.Secret)
	e.Live = read.config
	if read.err != "" {
		e.Problem = "Secret " + t.Namespace + "/" + t.EncryptionConfig.Secret + ": " + read.err
	}
	o.tellIgnored(t.Name, read.config)
	allowed := allowedNames(role)
	for _, revision := range w.Revisions() {
		name := t.EncryptionConfig.Secret + "-" + revision
		if _, asked := o.revisions[t.Namespace+"/"+name]; !asked && (!allowed[name] || !inForce) {
			e.Pending[revision] = true
			continue
		}
		if config, ok := o.revision(ctx, t, name); ok {
			e.Revisions[revision] = config
		}
	}
	return e
}

// tellIgnored tells which providers are not probed, and why, when that changes.
func (o *Operator) tellIgnored(name string, config encryption.Config) {
	const most = 5
	text := config.IgnoredText(most)
	if o.ignored[name] != text {
		o.ignored[name] = text
		if text != "" {
			o.executor.Event(name, "ProvidersIgnored", text)
		}
	}
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

// roleRead is since when a role has been seen as it is, and whether an earlier form
// of it was in force.
type roleRead struct {
	version string
	since   time.Time
	earlier bool
}

// inForce says whether a role has been seen as it is for a moment, or else an
// earlier form of it, and asks for a look when it will have been.
func (o *Operator) inForce(role *unstructured.Unstructured) (now, earlier bool) {
	key := role.GetNamespace() + "/" + role.GetName()
	r := o.roles[key]
	if r.version != role.GetResourceVersion() {
		r.version, r.since = role.GetResourceVersion(), o.Clock.Now()
	}
	left := settled - o.Clock.Since(r.since)
	if left > 0 {
		o.lookAgain(left)
	}
	now, earlier = left <= 0, r.earlier
	r.earlier = r.earlier || now
	o.roles[key] = r
	return now, earlier
}

// revision is what a revisioned Secret says. Its content never changes, so it is
// read once.
func (o *Operator) revision(ctx context.Context, t *v1alpha1.Target, name string) (encryption.Config, bool) {
	key := t.Namespace + "/" + name
	if r, ok := o.revisions[key]; ok && (r.ok || o.Clock.Since(r.at) < revisionRetry) {
		return r.config, r.ok
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := o.Client.Resource(secretResource).Namespace(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	r := revisionRead{at: o.Clock.Now()}
	if err == nil {
		read := readSecret(t)(secret)
		r.config, r.ok = read.config, read.err == ""
		if !r.ok {
			klog.InfoS("An encryption config is not understood, so the live one stands for it", "secret", key, "reason", read.err)
		}
	} else {
		klog.V(2).InfoS("An encryption config could not be read, so what is known stands for it", "secret", key, "err", err)
		o.lookAgain(revisionRetry)
	}
	o.revisions[key] = r
	return r.config, r.ok
}

const (
	revisionRetry  = 10 * time.Second
	requestTimeout = 30 * time.Second
)

type revisionRead struct {
	config encryption.Config
	ok     bool
	at     time.Time
}
