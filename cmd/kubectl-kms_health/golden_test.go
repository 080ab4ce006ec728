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

// The outputs are in testdata, and quoted by the documentation.
func TestOutputsAreAsDocumented(t *testing.T) {
	const gather, installation = "testdata/must-gather", "testdata/installation.yaml"
	for _, tt := range []struct {
		golden string
		code   int
		args   []string
		width  int // of a terminal without colours; 0: none
	}{
		{"healthy.txt", 0, []string{"--from-file=testdata/healthy.yaml"}, 0},
		{"healthy.wide.txt", 0, []string{"-o=wide", "--from-file=testdata/healthy.yaml"}, 0},
		{"migration.txt", 0, []string{"--from-file=testdata/migration.yaml"}, 0},
		{"unhealthy.txt", 1, []string{"--from-file=" + installation}, 0},
		{"unhealthy.80.txt", 1, []string{"--from-file=" + installation}, 80},
		{"unhealthy.node.txt", 1, []string{"master-1", "--from-file=" + installation}, 0},
		{"unhealthy.json", 1, []string{"-o=json", "--from-file=testdata/unhealthy.yaml"}, 0},
		{"unhealthy.out.yaml", 1, []string{"-o=yaml", "--from-file=testdata/unhealthy.yaml"}, 0},
		{"stale.txt", 2, []string{"--from-file=testdata/stale.yaml"}, 0},
		{"missing.txt", 2, []string{"--from-file=testdata/missing.yaml"}, 0},
		{"must-gather.txt", 1, []string{"--from-file", gather}, 0},
		{"must-gather.wide.txt", 1, []string{"-o=wide", "--from-file", gather}, 0},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			c := command{env: map[string]string{"NO_COLOR": "1"}}
			if tt.width > 0 {
				c.terminal = func() int { return tt.width }
			}
			code, stdout, stderr := c.run(t, append([]string{"status"}, tt.args...)...)
			if code != tt.code || stderr != "" {
				t.Errorf("%d, want %d; %q", code, tt.code, stderr)
			}
			checkGolden(t, tt.golden, stdout)
			if lines := strings.Count(stdout, "\n"); code == 0 && lines > 12 {
				t.Errorf("%d lines of a healthy cluster", lines)
			}
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
