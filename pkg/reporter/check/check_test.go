package check

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func TestOutcomeOfOneProbe(t *testing.T) {
	plugins := []v1alpha1.Plugin{{KeyID: "1", Endpoint: "unix:///1"}, {KeyID: "2", Endpoint: "unix:///2"}}
	one := contract.Entry{KeyID: "1", Status: contract.Healthy}
	two := contract.Entry{KeyID: "2", Status: contract.Healthy}
	unhealthy := contract.Entry{KeyID: "1", Status: contract.Error}
	for name, c := range map[string]struct {
		plugins []v1alpha1.Plugin
		entries []contract.Entry
		outcome Outcome
		missing string // the plugins that are named
	}{
		"all healthy":                 {plugins, []contract.Entry{two, one}, Healthy, ""},
		"one not observed":            {plugins, []contract.Entry{one}, NotObserved, "2"},
		"none observed":               {plugins, nil, NotObserved, "12"},
		"one unhealthy":               {plugins, []contract.Entry{unhealthy, two}, NotHealthy, ""},
		"one unhealthy, one not seen": {plugins, []contract.Entry{unhealthy}, NotHealthy, "2"},
		"no plugins":                  {nil, nil, NotObserved, ""},
	} {
		lines := notObserved(c.plugins, c.entries, nil)
		if got := outcome(c.entries, lines); got != c.outcome {
			t.Errorf("%s: outcome %d, want %d", name, got, c.outcome)
		}
		for _, p := range c.plugins {
			named := strings.Contains(strings.Join(lines, "\n"), p.Endpoint)
			if named != strings.Contains(c.missing, p.KeyID) {
				t.Errorf("%s: %q", name, lines)
			}
		}
	}
}

const readOnly = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read}]\n"

func TestValidFileWithAWarning(t *testing.T) {
	var stdout, stderr strings.Builder
	if !File("-", strings.NewReader(readOnly), &stdout, &stderr) || !strings.HasPrefix(stdout.String(), "ok\n") {
		t.Error(stdout.String())
	}
	if want := "warning: standard input: plugins: no plugin has role Write: "; !strings.HasPrefix(stderr.String(), want) {
		t.Error(stderr.String())
	}
}

// A thread without the rights of root reads the file.
func TestFileWithoutPermission(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(readOnly), 0); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		done <- File(path, nil, &stdout, &stderr)
	}()
	if <-done {
		t.Error(stdout.String())
	}
	if got := stderr.String(); !strings.HasPrefix(got, "error: "+path) || !strings.HasSuffix(got, ": permission denied\n") {
		t.Error(got)
	}
}
