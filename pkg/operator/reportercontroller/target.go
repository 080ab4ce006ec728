package reportercontroller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// serverState is the state of a target between its syncs. Its fields are used by the one worker
// that syncs it, except those guarded by the Controller's mu.
type serverState struct {
	target    v1alpha1.APIServer // as it was last synced
	sources   *informers.Target
	published delivery.Snapshot
	deleting  bool                    // when it was published
	recorded  Recorded                // what was last recorded; the informer may not show it yet
	requested string                  // the last request, valid or not
	looked    time.Time               // when the target was last observed
	seen      map[types.UID]time.Time // when each pod, and API server's container, was first seen
	writer    *string                 // of the live set, once it was read; liveSeen: since when it was seen
	liveSeen  time.Time
	ca        []byte // the last one that could be read

	status delivery.Status // under mu
}

// names returns the names of the targets of the configuration, of earlier ones, and of those whose ClusterRole shows
// that something of them is left.
func (c *Controller) names() []string {
	all := sets.New[string]()
	if config := c.Config.Current(); config != nil {
		for _, t := range config.APIServers {
			all.Insert(t.Name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all.Insert(slices.Collect(maps.Keys(c.targets))...)
	if c.cluster != nil {
		for _, role := range c.cluster.Roles.List() {
			all.Insert(role.APIServer)
		}
	}
	return sets.List(all)
}

// Targets returns the targets that are kept or being removed, by name.
func (c *Controller) Targets() (all []delivery.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.targets)) {
		e := c.targets[name]
		all = append(all, delivery.Target{APIServer: e.target, Status: e.status})
	}
	return all
}

// resolve finds an API server in the configuration and in its recorded state, and begins a snapshot; nil: neither has
// it. If its namespace or operator resource was edited, the recorded one is removed first, and the new one comes then.
func (c *Controller) resolve(config *v1alpha1.OperatorConfiguration, name string) *Snapshot {
	c.mu.Lock()
	e := c.targets[name]
	c.mu.Unlock()
	state := c.recorded(name, e)
	var was *v1alpha1.APIServer
	if state.Namespace != "" {
		was = new(state.Target(name))
	}
	if e != nil && (was == nil || samePlace(&e.target, was)) {
		was = new(e.target)
	}
	return resolve(config, name, was, state, c.Namespace)
}

// resolve decides what to do about the target of a name. was is the target as known from an earlier sync or from its
// record; nil: it is not known.
func resolve(config *v1alpha1.OperatorConfiguration, name string, was *v1alpha1.APIServer, state delivery.State,
	namespace string) *Snapshot {
	s := &Snapshot{State: state}
	s.Config, s.Namespace = config, namespace
	if state.Installation != namespace {
		s.OtherInstallation = state.Installation
	}
	at := slices.IndexFunc(config.APIServers, func(t v1alpha1.APIServer) bool { return t.Name == name })
	switch {
	case at >= 0 && (was == nil || s.OtherInstallation != "" || samePlace(was, &config.APIServers[at])):
		s.Target, s.InConfig = &config.APIServers[at], true
		s.Deleting = config.ManagementState == v1alpha1.Removed
	case was != nil && s.OtherInstallation == "":
		s.Target, s.Deleting = was, true
	default:
		return nil
	}
	return s
}

// samePlace reports whether two versions of a target have the same namespace and resource.
func samePlace(a, b *v1alpha1.APIServer) bool {
	return a.Namespace == b.Namespace && a.Resource == b.Resource
}

// recorded returns the state in the target's ClusterRole. While the informer shows no later version than this process
// has read or written, it is the state of the last sync: what was seen while Unmanaged is not written.
func (c *Controller) recorded(name string, e *serverState) delivery.State {
	role, exists := c.cluster.Roles.Get("", contract.ReporterName(name))
	if e != nil && (!exists || e.recorded.Version != "" && ssa.AtLeast(e.recorded.Version, role.GetResourceVersion())) {
		return e.recorded.State
	}
	if !exists {
		return delivery.State{}
	}
	state, err := delivery.ParseState(role.GetAnnotations()[contract.StateAnnotation])
	if err != nil {
		klog.ErrorS(err, "Failed to read the recorded state, starting without it", "clusterRole", role.GetName())
	}
	if e != nil {
		e.recorded = Recorded{role.GetResourceVersion(), state}
	}
	return state
}

// otherInstallation explains what to do about a target of another installation.
func (s *Snapshot) otherInstallation() delivery.Status {
	return delivery.Status{Reason: contract.OtherInstallation,
		Message: fmt.Sprintf("the installation in namespace %s owns this API server, so this operator changes nothing: "+
			"remove one of the two, or, if the other no longer exists, run `kubectl annotate clusterrole %s %s-`",
			s.OtherInstallation, contract.ReporterName(s.Target.Name), contract.StateAnnotation)}
}

// entry returns the state of a target, with sources for its current configuration.
func (c *Controller) entry(s *Snapshot) *serverState {
	name := s.Target.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.targets[name]
	if e == nil {
		e = &serverState{}
		c.targets[name] = e
	}
	if e.sources == nil || !e.sources.Same(s.Target) {
		if e.sources != nil && e.sources != e.published.Sources { // published ones stay until the new ones are
			e.sources.Stop()
		}
		e.sources = informers.NewTarget(c.ctx, c.cluster, s.Target)
	}
	e.target = *s.Target
	return e
}

// forget removes the state of a target that was removed.
func (c *Controller) forget(name string) {
	c.mu.Lock()
	e := c.targets[name]
	delete(c.targets, name)
	c.mu.Unlock()
	if e == nil {
		return
	}
	e.sources.Stop()
	if e.published.Sources != nil {
		e.published.Sources.Stop()
	}
	if name == kubeAPIServer {
		c.encrypted.Store(new([]schema.GroupResource))
	}
	c.Health.Remove(name)
	c.metrics.forget(name)
	c.Queue.Forget(name)
	c.ClusterOperator.Enqueue(contract.ClusterOperator)
}
