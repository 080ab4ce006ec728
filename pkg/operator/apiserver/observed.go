package apiserver

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Observed is the state of one target, on which decisions are based. It is
// immutable.
type Observed struct {
	objects.Input
	Now time.Time
	// Configured is when the configuration became active.
	Configured time.Time
	// InConfig means that the target is one of the configuration, as that has it; Deleting, that
	// all its objects are to be removed.
	InConfig, Deleting bool
	// OtherInstallation is the namespace of the operator that owns it; empty: ours.
	OtherInstallation string
	// Unmanaged means that only what expires is renewed.
	Unmanaged bool
	// Problem is that of a source without which nothing can be decided; nil: all are known.
	Problem *Status
	// Unrecorded means that the target has no record yet, which comes before anything else of
	// it, so that an operator that starts after it was edited or removed finds what is left.
	Unrecorded bool
	// ResourceMissing means that its operator resource is known not to exist.
	ResourceMissing bool
	// KubeletRoot is the kubelets' folder on the nodes.
	KubeletRoot string

	// PolicyProblem is why the reporters' admission policy is not active.
	PolicyProblem string
	// TLSProblem and CAProblem are why a TLS profile or CA is not active. What was
	// active before stays active.
	TLSProblem, CAProblem string
	// SourceProblems are why sources of the target, or of its roll-up, cannot be read, or that
	// there is no operator resource.
	SourceProblems []Status

	// ReportsLeft means that reports and roll-ups of the target are still to be removed
	// from its operator resource.
	ReportsLeft bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool

	// Encrypted are the resources that kube-apiserver is known to need a KMS plugin for.
	Encrypted []schema.GroupResource

	// Encryption is nil while it is not known: the Secret cannot be read.
	Encryption *Encryption
	Pods       []*corev1.Pod      // the API server's
	Deployment *appsv1.Deployment // the one to patch, or patched earlier; nil: there is none
	// Injected means that fields of it are the operator's, HasContainer that the
	// reporter's container is.
	Injected, HasContainer bool
	Resource               *operatorcr.Status // nil: there is none

	// Own are the operator's existing objects for this target.
	Own []*unstructured.Unstructured
	// Unlisted is the status of a removal while Own may lack ConfigMaps; nil: it does not.
	Unlisted *Status

	// State is what an earlier sync recorded.
	State State
}

// Encryption is what the target's Secrets contain.
type Encryption struct {
	Live      encryption.Config            // empty where there is no Secret
	Revisions map[string][]v1alpha1.Plugin // plugin sets of the revisions of running pods, as far as they were read
	Pending   map[string]bool              // revisions about to be read
	Ignored   []string                     // of the live configuration and of these revisions
	Written   time.Time                    // when the live one was written
	// Problem is why the live Secret is invalid. The last set stays active.
	Problem string
}

// apiServerPod is a running API server pod with the plugins that it uses.
type apiServerPod struct {
	objects.APIServerPod
	pod     *corev1.Pod
	plugins []v1alpha1.Plugin
}

// RevisionOf is the revision of the encryption config that pods of a spec use,
// empty for the live one: from the Secret that they mount, else from the label
// that static pods have.
func RevisionOf(secret string, spec *corev1.PodSpec, labels map[string]string) string {
	for _, v := range spec.Volumes {
		if v.Secret == nil {
			continue
		}
		if v.Secret.SecretName == secret {
			return ""
		}
		if revision, ok := strings.CutPrefix(v.Secret.SecretName, secret+"-"); ok && number.MatchString(revision) {
			return revision
		}
	}
	if revision := labels["revision"]; number.MatchString(revision) {
		return revision
	}
	return ""
}

// number matches a revision.
var number = regexp.MustCompile(`^[0-9]{1,10}$`)

// Revisions are those that running pods use, sorted.
func (s *Observed) Revisions() []string {
	var all []string
	add := func(spec *corev1.PodSpec, labels map[string]string) {
		if r := RevisionOf(s.Target.EncryptionConfig.Secret, spec, labels); r != "" {
			all = append(all, r)
		}
	}
	for _, pod := range s.Pods {
		if Alive(pod) {
			add(&pod.Spec, pod.Labels)
		}
	}
	if s.Deployment != nil {
		add(&s.Deployment.Spec.Template.Spec, s.Deployment.Spec.Template.Labels)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Alive reports whether a pod is on a node and has not ended permanently.
func Alive(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// liveKnown reports whether the live plugin set is known now.
func (s *Observed) liveKnown() bool {
	return s.Target.Plugins != nil || s.Encryption != nil && s.Encryption.Problem == ""
}

// live is the plugin set of the current configuration, or as it was last known.
func (s *Observed) live() []v1alpha1.Plugin {
	switch {
	case s.Target.Plugins != nil:
		return s.Target.Plugins
	case s.liveKnown():
		return s.Encryption.Live.Plugins
	default:
		return s.State.Live
	}
}

// own returns the operator's objects of a kind.
func (s *Observed) own(kind string) []*unstructured.Unstructured { return ofKind(s.Own, kind) }

func ofKind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// find returns the existing object for a desired one.
func (s *Observed) find(desired *unstructured.Unstructured) *unstructured.Unstructured {
	if at := slices.IndexFunc(s.Own, func(o *unstructured.Unstructured) bool { return Key(o) == Key(desired) }); at >= 0 {
		return s.Own[at]
	}
	return nil
}

// revisionSets are the plugin sets of the revisions of running pods that are known.
func (s *Observed) revisionSets() map[string][]v1alpha1.Plugin {
	if s.Target.Plugins != nil {
		return nil
	}
	sets := map[string][]v1alpha1.Plugin{}
	maps.Copy(sets, s.State.Revisions)
	if s.Encryption != nil {
		maps.Copy(sets, s.Encryption.Revisions)
	}
	used := s.Revisions()
	maps.DeleteFunc(sets, func(r string, _ []v1alpha1.Plugin) bool { return !slices.Contains(used, r) })
	return sets
}

// notProbed are the providers that cannot be probed, by the encryption configs in use; empty:
// there is none.
func (s *Observed) notProbed() string {
	switch {
	case s.Target.Plugins != nil:
		return ""
	case !s.liveKnown():
		return s.State.NotProbed
	}
	text := encryption.IgnoredText(s.Encryption.Ignored)
	for _, r := range s.Revisions() {
		if _, read := s.Encryption.Revisions[r]; !read {
			return cmp.Or(text, s.State.NotProbed)
		}
	}
	return text
}
