package typed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kms-health/kms-health/test/harness/program"
)

// Copy copies the checkout into the subfolder kms-health of a folder, creates tmp and home there, and returns the
// environment for a shell.
func Copy(ctx context.Context, dir string) ([]string, error) {
	root, err := program.Root()
	if err != nil {
		return nil, err
	}
	copied := fmt.Sprintf(`mkdir -p %[1]s/kms-health %[1]s/tmp %[1]s/user/.local/bin && cd %[2]s &&
		git ls-files -co --exclude-standard -z | tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C %[1]s/kms-health &&
		ln -s %[2]s/.tools %[1]s/kms-health/.tools`, dir, root)
	if out, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", copied).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy the checkout: %w\n%s", err, out)
	}
	env := append(os.Environ(), "HOME="+dir+"/user", "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+dir+"/user/.local/bin:"+os.Getenv("PATH"),
		"MAKEFLAGS=", "MAKELEVEL=") // make verify sets these
	for _, name := range []string{"GOENV", "GOPATH", "GOCACHE", "GOMODCACHE"} { // their defaults depend on HOME
		out, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env, nil
}
