package delivery

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// State is what the operator needs after a restart, also while neither Secrets nor
// ConfigMaps can be read. It is stored in an annotation of the target's ClusterRole,
// which no plugin encrypts; that ClusterRole is created first and removed last.
type State struct {
	// Installation is the namespace of the operator that owns the target.
	Installation string `json:"installation,omitempty"`

	// What follows is enough to clean up after a target that has left the configuration.
	Namespace   string            `json:"namespace"`
	Resource    v1alpha1.Resource `json:"resource"`
	PodSelector map[string]string `json:"podSelector,omitempty"`
	Container   string            `json:"container,omitempty"`

	// Static means that the configuration has the plugin set, and that there is no Role
	// for reading Secrets.
	Static bool `json:"static,omitempty"`

	// Delivery and Credentials are those that report: of others, the new are made
	// first.
	Delivery    v1alpha1.Delivery    `json:"delivery,omitempty"`
	Credentials v1alpha1.Credentials `json:"credentials,omitempty"`

	// Untouched means that nothing of it was ever made in the target's namespace.
	Untouched bool `json:"untouched,omitempty"`
	// InTarget means that the target's namespace may contain objects of the operator.
	InTarget bool `json:"inTarget,omitempty"`
	// Secrets are the names of the credentials made in the target's namespace.
	Secrets []string `json:"secrets,omitempty"`

	// Live and Revisions are the plugin sets last read.
	Live      []v1alpha1.Plugin            `json:"live,omitempty"`
	Revisions map[string][]v1alpha1.Plugin `json:"revisions,omitempty"`

	// ConfigMapsEncrypted is whether the encryption configs last read use KMS for
	// ConfigMaps. It is recorded for kube-apiserver only, and counts for all targets.
	ConfigMapsEncrypted *bool `json:"configMapsEncrypted,omitempty"`

	// Folders are the host folders that the DaemonSet last mounted. While no pod of the
	// API server runs, nothing else shows them.
	Folders []sockets.Folder `json:"folders,omitempty"`

	// Proven is the image that every node of the target has started once.
	Proven string `json:"proven,omitempty"`
	// Intended is the hash of what is to be applied to a Deployment, recorded before it
	// is; Injected is what was last applied to one.
	Intended string    `json:"intended,omitempty"`
	Injected *Injected `json:"injected,omitempty"`
	// Deployment is the name of that Deployment.
	Deployment string `json:"deployment,omitempty"`
	// Reverted means that its owner removed it again.
	Reverted bool `json:"reverted,omitempty"`
}

// Injected is the result of an injection.
type Injected struct {
	Deployment string `json:"deployment"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Seen is the fingerprint of the injected fields in the pod template.
	Seen string `json:"seen"`
	// Sent is the hash of the intended injection.
	Sent string `json:"sent,omitempty"`
}

// PluginsOf is the plugin set that pods of a spec and labels use, by the revision of
// the encryption config's Secret that they mount.
func (s *State) PluginsOf(secret string, spec *corev1.PodSpec, labels map[string]string) []v1alpha1.Plugin {
	if set, ok := s.Revisions[RevisionOf(secret, spec, labels)]; ok {
		return set
	}
	return s.Live
}

// notInjected records that no Deployment has the reporter.
func (s *State) notInjected() {
	s.Injected, s.Intended, s.Deployment, s.Reverted, s.Proven = nil, "", "", false, ""
}

// Recorded is a State as it was written to the ClusterRole.
type Recorded struct {
	Version string // the ClusterRole's resourceVersion
	State   State
}

// newerThan reports whether it was written after a version of the ClusterRole.
func (r Recorded) newerThan(version string) bool {
	shown, comparable := apply.AtLeast(version, r.Version)
	return comparable && !shown
}

// withoutDelivery is the state of a target that has plugins, and no own reporter.
func (s State) withoutDelivery() State {
	return State{
		Installation: s.Installation, Namespace: s.Namespace, Resource: s.Resource, PodSelector: s.PodSelector, Container: s.Container,
		Static: s.Static, Live: s.Live, Revisions: s.Revisions, ConfigMapsEncrypted: s.ConfigMapsEncrypted,
	}
}

// identified is the state with what identifies the target: enough to remove what is left
// of it.
func (s *Snapshot) identified() State {
	state, t := s.State, s.Target
	state.Installation, state.Namespace, state.Resource = s.Namespace, t.Namespace, t.Resource
	state.PodSelector, state.Container = t.PodSelector, t.Container
	return state
}

// Target is the target as it was recorded, for its removal.
func (s State) Target(name string) v1alpha1.Target {
	return v1alpha1.Target{
		Name: name, Namespace: s.Namespace, Resource: s.Resource, PodSelector: s.PodSelector,
		Container: s.Container, Delivery: s.Delivery, Credentials: s.Credentials, Deployment: s.Deployment,
	}
}

// ParseState reads the annotation. An empty one is the zero state.
func ParseState(annotation string) (State, error) {
	var s State
	if annotation == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(annotation), &s); err != nil {
		return State{}, fmt.Errorf("read the state of a target: %w", err)
	}
	return s, nil
}

// String is the annotation.
func (s State) String() string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // nothing in it fails to marshal
	}
	return string(raw)
}
