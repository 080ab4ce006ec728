package source

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// manyNodes is from how many nodes on all Nodes are followed rather than each by its
// name: a list of all costs the memory of all, and few nodes have API servers.
const manyNodes = 16

// nodes are followed as far as targets need them.
type nodes struct {
	wakes []Wake[Node]

	mu     sync.Mutex
	wanted map[*Target]map[string]bool // names
	byName map[string]followed         // "": all of them
}

type followed struct {
	*Source[Node]
	end context.CancelFunc
}

// Nodes returns those of the named Nodes that exist, and false while that is not
// known. Nodes that no target names any more are no longer followed.
func (s *Target) Nodes(names map[string]bool) (found map[string]Node, known bool) {
	n := &s.Cluster.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.group.ctx.Err() != nil {
		return nil, false
	}
	n.wanted[s] = names
	s.Cluster.followNodes()
	found, known = map[string]Node{}, true
	for name := range names {
		from, each := n.byName[name]
		if !each {
			from = n.byName[""]
		}
		known = known && from.Known()
		if node, exists := from.Get("", name); exists {
			found[name] = node
		}
	}
	return found, known
}

// NodeSources are the sources of the Nodes that the target needs, in the order of their names.
func (s *Target) NodeSources() (all []*Source[Node]) {
	n := &s.Cluster.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.byName)) {
		if name == "" && len(n.wanted[s]) > 0 || n.wanted[s][name] {
			all = append(all, n.byName[name].Source)
		}
	}
	return all
}

// releaseNodes ends what only a target that has ended needed.
func (s *Target) releaseNodes() {
	n := &s.Cluster.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wanted, s)
	s.Cluster.followNodes()
}

// followNodes starts and ends sources. The caller holds the lock.
func (c *Cluster) followNodes() {
	names := map[string]bool{}
	for _, wanted := range c.nodes.wanted {
		maps.Copy(names, wanted)
	}
	if len(names) > manyNodes {
		names = map[string]bool{"": true}
	}
	for name, f := range c.nodes.byName {
		if !names[name] {
			f.end()
			delete(c.nodes.byName, name)
		}
	}
	for name := range names {
		if _, ok := c.nodes.byName[name]; !ok {
			s := New(c.client, c.server, Selection{Resource: Nodes, Name: name}, readNode, c.nodes.wakes...)
			c.nodes.byName[name] = followed{s, c.group.start(s)}
		}
	}
}
