package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// The outputs are in testdata, some quoted by the documentation: those of the cases that an
// administrator meets at 80 and 120 columns, and the other formats.
func TestOutputsAreAsDocumented(t *testing.T) {
	for _, tt := range []struct {
		golden string
		code   int
		args   string
	}{
		{"healthy", 0, "--from-file=testdata/healthy.yaml"},
		{"unhealthy", 1, "--from-file=testdata/unhealthy.yaml"},
		{"stale", 2, "--from-file=testdata/stale.yaml"},
		{"operator", 2, "--from-file=testdata/operator.yaml"},
		{"rejected", 1, "--from-file=testdata/rejected.yaml"},
		{"enablement", 2, "--from-file=testdata/enablement.yaml"},
		{"keys", 0, "--from-file=testdata/keys.yaml"},
		{"migration", 0, "--from-file=testdata/migration.yaml"},
		{"must-gather", 1, "--from-file=testdata/must-gather"},
		{"wait", 1, "--wait --timeout=1s"},
		{"node", 1, "master-1 --from-file=testdata/unhealthy.yaml"},
		{"must-gather.wide.txt", 1, "-o=wide --from-file=testdata/must-gather"},
		{"unhealthy.json", 1, "-o=json --from-file=testdata/unhealthy.yaml"},
		{"unhealthy.out.yaml", 1, "-o=yaml --from-file=testdata/unhealthy.yaml"},
	} {
		for _, width := range []int{80, 120} {
			name := tt.golden // of any width
			if !strings.Contains(name, ".") {
				name = fmt.Sprintf("%s.%d.txt", tt.golden, width)
			}
			t.Run(name, func(t *testing.T) {
				c := command{terminal: func() int { return width }}
				if strings.HasPrefix(tt.args, "--wait") { // as a cluster
					c.read = func(context.Context) (*view.Snapshot, error) {
						s, err := source.ReadFiles("testdata/unhealthy.yaml", nil, taken)
						s.FromFiles = false
						return s, err
					}
				}
				code, stdout, stderr := c.run(t, append([]string{"status"}, strings.Fields(tt.args)...)...)
				if code != tt.code || stderr != "" {
					t.Errorf("%d, want %d; %q", code, tt.code, stderr)
				}
				checkGolden(t, name, stdout)
				if lines := strings.Count(stdout, "\n"); tt.golden == "healthy" && lines > 12 {
					t.Errorf("%d lines of a healthy cluster", lines)
				}
			})
		}
	}
}

func checkGolden(t *testing.T, golden, stdout string) {
	t.Helper()
	path := filepath.Join("testdata", golden)
	if *update {
		if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(stdout, "\n")); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", path, diff)
	}
}
