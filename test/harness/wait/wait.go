// Package wait is the one way in which tests and their tools wait for what no event
// announces: by asking again and again, with a bound.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// interval is between two checks. It is longer after one that took long, since what is
	// waited for needs the processor, too.
	interval = 50 * time.Millisecond
	// callTimeout is for one check of For: one that gets no answer must not use up the wait.
	callTimeout = 10 * time.Second
)

// Final marks an error after which there is nothing to wait for.
func Final(err error) error { return final{err} }

type final struct{ error }

// Until calls check until it returns nil or a Final error, or ctx ends. The error of a
// wait that ends has how long it took and what the check returned last.
func Until(ctx context.Context, check func(context.Context) error) error {
	start := time.Now()
	var last error
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[final](err); ok {
			return f.error
		}
		// A call that the end of the wait cut short explains less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %v (%w): %w", time.Since(start).Round(time.Millisecond), context.Cause(ctx), last)
		case <-time.After(min(max(interval, 2*time.Since(began)), time.Second)):
		}
	}
}

// For is Until with a limit, and what is waited for in its error.
func For(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := Until(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return check(ctx)
	})
	if err != nil {
		return fmt.Errorf("waited for this: %s: %w", what, err)
	}
	return nil
}

// Eventually fails the test if For does. A cleanup may call it, too.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	if err := For(context.WithoutCancel(t.Context()), limit, what,
		func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
}
