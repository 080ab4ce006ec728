// kubectl-kms_health shows the state of the KMS v2 plugins of a cluster's API servers, from the reports on the operator
// resources, and which stored data needs which key, from etcd. kubectl runs it as `kubectl kms-health`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the auth plugins of kubectl
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/output"
	"github.com/kms-health/kms-health/pkg/version"
)

// exitFailed is for a wrong command line, and where nothing could be read or written. Others: view.Verdict.
const exitFailed = 3

func main() {
	e := environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, clock: clock.RealClock{}}
	e.terminal = term.IsTerminal(int(os.Stderr.Fd()))
	os.Exit(run(os.Args[1:], e))
}

// environment is what the command uses besides the cluster and its files.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	clock          clock.PassiveClock
	terminal       bool // stderr is one
	// read reads what the flags select, and request requests a round trip; nil: open sets them.
	read    func(context.Context) (*view.Snapshot, error)
	request func(context.Context, contract.Resource, string) error
}

func run(args []string, e environment) int {
	stdout := &output.Checked{Writer: e.stdout}
	e.stdout = stdout
	root := newRoot(e)
	root.SetArgs(append([]string{}, args...)) // for nil it would use the process's arguments
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.Execute()
	var verdict view.Verdict
	switch {
	case stdout.Err != nil:
		err = fmt.Errorf("standard output: %w", stdout.Err)
	case err == nil:
		return 0
	case errors.As(err, &verdict):
		return verdict.ExitCode()
	}
	fmt.Fprintf(e.stderr, "error: %s\n", show.Lines(err.Error()))
	return exitFailed
}

// print prints a value, in a format for programs or as text. It returns a verdict that is not Healthy as the error.
func (e environment) print(format string, value any, text string, verdict view.Verdict) error {
	_, err := e.stdout.Write(show.As(format, value, text))
	if err == nil && verdict != view.Healthy {
		err = verdict
	}
	return err
}

func newRoot(e environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-kms_health",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kms-health"},
		Short:         "Shows the state of the KMS v2 plugins of a cluster's API servers",
		Version:       version.Text(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newStatus(e), newPreflight(e), newStoredKeys(e), newExplain(e))
	return root
}
