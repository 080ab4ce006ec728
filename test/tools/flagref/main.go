// Command flagref writes docs/reference/flags.md: what each program prints for --help.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
)

//go:generate go run . ../../../docs/reference/flags.md

const module = "github.com/kms-health/kms-health"

// programs are those of the reference, each with its commands.
var programs = []struct {
	name, path string
	commands   []string
}{
	{"kms-health-reporter", "/cmd/kms-health-reporter", []string{""}},
	{"kms-health-operator", "/cmd/kms-health-operator", []string{"", "run", "render", "validate", "print-defaults"}},
	{"kubectl kms-health", "/cmd/kubectl-kms_health", []string{"", "status"}},
	{"kms-plugin", "/test/kmsplugin/cmd/kms-plugin", []string{"", "ctl"}},
}

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "flagref:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	var b bytes.Buffer
	b.WriteString(`# Flags

<!-- Generated from --help by "make generate". Do not edit. -->

What each program prints for ` + "`--help`" + `. Configuration is in files:
see the [configuration reference](configuration.md).
`)
	for _, p := range programs {
		fmt.Fprintf(&b, "\n## %s\n", p.name)
		for _, command := range p.commands {
			text, err := help(p.path, command)
			if err != nil {
				return err
			}
			title := p.name + " --help"
			if command != "" {
				title = p.name + " " + command + " --help"
			}
			fmt.Fprintf(&b, "\n    %s\n\n```\n%s```\n", title, text)
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// help is the same in every environment: some flags have defaults from variables.
func help(path, command string) ([]byte, error) {
	args := []string{"run", module + path, "--help"}
	if command != "" {
		args = []string{"run", module + path, command, "--help"}
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	for _, variable := range os.Environ() {
		if name, _, _ := bytes.Cut([]byte(variable), []byte("=")); !ours[string(name)] {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w", args, err)
	}
	return text, nil
}

var ours = map[string]bool{
	"KMS_HEALTH_NODE": true, "KMS_HEALTH_POD_UID": true, "KMS_HEALTH_CONFIG_HASH": true, "KUBECONFIG": true,
	"POD_NAMESPACE": true, "POD_NAME": true, "REPORTER_IMAGE": true, "IS_OPENSHIFT": true,
}
