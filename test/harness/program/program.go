// Package program builds the programs of this module, and runs programs, for tests.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the program of a folder of cmd/ into dir, with the race detector
// where the caller has it, and returns its path.
func Build(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	args := []string{"build", "-tags", "grpcnotrace,nethttpomithttp2", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "github.com/kms-health/kms-health/cmd/"+name)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// Root is the checkout: the nearest folder above that contains a go.mod, since `go test`
// runs a test in the folder of its package.
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
