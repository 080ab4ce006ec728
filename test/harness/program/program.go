// Package program builds the programs of this module and runs programs, for tests.
package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Build builds the program in a folder of this module, such as cmd/kms-health-reporter, and returns the path of a copy
// in dir. It uses the race detector if the caller does. All test packages share one build, which is linked again only
// if it is out of date.
func Build(dir, folder string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	shared := filepath.Join(root, "bin", "test"+raceFlag)
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Open(shared)
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks it, too
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	name := filepath.Base(folder)
	built, path := filepath.Join(shared, name), filepath.Join(dir, name)
	// The flags of `make test`, so that Go's build cache has the packages that the tests compiled.
	args := append([]string{
		"build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags=-s",
		"-tags", "grpcnotrace,nethttpomithttp2", "-o", built,
	}, strings.Fields(raceFlag)...)
	build := exec.Command("go", append(args, "github.com/kms-health/kms-health/"+folder)...)
	build.Env = OthersEnv()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	// Copy in another process: a child that this process starts meanwhile would inherit the open file.
	if out, err := exec.Command("cp", built, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// ModuleDir returns the folder of a module that the go.mod in a folder of the checkout requires. It downloads the
// module if the module cache lacks it.
func ModuleDir(folder, module string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "-C", filepath.Join(root, folder), "mod", "download", "-json", module).Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w\n%s", module, err, out)
	}
	var is struct{ Dir string }
	if err := json.Unmarshal(out, &is); err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	return is.Dir, nil
}

// OthersEnv returns the environment for programs of other projects, without GODEBUG: etcd, for example, does not start
// in Go's strictest FIPS mode.
func OthersEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GODEBUG=") })
}

// Root returns the root of the checkout: the nearest parent folder with a go.mod. `go test` runs a test in the folder
// of its package.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", start)
		}
	}
}
