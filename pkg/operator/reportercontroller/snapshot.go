package reportercontroller

import (
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
	// InConfig means that Target is an entry of the configuration; Deleting, that all its objects are to be removed;
	// Unmanaged, that only the token, the CA and the TLS settings are renewed.
	InConfig, Deleting, Unmanaged bool
	// OtherInstallation is the namespace of another operator that owns the target; empty: this operator owns it.
	OtherInstallation string
	// Undecided means that a required source is not known, or that there is another installation.
	Undecided bool
	// Unrecorded means that the target has no record yet. It is written before anything else of the target. So an
	// operator that starts after the target was edited or removed finds what is left.
	Unrecorded bool
	// NamespaceMissing means that the target's namespace does not exist; ResourceMissing, that its operator resource
	// does not; ReportsLeft, that reports and roll-ups of the target are still to be removed from that.
	NamespaceMissing, ResourceMissing, ReportsLeft bool
	// SourceProblems has why sources of the target, or of its roll-up, are missing, invalid or cannot be read. What was
	// active before stays active.
	SourceProblems []delivery.Status
	Encrypted      []schema.GroupResource // for which kube-apiserver is known to need a KMS plugin

	// Sets has the content of the encryption configs' Secrets, by revision, without those that were not read yet; nil
	// while the live one cannot be read.
	Sets     map[string]encryptionconfig.Set
	LiveSeen time.Duration // how long this process has seen the current writer of the live set
	Pods     []*corev1.Pod // the API server's
	// Seen is how long this process has seen each of Pods and each managed pod, by UID, and each API server's container,
	// by ID.
	Seen       map[types.UID]time.Duration
	Deployment *appsv1.Deployment     // the one that was patched, else the one to patch; nil: there is none
	Resource   *operatorstatus.Status // nil: there is none

	Own []*unstructured.Unstructured // the operator's existing objects for this target
	// Failures has why pods of Own do not start, and why DaemonSets have no pods, from Events, by UID.
	Failures map[types.UID]string
	// Unlisted is the status of a removal while Own may lack ConfigMaps; nil: it does not.
	Unlisted *delivery.Status
	State    delivery.State // what an earlier sync recorded
}

// Recorded is the State that was written to the ClusterRole.
type Recorded struct {
	Version string // the ClusterRole's resourceVersion
	State   delivery.State
}

// apiServerPod is a running API server pod with the plugins that it uses.
type apiServerPod struct {
	objects.APIServerPod
	pod     *corev1.Pod
	plugins []v1alpha1.Plugin
	// companion means that the pod has a companion; started, that one can be created.
	companion, started bool
	// userKnown means that the user is known from the created container.
	userKnown bool
}

// Revisions returns the revisions that running pods and the Deployment's template use, sorted.
func (s *Snapshot) Revisions() []string {
	var all []string
	add := func(spec *corev1.PodSpec, labels map[string]string) {
		if r, reads := delivery.RevisionOf(s.Target.EncryptionConfig.Secret, spec, labels); reads && r != liveRevision {
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

// liveRevision is the revision of the live encryption config, which pods without a revision use.
const liveRevision = ""

// liveKnown reports whether the live plugin set is known now.
func (s *Snapshot) liveKnown() bool { return s.Target.Plugins != nil || s.Sets[liveRevision].Known }

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
