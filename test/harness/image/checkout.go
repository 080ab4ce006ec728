package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Programs are the programs with an image: image kms-health-PROGRAM, target PROGRAM of the Dockerfile.
var Programs = []string{"operator", "reporter"}

// Architectures are the architectures of the images, as Go names them.
var Architectures = []string{"amd64", "arm64", "ppc64le", "s390x"}

// FromCheckout builds the image REGISTRY/kms-health-PROGRAM:VERSION of a checkout for these architectures, and the
// programs in dir. With the same version of Go, equal commits give equal digests.
func FromCheckout(ctx context.Context, root, program, registry, version, dir string,
	architectures ...string) (*Index, error) {
	revision, at := Commit(ctx, root)
	var images []*Image
	for _, architecture := range architectures {
		programs := filepath.Join(dir, "linux-"+architecture)
		if err := os.MkdirAll(programs, 0o755); err != nil {
			return nil, err
		}
		i, err := FromDockerfile(ctx, root, program, programs, map[string]string{
			"VERSION": version, "REVISION": revision, "TARGETOS": "linux", "TARGETARCH": architecture,
		})
		if err != nil {
			return nil, fmt.Errorf("kms-health-%s for %s: %w", program, architecture, err)
		}
		i.Created = at
		images = append(images, i)
	}
	return NewIndex(registry+"/kms-health-"+program+":"+version, images...)
}

// Commit returns the checkout's commit and its time, or "unknown" and the zero time.
func Commit(ctx context.Context, root string) (string, time.Time) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--no-show-signature", "--format=%H %cI").Output()
	revision, when, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	at, parsed := time.Parse(time.RFC3339, when)
	if err != nil || !found || parsed != nil {
		return "unknown", time.Time{}
	}
	return revision, at.UTC()
}
