package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// life is a target to sync: that of the configuration, or an earlier one that is being
// removed.
type life struct {
	target v1alpha1.APIServer
	state  State
	// deleting means that all its objects are to be removed; superseded, that another
	// target of the configuration has its operator resource.
	deleting, superseded bool
	// configured means that it is a target of the current configuration.
	configured bool
	// otherInstallation is the namespace of the operator that owns it; empty: ours.
	otherInstallation string
}

// life returns the target of a name. One whose namespace or operator resource was
// edited is two: the recorded one, which is removed first, and then the new one.
func (c *Controller) life(config *v1alpha1.OperatorConfiguration, name string) (l life, exists bool) {
	state := c.recorded(name)
	recorded, known := state.Target(name), state.Namespace != ""
	c.mu.Lock()
	if e := c.targets[name]; e != nil && (!known || samePlace(&e.target, &recorded)) {
		recorded, known = e.target, true
	}
	c.mu.Unlock()
	return resolveTarget(config, name, recorded, known, state, c.Namespace)
}

// resolveTarget decides what to do about the target of a name, which is known from an earlier
// sync or not.
func resolveTarget(config *v1alpha1.OperatorConfiguration, name string, recorded v1alpha1.APIServer, known bool,
	state State, namespace string) (l life, exists bool) {
	l.state = state
	if state.Installation != "" && state.Installation != namespace {
		l.otherInstallation = state.Installation
	}
	at := slices.IndexFunc(config.APIServers, func(t v1alpha1.APIServer) bool { return t.Name == name })
	switch {
	case at >= 0 && (!known || l.otherInstallation != "" || samePlace(&recorded, &config.APIServers[at])):
		l.target, l.configured, l.deleting = config.APIServers[at], true, config.ManagementState == v1alpha1.Removed
	case known && l.otherInstallation == "":
		l.target, l.deleting = recorded, true
		l.superseded = slices.ContainsFunc(config.APIServers, func(t v1alpha1.APIServer) bool {
			return t.Resource == recorded.Resource && t.Name != name && !t.Resource.PerAPIServer()
		})
	default:
		return life{}, false
	}
	return l, true
}

// samePlace reports whether two versions of a target are of one API server.
func samePlace(a, b *v1alpha1.APIServer) bool {
	return a.Namespace == b.Namespace && a.Resource == b.Resource
}

// recorded is the state that the target's ClusterRole has; while there is none, that of the
// last sync.
func (c *Controller) recorded(name string) State {
	role, exists := c.cluster.Roles.Get("", contract.ReporterName(name))
	c.mu.Lock()
	e := c.targets[name]
	c.mu.Unlock()
	switch {
	case e != nil && (!exists || !Shows(role.GetResourceVersion(), e.recorded.Version)):
		return e.recorded.State
	case !exists:
		return State{}
	default:
		return recordedIn(role)
	}
}

// recordedIn is the state that a ClusterRole has.
func recordedIn(role *unstructured.Unstructured) State {
	state, err := ParseState(role.GetAnnotations()[contract.StateAnnotation])
	if err != nil {
		klog.ErrorS(err, "Failed to read the recorded state, starting without it", "clusterRole", role.GetName())
	}
	return state
}

// otherInstallationText explains what to do about a target of another installation.
func otherInstallationText(name, namespace string) string {
	return fmt.Sprintf("the installation in namespace %s owns this target, so nothing is changed here; remove one of "+
		"the two, or, when that one no longer exists, run `kubectl annotate clusterrole %s %s-`",
		namespace, contract.ReporterName(name), contract.StateAnnotation)
}
