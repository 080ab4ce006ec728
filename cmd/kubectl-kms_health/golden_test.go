package main

import (
	"context"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// The outputs are in testdata, some quoted by the documentation.
func TestOutputsAreAsDocumented(t *testing.T) {
	for _, tt := range []struct {
		golden string
		code   int
		args   string
	}{
		{"healthy.txt", 0, "--from-file=testdata/healthy.yaml"},
		{"unhealthy.txt", 1, "--from-file=testdata/unhealthy.yaml"},
		{"stale.txt", 2, "--from-file=testdata/stale.yaml"},
		{"operator.txt", 2, "--from-file=testdata/operator.yaml"},
		{"rejected.txt", 1, "--from-file=testdata/rejected.yaml"},
		{"enablement.txt", 2, "--from-file=testdata/enablement.yaml"},
		{"keys.txt", 0, "--from-file=testdata/keys.yaml"},
		{"migration.txt", 0, "--from-file=testdata/migration.yaml"},
		{"must-gather.txt", 1, "--from-file=testdata/must-gather"},
		{"wait.txt", 1, "--wait=1s"},
		{"node.txt", 1, "master-1 --from-file=testdata/unhealthy.yaml"},
		{"must-gather.wide.txt", 1, "-o=wide --from-file=testdata/must-gather"},
		{"unhealthy.json", 1, "-o=json --from-file=testdata/unhealthy.yaml"},
		{"unhealthy.out.yaml", 1, "-o=yaml --from-file=testdata/unhealthy.yaml"},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			var e environment
			if strings.HasPrefix(tt.args, "--wait") { // as a cluster
				e.read = func(context.Context) (*view.Snapshot, error) {
					s, err := source.ReadFiles("testdata/unhealthy.yaml", nil, taken)
					s.FromFiles = false
					return s, err
				}
				e.request = func(context.Context, contract.Resource, string) error { return nil }
			}
			code, stdout, stderr := kubectl(t, e, append([]string{"status"}, strings.Fields(tt.args)...)...)
			if code != tt.code || stderr != "" {
				t.Errorf("%d, want %d; %q", code, tt.code, stderr)
			}
			path := filepath.Join("testdata", tt.golden)
			if *update {
				disk.Write(t, path, []byte(stdout))
			}
			want := disk.Read(t, path)
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(stdout, "\n")); diff != "" {
				t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", path, diff)
			}
			quoted := "```\n" + string(want) + "```\n"
			if tt.golden == "unhealthy.txt" && !strings.Contains(string(disk.Read(t, "../../README.md")), quoted) {
				t.Error("README.md does not quote it")
			}
		})
	}
}
