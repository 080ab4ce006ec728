// Package wait polls, with a time limit, for tests and their tools.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/must"
)

const (
	// interval is the time between two checks. It is longer after a slow check, since the program under test also
	// needs the processor.
	interval = 50 * time.Millisecond
	// callTimeout is for one check of For. A check without an answer must not use up the whole limit.
	callTimeout = 10 * time.Second
)

// Final marks an error that ends the wait.
func Final(err error) error { return final{err} }

type final struct{ error }

// Until calls check until it returns nil or a Final error, or ctx ends. If ctx ends, the error has the duration and the
// last error of check.
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
		// Keep the earlier error: a call that the end of ctx interrupted explains less.
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

// For is Until with a limit. Its error names what it waited for.
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

// Eventually fails the test if For returns an error. A cleanup may call it too.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	must.Succeed(t, For(context.WithoutCancel(t.Context()), limit, what,
		func(context.Context) error { return check() }))
}
