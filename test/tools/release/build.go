package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// kubectlPlugin is the program of administrators; the others have images.
const kubectlPlugin = "kubectl-kms_health"

// program is one program for one platform.
type program struct {
	name, os, arch string
	path           string // where it was built
}

// file is the program's name on its platform.
func (p program) file() string {
	if p.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// pluginPlatforms are those of the kubectl plugin.
var pluginPlatforms = []program{
	{name: kubectlPlugin, os: "darwin", arch: "amd64"},
	{name: kubectlPlugin, os: "darwin", arch: "arm64"},
	{name: kubectlPlugin, os: "linux", arch: "amd64"},
	{name: kubectlPlugin, os: "linux", arch: "arm64"},
	{name: kubectlPlugin, os: "windows", arch: "amd64"},
}

// programs are those of a release for these architectures.
func programs(architectures []string) []program {
	var all []program
	for _, name := range []string{"kms-health-operator", "kms-health-reporter"} {
		for _, arch := range architectures {
			all = append(all, program{name: name, os: "linux", arch: arch})
		}
	}
	for _, p := range pluginPlatforms {
		if slices.Contains(architectures, p.arch) {
			all = append(all, p)
		}
	}
	return all
}

// builder builds programs, each once, into dir/OS-ARCH.
type builder struct {
	dir     string
	command string // the Makefile's, up to the flag -o
}

func (b builder) build(ctx context.Context, p program) (program, error) {
	p.path = filepath.Join(b.dir, p.os+"-"+p.arch, p.file())
	if _, err := os.Stat(p.path); err == nil {
		return p, nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", b.command+` -o "$OUT" "./cmd/$PROGRAM"`)
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "OUT="+p.path, "PROGRAM="+p.name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("build %s for %s/%s: %w\n%s", p.name, p.os, p.arch, err, out)
	}
	return p, nil
}

// completions are the files of a program that has a command "completion", for each shell. They
// are the same on all platforms.
func (b builder) completions(ctx context.Context, name string) ([]file, error) {
	host, err := b.build(ctx, program{name: name, os: runtime.GOOS, arch: runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	var files []file
	for shell, suffix := range map[string]string{"bash": "bash", "fish": "fish", "powershell": "ps1", "zsh": "zsh"} {
		out, err := exec.CommandContext(ctx, host.path, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("%s completion %s: %w", name, shell, err)
		}
		files = append(files, file{name: "completion/" + name + "." + suffix, content: out})
	}
	return files, nil
}

// pinned is what the environment, or `go env -w`, could change in a program.
var pinned = map[string]string{
	"GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOAMD64": "v1", "GOARM64": "v8.0", "GOPPC64": "power8",
}

// pin makes programs depend on nothing but the commit and the version of Go, which it returns.
func pin(ctx context.Context) (string, error) {
	for name, value := range pinned {
		if err := os.Setenv(name, value); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOEXPERIMENT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	version, experiments, _ := bytes.Cut(out, []byte("\n"))
	if len(bytes.TrimSpace(experiments)) > 0 {
		return "", errors.New("GOEXPERIMENT is set: a release is built without experiments")
	}
	return strings.TrimSpace(string(version)), nil
}
