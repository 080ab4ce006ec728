package kmsplugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

const (
	// healthzOK and the versions are what kube-apiserver wants of Status.
	healthzOK      = "ok"
	versionV2      = "v2"
	versionV2beta1 = "v2beta1"
)

// behaviour is what the active faults amount to. It is made anew for each
// change and never changed afterwards.
type behaviour struct {
	hang    map[Call]bool
	delay   map[Call]time.Duration
	refused map[Call]*status.Status

	healthz         string
	version         string
	changingVersion bool
	padding         int
	statusKeyID     *string // nil: the key's own
	encryptKeyID    *string // nil: the key's own
	wrongDecrypt    bool
	shortDecrypt    bool
	replacedKey     bool
	laggingStatus   bool
	headers         int
	notServing      bool

	noSocket bool
	crashed  bool
}

// compile turns faults into the behaviour they amount to.
func compile(faults []Fault) (*behaviour, error) {
	b := &behaviour{
		hang:    map[Call]bool{},
		delay:   map[Call]time.Duration{},
		refused: map[Call]*status.Status{},
		healthz: healthzOK,
		version: versionV2,
	}
	for _, f := range faults {
		kind, err := faultKind(f.Name)
		if err != nil {
			return nil, err
		}
		args, err := kind.complete(f.Args)
		if err != nil {
			return nil, err
		}
		if err := kind.apply(b, args); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return b, nil
}

// without returns the faults but those called name.
func without(faults []Fault, name string) []Fault {
	var rest []Fault
	for _, f := range faults {
		if f.Name != name {
			rest = append(rest, f)
		}
	}
	return rest
}

// conduct is the active behaviour, and wakes those whom a change concerns.
type conduct struct {
	mu        sync.Mutex
	behaviour *behaviour
	// changed is closed, and replaced, when the behaviour is.
	changed chan struct{}
}

func newConduct() *conduct {
	return &conduct{changed: make(chan struct{})}
}

// set puts a behaviour into force, and returns the one before.
func (c *conduct) set(b *behaviour) (before *behaviour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.behaviour = c.behaviour, b
	close(c.changed)
	c.changed = make(chan struct{})
	return before
}

// await returns the behaviour to answer a call with, once that call may be
// answered. A call that hangs or waits is judged anew when the faults change,
// so that healing releases it.
func (c *conduct) await(ctx context.Context, call Call) (*behaviour, error) {
	arrived := time.Now()
	for {
		c.mu.Lock()
		b, changed := c.behaviour, c.changed
		c.mu.Unlock()
		var due <-chan time.Time // nil, and so never, for a call that hangs
		if !b.hang[call] {
			rest := b.delay[call] - time.Since(arrived)
			if rest <= 0 {
				return b, nil
			}
			due = time.After(rest)
		}
		select {
		case <-due:
			return b, nil
		case <-changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
