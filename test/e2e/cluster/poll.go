package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fatal marks an error after which there is nothing to wait for.
type fatal struct{ error }

// poll calls check until it succeeds, for a time. What it said last is the error.
func poll(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[fatal](err); ok {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %v: %w", time.Since(start).Round(time.Second), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
