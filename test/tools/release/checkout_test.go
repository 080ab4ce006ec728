package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kms-health/kms-health/test/harness/image"
)

// clone is a git clone of a program with one commit, tagged v1.2.3, and functions that write a
// file and run git.
func clone(t *testing.T) (root string, write func(name, content string), git func(args ...string)) {
	root = t.TempDir()
	write = func(name, content string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git = func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	git("config", "status.showUntrackedFiles", "no") // as large repositories have it
	write("cmd/a/main.go", "package main\n")
	write(".gitignore", "/bin/\n*_local.go\n")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	git("tag", "v1.2.3")
	return root, write, git
}

func TestAReleaseIsATaggedCommitAndNothingElse(t *testing.T) {
	root, write, git := clone(t)
	read := func() *checkout {
		c, err := readCheckout(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	of := func(version, registry string) *release {
		return &release{checkout: read(), version: version, registry: registry, architectures: image.Architectures}
	}
	if why := of("v1.2.3", "registry.example.com").notRelease(); len(why) > 0 {
		t.Errorf("a tagged commit is no release: %v", why)
	}
	if why := of("v1.2.4", "registry.example.com").notRelease(); len(why) != 1 {
		t.Errorf("another version than the tag's: %v", why)
	}
	if why := of("v1.2.3", "registry.invalid").notRelease(); len(why) != 1 {
		t.Errorf("images that do not exist: %v", why)
	}
	part := of("v1.2.3", "registry.example.com")
	part.architectures = []string{"amd64", "arm64", "s390x"}
	if why := part.notRelease(); len(why) != 1 {
		t.Errorf("without ppc64le: %v", why)
	}
	write("bin/program", "built")
	if c := read(); len(c.changes) > 0 {
		t.Errorf("an ignored folder is a change: %v", c.changes)
	}
	write("cmd/a/extra_local.go", "package main\n") // git ignores it, the compiler does not
	if c := read(); !slices.Contains(c.changes, "?? cmd/a/extra_local.go") || len(of("v1.2.3", "r").notRelease()) != 1 {
		t.Errorf("an ignored source file is no change: %v", c.changes)
	}
	git("clean", "-fdxq")
	write("manifests/new.yaml", "{}\n")
	if c := read(); !slices.Contains(c.changes, "?? manifests/new.yaml") {
		t.Errorf("a new file is no change: %v", c.changes)
	}
	git("clean", "-fdxq")
	write("cmd/a/main.go", "package main // changed\n")
	if c := read(); len(c.changes) != 1 {
		t.Errorf("changes %v, want one", c.changes)
	}
}
