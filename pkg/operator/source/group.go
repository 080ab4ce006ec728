package source

import (
	"context"
	"sync"
)

// runner is a source of any type.
type runner interface{ Run(ctx context.Context) }

// group runs sources, and ends all of them, or one.
type group struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// start runs a source until the group ends or end is called.
func (g *group) start(s runner) (end context.CancelFunc) {
	ctx, end := context.WithCancel(g.ctx)
	g.running.Go(func() { s.Run(ctx) })
	return end
}

// end ends all sources, and waits for them.
func (g *group) end() {
	g.cancel()
	g.running.Wait()
}
