package reportercontroller

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Snapshot is the state of one API server, on which decisions are based. It is not changed after observe.
type Snapshot struct {
	objects.Input
	// LiveSeen is for how long this process has seen the live set as it is.
	LiveSeen time.Duration
	// InConfig means that the target is one of the configuration, as that has it; Deleting, that
	// all its objects are to be removed.
	InConfig, Deleting bool
	// OtherInstallation is the namespace of the operator that owns it; empty: ours.
	OtherInstallation string
	// Unmanaged means that only what expires is renewed.
	Unmanaged bool
	// Problem is that of a source without which nothing can be decided; nil: all are known.
	Problem *delivery.Status
	// Unrecorded means that the target has no record yet, which comes before anything else of
	// it, so that an operator that starts after it was edited or removed finds what is left.
	Unrecorded bool
	// ResourceMissing means that its operator resource is known not to exist.
	ResourceMissing bool
	// KubeletRoot is the kubelets' folder on the nodes.
	KubeletRoot string

	// SourceProblems are why sources of the target, or of its roll-up, are missing, invalid or cannot be
	// read. What was active before stays active.
	SourceProblems []delivery.Status

	// ReportsLeft means that reports and roll-ups of the target are still to be removed
	// from its operator resource.
	ReportsLeft bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool

	// Encrypted are the resources that kube-apiserver is known to need a KMS plugin for.
	Encrypted []schema.GroupResource

	// Live is what the Secret of the live encryption config contains, nil while it cannot be read, and Sets
	// those of the revisions of running pods. Of one that is about to be read there is none.
	Live *encryptionconfig.Set
	Sets map[string]encryptionconfig.Set
	Pods []*corev1.Pod // the API server's
	// Seen is for how long this process has seen each of Pods, its API server's container, by its ID, and its own pods,
	// and Unchanged each node's report.
	Seen       map[types.UID]time.Duration
	Unchanged  map[string]time.Duration
	Deployment *appsv1.Deployment // the one to patch, or patched earlier; nil: there is none
	// Injected means that fields of it are the operator's, HasContainer that the
	// reporter's container is.
	Injected, HasContainer bool
	Resource               *operatorstatus.Status // nil: there is none

	// Own are the operator's existing objects for this target.
	Own []*unstructured.Unstructured
	// Failures are why pods of Own do not start, and DaemonSets have no pods, as Events have it, by UID.
	Failures map[types.UID]string
	// Unlisted is the status of a removal while Own may lack ConfigMaps; nil: it does not.
	Unlisted *delivery.Status

	// State is what an earlier sync recorded.
	State delivery.State
}

// Recorded is a State as it was written to the ClusterRole.
type Recorded struct {
	Version string // the ClusterRole's resourceVersion
	State   delivery.State
}

// apiServerPod is a running API server pod with the plugins that it uses.
type apiServerPod struct {
	objects.APIServerPod
	pod     *corev1.Pod
	plugins []v1alpha1.Plugin
	// companion means that it has one; started, that one can be made.
	companion, started bool
	// userKnown means that the user is that of the container that was created.
	userKnown bool
}

// Revisions are those that running pods use, sorted.
func (s *Snapshot) Revisions() []string {
	var all []string
	add := func(spec *corev1.PodSpec, labels map[string]string) {
		if r, reads := delivery.RevisionOf(s.Target.EncryptionConfig.Secret, spec, labels); reads && r != "" {
			all = append(all, r)
		}
	}
	for _, pod := range s.Pods {
		if delivery.Alive(pod) {
			add(&pod.Spec, pod.Labels)
		}
	}
	if s.Deployment != nil {
		add(&s.Deployment.Spec.Template.Spec, s.Deployment.Spec.Template.Labels)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// add adds a problem of a source, unless its message is empty.
func (s *Snapshot) add(reason delivery.Reason, message string) {
	if message != "" {
		s.SourceProblems = append(s.SourceProblems, delivery.Status{Reason: reason, Message: message})
	}
}

// has reports whether a source has a problem.
func (s *Snapshot) has(reason delivery.Reason) bool {
	return slices.ContainsFunc(s.SourceProblems, func(p delivery.Status) bool { return p.Reason == reason })
}

// liveKnown reports whether the live plugin set is known now.
func (s *Snapshot) liveKnown() bool {
	return s.Target.Plugins != nil || s.Live != nil && s.Live.Known
}

// live is the plugin set of the current configuration, or as it was last known.
func (s *Snapshot) live() []v1alpha1.Plugin {
	switch {
	case s.Target.Plugins != nil:
		return s.Target.Plugins
	case s.liveKnown():
		return s.Live.Config.Plugins
	default:
		return s.State.Live
	}
}

// own returns the operator's objects of a kind.
func (s *Snapshot) own(kind string) []*unstructured.Unstructured { return ofKind(s.Own, kind) }

func ofKind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// find returns the existing object for a desired one.
func (s *Snapshot) find(desired *unstructured.Unstructured) *unstructured.Unstructured {
	at := slices.IndexFunc(s.Own, func(o *unstructured.Unstructured) bool {
		return ssa.Describe(o) == ssa.Describe(desired)
	})
	if at >= 0 {
		return s.Own[at]
	}
	return nil
}

// revisionSets are the plugin sets of the revisions of running pods that are known. The Secret of a revision never
// changes, so one that was deleted leaves the plugins that were recorded. Without these it never existed.
func (s *Snapshot) revisionSets() map[string][]v1alpha1.Plugin {
	if s.Target.Plugins != nil {
		return nil
	}
	sets := map[string][]v1alpha1.Plugin{}
	for _, r := range s.Revisions() {
		read := s.Sets[r]
		was, recorded := s.State.Revisions[r]
		switch {
		case read.Known && (len(read.Config.Plugins) > 0 || len(was) == 0):
			sets[r] = read.Config.Plugins
		case recorded:
			sets[r] = was
		}
	}
	return sets
}

// notProbed are the providers that cannot be probed, by the encryption configs in use; empty:
// there is none.
func (s *Snapshot) notProbed() string {
	switch {
	case s.Target.Plugins != nil:
		return ""
	case !s.liveKnown():
		return s.State.NotProbed
	}
	ignored, before := slices.Clone(s.Live.Config.Ignored), ""
	for _, r := range s.Revisions() {
		if ignored = append(ignored, s.Sets[r].Config.Ignored...); !s.Sets[r].Known {
			before = s.State.NotProbed
		}
	}
	return cmp.Or(encryptionconfig.IgnoredText(ignored), before)
}
