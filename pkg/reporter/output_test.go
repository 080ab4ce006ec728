package reporter

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOutputReplacesReportsOnly(t *testing.T) {
	for name, c := range map[string]struct {
		prepare  func(dir string) error
		rejected string // empty: it is replaced
	}{
		"no file yet":            {func(string) error { return nil }, ""},
		"an empty file":          {func(dir string) error { return os.WriteFile(dir+"/out", nil, 0o600) }, ""},
		"a report":               {func(dir string) error { return os.WriteFile(dir+"/out", []byte("[]\n"), 0o600) }, ""},
		"a link to a report":     {func(dir string) error { return withLink(dir, "report", "[]\n") }, ""},
		"a FIFO":                 {func(dir string) error { return syscall.Mkfifo(dir+"/out", 0o600) }, "is not a regular file"},
		"a folder":               {func(dir string) error { return os.Mkdir(dir+"/out", 0o700) }, "is not a regular file"},
		"another file":           {func(dir string) error { return os.WriteFile(dir+"/out", []byte("{}\n"), 0o600) }, "does not hold a report"},
		"a link to another file": {func(dir string) error { return withLink(dir, "other", "apiVersion: v1\n") }, "does not hold a report"},
		"a link to nowhere":      {func(dir string) error { return os.Symlink("nowhere", dir+"/out") }, "leads nowhere"},
		"a link to itself":       {func(dir string) error { return os.Symlink("out", dir+"/out") }, "too many links"},
		"the configuration":      {func(dir string) error { return os.Link(dir+"/config.yaml", dir+"/out") }, "is the configuration file"},
		"a link to it":           {func(dir string) error { return os.Symlink("./config.yaml", dir+"/out") }, "is the configuration file"},
		"an absolute link to it": {func(dir string) error { return os.Symlink(dir+"/./config.yaml", dir+"/out") }, "is the configuration file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := filepath.Join(dir, "config.yaml")
			if err := os.WriteFile(config, []byte("[] # this file must not change\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, dir)
			err := replaceFile(dir+"/out", config, []byte("[1]\n"))
			if c.rejected != "" {
				if err == nil || !strings.Contains(err.Error(), c.rejected) {
					t.Errorf("error %v, want one with %q", err, c.rejected)
				}
				if after := snapshot(t, dir); after != before {
					t.Errorf("the folder was\n%s\nand is\n%s", before, after)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(dir + "/out"); err != nil || string(data) != "[1]\n" {
				t.Errorf("%q, %v", data, err)
			}
			if strings.Contains(before, "out -> ") != strings.Contains(snapshot(t, dir), "out -> ") {
				t.Error("the link was replaced, not its target")
			}
		})
	}
}

func TestOutputIsNotTheConfigurationFileThatDoesNotExistYet(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Symlink(".", "link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d.yaml", "later"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ output, config string }{
		{"./d.yaml", "d.yaml"}, {"link/d.yaml", "d.yaml"}, {dir + "/d.yaml", "d.yaml"}, {"d.yaml", "later"}, {"no/d.yaml", "./no/d.yaml"},
	} {
		if err := replaceFile(c.output, c.config, []byte("[]\n")); err == nil || !strings.Contains(err.Error(), "is the configuration file") {
			t.Errorf("output %s, configuration %s: %v", c.output, c.config, err)
		}
		if _, err := os.Stat("d.yaml"); err == nil {
			t.Fatalf("output %s made the file of the configuration", c.output)
		}
	}
	if SameFile("a", "b") || SameFile("d.yaml", "no/d.yaml") {
		t.Error("different files are treated as the same")
	}
}

func TestLineHoldsNoCharacterThatCannotBePrinted(t *testing.T) {
	value := "a\x1b[2J\x7f\u009b2J\u2028\u202e\U000e0001é\U0001f600\n"
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	line := string(Line(string(raw)))
	if want := `"a\u001b[2J\u007f\u009b2J\u2028\u202e\udb40\udc01é😀\n"` + "\n"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
	var back string
	if err := json.Unmarshal([]byte(line), &back); err != nil || back != value {
		t.Errorf("%q, %v", back, err)
	}
}

func withLink(dir, name, text string) error {
	if err := os.Symlink(name, dir+"/out"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// snapshot lists a folder's files with what they hold or lead to.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Name())
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			b.WriteString(" -> " + target)
		}
		if e.Type().IsRegular() {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(": " + string(data))
		}
		b.WriteString("\n")
	}
	return b.String()
}
