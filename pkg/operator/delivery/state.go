package delivery

import (
	"encoding/json"
	"fmt"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// State is what the operator needs after a restart, also while neither Secrets nor ConfigMaps can be read. It is stored
// in an annotation of the target's ClusterRole, which no plugin encrypts; that ClusterRole is created first and removed
// last.
type State struct {
	// Installation is the namespace of the operator that owns the target. It and what follows is enough to clean up after
	// a target that has left the configuration.
	Installation string            `json:"installation,omitempty"`
	Namespace    string            `json:"namespace"`
	Resource     v1alpha1.Resource `json:"resource"`
	PodSelector  map[string]string `json:"podSelector,omitempty"`
	// Mode is the mode of the reporters that report now. When the mode changes, it stays until reporters of the new mode
	// report.
	Mode v1alpha1.Mode `json:"mode,omitempty"`
	// Role means that the target's namespace may have the Role by which the operator reads Secrets there; InTarget, that
	// it may have other objects of the operator.
	Role     bool `json:"role,omitempty"`
	InTarget bool `json:"inTarget,omitempty"`

	// Live and Revisions are the plugin sets last read. A Live that is empty is known to have no plugin; nil: it was never
	// read.
	Live      []v1alpha1.Plugin            `json:"live"`
	Revisions map[string][]v1alpha1.Plugin `json:"revisions,omitempty"`
	// NotLoaded are the IDs of the API servers' containers that ran when the writer of the live set changed, or that
	// started just after. While they run, they may use an earlier set. No ID is removed.
	NotLoaded []string `json:"notLoaded,omitempty"`
	// Mixed has, by revision ("" is the live set), encryptionconfig.Config.Mixed if it is not empty.
	Mixed map[string]string `json:"mixed,omitempty"`
	// NotProbed has the kms providers that cannot be probed, with the reasons.
	NotProbed string `json:"notProbed,omitempty"`
	// Silent has, by node, the reports that have not changed for long.
	Silent map[string]rollup.Silence `json:"silent,omitempty"`

	// Folders are the host folders that the DaemonSet last mounted. While no pod of the API server runs, nothing else
	// shows them.
	Folders []objects.Folder `json:"folders,omitempty"`
	// Injected is the Deployment that has the reporter. It is first recorded before the injection, still without a UID
	// and a generation. Reverted means that the Deployment's owner removed the reporter again.
	Injected *Injected `json:"injected,omitempty"`
	Reverted bool      `json:"reverted,omitempty"`
}

// Injected is a Deployment with the reporter. Generation is the one after the injection: a cached Deployment with a
// lower one does not show that the reporter was removed.
type Injected struct {
	Deployment string `json:"deployment"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
}

// Writer is the plugin that encrypts new data; zero: none does.
func Writer(set []v1alpha1.Plugin) v1alpha1.Plugin {
	for _, p := range set {
		if p.Role == v1alpha1.RoleWrite {
			return v1alpha1.Plugin{KeyID: p.KeyID, Endpoint: v1alpha1.Plain(p.Endpoint)}
		}
	}
	return v1alpha1.Plugin{}
}

// WriteKey is the keyID of the plugin that encrypts new data; empty: none does.
func WriteKey(set []v1alpha1.Plugin) string { return Writer(set).KeyID }

// NotInjected records that no Deployment has the reporter.
func (s *State) NotInjected() {
	s.Injected, s.Reverted = nil, false
}

// WithoutDelivery is the state of a target that has no reporters.
func (s State) WithoutDelivery() State {
	s.Mode, s.InTarget, s.Folders = "", false, nil
	s.NotInjected()
	return s
}

// Target is the target as it was recorded, for its removal.
func (s State) Target(name string) v1alpha1.APIServer {
	t := v1alpha1.APIServer{
		Name: name, Namespace: s.Namespace, Resource: s.Resource, PodSelector: s.PodSelector, Mode: s.Mode,
	}
	if s.Injected != nil {
		t.Deployment = s.Injected.Deployment
	}
	return t
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
func (s State) String() string { return contract.Marshal(s) }
