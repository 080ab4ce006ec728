//go:build linux

package filewatch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestResolveLooksUpWhatTheKernelDoes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, "", root, "dir", "file")
	link(t, "dir", root, "rel")
	link(t, filepath.Join(root, "dir"), root, "abs")
	link(t, "../rel/./file", root, "dir", "up")
	link(t, "loop", root, "loop")
	link(t, "gone/far", root, "broken")
	link(t, "/../../..", root, "top")
	prefix := lookups("/", resolve(root))

	for path, want := range map[string]string{
		"dir/file":        "dir dir/file",
		"/dir///./file/":  "dir dir/file",
		"rel/file":        "rel dir dir/file",
		"rel/../dir/file": "rel dir dir dir/file",
		"dir/up":          "dir dir/up rel dir dir/file",
		"dir/absent/more": "dir dir/absent",
		"dir/file/more":   "dir dir/file",
		"broken/more":     "broken gone",
		"loop/file":       strings.TrimSpace(strings.Repeat("loop ", maxLinks+1)),
	} {
		got := lookups(root, resolve(root + "/" + path)[len(prefix):])
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}

	abs := lookups(root, resolve(root+"/abs/file"))
	if want := slices.Concat(lookups(root, resolve(root)), []string{"abs"}, lookups(root, resolve(root)), []string{"dir", "dir/file"}); !slices.Equal(abs, want) {
		t.Errorf("through an absolute link: %s\nwant %s", abs, want)
	}
	if got := lookups("/", resolve(root+"/top"+root)); len(got) != 2*len(prefix)+1 {
		t.Errorf("above the root: %s", got)
	}
}

func TestResolveFollowsAsManyLinksAsTheKernel(t *testing.T) {
	t.Parallel()
	for _, links := range []int{maxLinks, maxLinks + 1} {
		root := t.TempDir()
		write(t, "", root, "0")
		for i := range links {
			link(t, fmt.Sprint(i), root, fmt.Sprint(i+1))
		}
		path := filepath.Join(root, fmt.Sprint(links))
		steps := resolve(path)
		_, err := os.Stat(path)
		if reached := steps[len(steps)-1].name == "0"; reached != (err == nil) {
			t.Errorf("%d links: reached the file: %v, but the kernel returns %v", links, reached, err)
		}
	}
}

func lookups(root string, steps []step) (paths []string) {
	for _, s := range steps {
		rel, _ := filepath.Rel(root, s.path())
		if strings.HasPrefix(rel, "..") {
			rel = s.path()
		}
		paths = append(paths, rel)
	}
	return paths
}
