package reporter

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const readOnly = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read}]\n"

// A thread without the rights of root reads the file.
func TestFileWithoutPermission(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(readOnly), 0); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	done := make(chan int)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		done <- Validate(path, nil, &stdout, &stderr)
	}()
	if <-done != ExitNotOK {
		t.Error(stdout.String())
	}
	if got := stderr.String(); !strings.HasPrefix(got, "error: "+path) || !strings.HasSuffix(got, ": permission denied\n") {
		t.Error(got)
	}
}
