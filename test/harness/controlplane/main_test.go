package controlplane

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// This binary is also the parent that TestAChildDiesWithItsParent kills.
	if os.Getenv(parentEnv) != "" {
		beParent()
		return
	}
	goleak.VerifyTestMain(m)
}

// deadline bounds a wait within a test.
func deadline(t *testing.T, bound time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}
