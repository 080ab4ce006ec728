package apiserver

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

// entry is the state of a target between its syncs. Its fields are used by the one worker
// that syncs it, except those guarded by the Controller's mu.
type entry struct {
	target    v1alpha1.APIServer // as it was last synced
	sources   *source.Target
	revisions map[string]revisionRead
	role      roleRead
	published Published
	recorded  Recorded // what was last recorded, while the informer may not show it

	// Under mu.
	status    Status
	encrypted []schema.GroupResource
}

// names are those of the targets of the configuration, of earlier ones, and of those
// whose ClusterRole shows that something of them is left.
func (c *Controller) names() []string {
	all := map[string]bool{}
	if config := c.config.Load(); config != nil {
		for _, t := range config.APIServers {
			all[t.Name] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.targets {
		all[name] = true
	}
	if c.cluster != nil {
		for _, role := range c.cluster.Roles.All() {
			all[role.GetLabels()[contract.APIServerLabel]] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Targets are those that are kept or being removed, by name.
func (c *Controller) Targets() []v1alpha1.APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []v1alpha1.APIServer
	for _, name := range slices.Sorted(maps.Keys(c.targets)) {
		all = append(all, c.targets[name].target)
	}
	return all
}

// entry returns the state of a target, with sources for its current configuration.
func (c *Controller) entry(l life) *entry {
	name := l.target.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.targets[name]
	if e == nil || !e.sources.Same(&l.target) {
		was := e
		e = &entry{revisions: map[string]revisionRead{}}
		if was != nil {
			e.status, e.published = was.status, was.published
			go was.sources.End()
		}
		e.sources = source.NewTarget(c.ctx, c.cluster, &l.target, source.TargetOptions{
			Ours: contract.Managed, Manager: contract.OperatorName, SecretRole: objects.SecretRoleName(name),
			ServiceAccount: contract.ReporterName(name),
			WakeDelivery:   func() { c.Wake(name) }, WakeRollup: func() { c.Rollup.Wake(name) },
		})
		c.targets[name] = e
	}
	e.target = l.target
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
	e.sources.End()
	c.Rollup.Remove(name)
	c.metrics.forget(name)
	c.retry.Forget(name)
	c.Changed()
}
