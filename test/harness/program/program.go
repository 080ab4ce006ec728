// Package program builds the programs of this module, for tests that run them.
package program

import (
	"fmt"
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
