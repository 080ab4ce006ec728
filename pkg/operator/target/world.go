package target

import (
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// World is all that a decision about one target stands on.
type World struct {
	render.Input
	Now time.Time
	// Going says that everything of the target is to be taken back.
	Going bool
	// Mute says that another target has the resource now, and tells of it.
	Mute bool
	// KubeletRoot is the kubelets' folder on the nodes.
	KubeletRoot string

	// ReportsLeft says that reports and roll-ups of the target are still to be taken
	// off its operator resource, though nobody is to report any more.
	ReportsLeft bool

	// NamespaceMissing says that the target's namespace is not there.
	NamespaceMissing bool

	// Trouble is why Pods or Encryption are not known, empty where they are, or
	// were not told yet.
	Trouble string

	// Encryption is nil while it is not known: the Secret cannot be read.
	Encryption *Encryption
	// Pods are the API server's, nil while they are not known.
	Pods       []*corev1.Pod
	Deployment *appsv1.Deployment // the one to patch, or patched earlier; nil: there is none
	Injected   bool               // fields of it are ours
	Resource   *rollup.Resource   // nil: there is none

	// Own is what is there of ours for this target.
	Own []*unstructured.Unstructured
	// OwnKnown says of each kind whether Own holds all of it.
	OwnKnown map[string]bool

	State State
}

// Encryption is what the target's Secrets say.
type Encryption struct {
	Live      encryption.Config            // empty where there is no Secret
	Revisions map[string]encryption.Config // those of running pods that could be read
	Pending   map[string]bool              // those about to be read
	// Problem is why the live Secret is not understood. The last set stays in force.
	Problem string
}

// site is a running API server pod with the plugins that it uses.
type site struct {
	render.Site
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

// number is what a revision is.
var number = regexp.MustCompile(`^[0-9]{1,10}$`)

// Revisions are those that running pods use, sorted.
func (w *World) Revisions() []string {
	var all []string
	add := func(spec *corev1.PodSpec, labels map[string]string) {
		if r := RevisionOf(w.Target.EncryptionConfig.Secret, spec, labels); r != "" {
			all = append(all, r)
		}
	}
	for _, pod := range w.Pods {
		if Alive(pod) {
			add(&pod.Spec, pod.Labels)
		}
	}
	if w.Deployment != nil {
		add(&w.Deployment.Spec.Template.Spec, w.Deployment.Spec.Template.Labels)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Alive says whether a pod is on a node and not about to go for good.
func Alive(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// pending says whether the plugin set of pods of a spec will be known in a moment.
func (w *World) pending(spec *corev1.PodSpec, labels map[string]string) bool {
	revision := RevisionOf(w.Target.EncryptionConfig.Secret, spec, labels)
	_, before := w.State.Revisions[revision]
	return w.Encryption != nil && w.Encryption.Pending[revision] && !before
}

// known says whether the plugin sets are known, now or from before.
func (w *World) known() bool {
	return w.Target.Plugins != nil || w.Encryption != nil && w.Encryption.Problem == "" || w.State.Live != nil
}

// live is the plugin set of the configuration as it is now.
func (w *World) live() []v1alpha1.Plugin {
	switch {
	case w.Target.Plugins != nil:
		return w.Target.Plugins
	case w.Encryption != nil && w.Encryption.Problem == "":
		return w.Encryption.Live.Plugins
	default:
		return w.State.Live
	}
}

func endpoints(plugins []v1alpha1.Plugin) []string {
	var all []string
	for _, p := range plugins {
		all = append(all, p.Endpoint)
	}
	return all
}

// own returns what is ours of a kind.
func (w *World) own(kind string) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, o := range w.Own {
		if o.GetKind() == kind {
			all = append(all, o)
		}
	}
	return all
}

// find returns what is there of a desired object.
func (w *World) find(desired *unstructured.Unstructured) *unstructured.Unstructured {
	for _, o := range w.Own {
		if o.GetKind() == desired.GetKind() && o.GetName() == desired.GetName() && o.GetNamespace() == desired.GetNamespace() {
			return o
		}
	}
	return nil
}
