package probe

import (
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// exhaust uses up the process's file descriptors. The returned function releases them.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
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
	if r := ask(t, plugin, writer(generous)); r.Status != contract.Healthy || r.NotProbed != "" {
		t.Errorf("with descriptors again: %+v", r)
	}
}
