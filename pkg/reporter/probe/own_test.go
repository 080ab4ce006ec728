package probe

import (
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
)

// exhaust uses up the process's file descriptors. The returned function releases them.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	must.Succeed(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	set := func(limit syscall.Rlimit) {
		must.Succeed(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	set(syscall.Rlimit{Cur: 0, Max: before.Max})
	return func() { set(before) }
}

func TestLackOfDescriptorsIsNotThePluginsError(t *testing.T) {
	real := startProcess(t)
	plugin := NewPlugin(real.socket)
	defer plugin.Close()
	restore := exhaust(t)
	r := ask(t, plugin, writer(generous))
	restore()
	if r.Status != "" || !strings.Contains(r.NotProbed, "too many open files") || r.At.IsZero() {
		t.Errorf("without descriptors: %+v", r)
	}
	healthy(t, plugin)
}
