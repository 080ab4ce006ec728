// Package pass is how the operator's parts work: in passes, one after another. Each
// looks at everything, and says how soon to look again.
package pass

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Loop makes passes: when one was asked for, and when one is due.
type Loop struct {
	clock  clock.Clock
	settle time.Duration
	wake   chan struct{}
}

// NewLoop makes a Loop. A pass that was asked for waits for more of the same change
// until all has settled for so long.
func NewLoop(clock clock.Clock, settle time.Duration) *Loop {
	return &Loop{clock: clock, settle: settle, wake: make(chan struct{}, 1)}
}

// Wake asks for a pass. It never blocks.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // one is due anyway
	}
}

// Run makes passes until ctx ends. pass returns how soon the next is due.
func (l *Loop) Run(ctx context.Context, pass func(context.Context) time.Duration) {
	for ctx.Err() == nil {
		timer := l.clock.NewTimer(pass(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			continue // it is time, and no burst
		case <-l.wake:
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-l.clock.After(l.settle):
		}
		select {
		case <-l.wake: // this pass is for those, too
		default:
		}
	}
}
