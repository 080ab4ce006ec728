package probe

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// exhaust opens all descriptors of this process, and returns a function that closes them.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 128, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var open []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, f)
	}
	return func() {
		for _, f := range open {
			_ = f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
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
