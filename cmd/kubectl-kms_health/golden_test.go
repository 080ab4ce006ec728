package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// The outputs are in testdata, and quoted by the documentation. Each is evaluated at the
// same time.
func TestOutputsAreAsDocumented(t *testing.T) {
	const gather = "testdata/must-gather"
	for _, tt := range []struct {
		golden string
		code   int
		args   []string
	}{
		{"healthy.txt", 0, []string{"status", "--from-file=testdata/healthy.yaml"}},
		{"healthy.wide.txt", 0, []string{"status", "-o=wide", "--from-file=testdata/healthy.yaml"}},
		{"migration.txt", 0, []string{"status", "--from-file=testdata/migration.yaml"}},
		{"unhealthy.txt", 1, []string{"status", "--from-file=testdata/unhealthy.yaml"}},
		{"unhealthy.json", 1, []string{"status", "-o=json", "--from-file=testdata/unhealthy.yaml"}},
		{"unhealthy.out.yaml", 1, []string{"status", "-o=yaml", "--from-file=testdata/unhealthy.yaml"}},
		{"unhealthy.explain.txt", 1, []string{"explain", "master-1", "--from-file=testdata/unhealthy.yaml"}},
		{"unhealthy.explain.json", 1, []string{"explain", "master-1", "-o=json", "--from-file=testdata/unhealthy.yaml"}},
		{"stale.txt", 2, []string{"status", "--from-file=testdata/stale.yaml"}},
		{"stale.explain.txt", 2, []string{"explain", "master-1", "--from-file=testdata/stale.yaml"}},
		{"disagree.txt", 0, []string{"status", "--from-file=testdata/disagree.yaml"}},
		{"missing.txt", 2, []string{"status", "--from-file=testdata/missing.yaml"}},
		{"missing.explain.txt", 2, []string{"explain", "master-2", "--from-file=testdata/missing.yaml"}},
		{"must-gather.txt", 1, []string{"status", "--from-file", gather}},
		{"must-gather.wide.txt", 1, []string{"status", "-o=wide", "--from-file", gather}},
		{"must-gather.explain.txt", 2, []string{"explain", "master-2", "--from-file", gather}},
		{"output.txt", 1, []string{"status", "--node=master-1", "--from-file=testdata/output.jsonl"}},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			code, stdout, stderr := command{}.run(t, append(tt.args, "--at", "2026-05-08T12:34:56Z")...)
			if code != tt.code || stderr != "" {
				t.Errorf("%d, want %d; %q", code, tt.code, stderr)
			}
			checkGolden(t, tt.golden, stdout)
		})
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
