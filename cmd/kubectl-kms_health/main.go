// kubectl-kms_health shows the state of the KMS v2 plugins of a cluster's API
// servers, from the reports on the operator resources. kubectl runs it as
// `kubectl kms-health`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the auth plugins of kubectl
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/version"
)

const program = "kubectl-kms_health"

// exitFailed is the exit code of a mistake in the command line, and where nothing could be
// read. The others are those of view.Verdict.
const exitFailed = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	e := environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, clock: clock.RealClock{}}
	e.terminal = isTerminal(os.Stdout)
	code := run(ctx, os.Args[1:], e)
	stop()
	klog.Flush()
	os.Exit(code)
}

// environment is what a command uses besides the cluster and its files.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	clock          clock.WithTicker
	// terminal returns the terminal's width; nil: stdout is not a terminal.
	terminal func() int
}

func run(ctx context.Context, args []string, e environment) int {
	root := newRoot(e)
	root.SetArgs(append([]string{}, args...)) // for nil it would use the process's arguments
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.ExecuteContext(ctx)
	var code verdict
	var failed *failure
	switch {
	case err == nil:
		return int(view.AllHealthy)
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &failed):
		fmt.Fprintf(e.stderr, "error: %s\n", show.Lines(err.Error()))
	default:
		fmt.Fprintf(e.stderr, "error: %s\nSee kubectl kms-health --help.\n", show.Lines(err.Error()))
	}
	return exitFailed
}

// verdict is the error that ends a command with an exit code, after its complete output,
// when not everything is healthy.
type verdict view.Verdict

func (v verdict) Error() string { return fmt.Sprintf("verdict %d", int(v)) }

// failure is an error of the work, not of the command line.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// works marks what a command returns as a failure of its work.
func works(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := do(cmd, args); err != nil {
			return &failure{err}
		}
		return nil
	}
}

var about = `Shows the state of the KMS v2 plugins of a cluster's API servers: of each API
server, on each node, with each key. It reads what the reporters wrote on the
operator resources (` + contract.OperatorGroup + `/` + contract.OperatorVersion + `, each named ` + contract.OperatorObject + `:
` + strings.Join(contract.ResourceNames(), ", ") + `)
and on KMSHealths, and evaluates it itself: it works while the operator is down, and
also shows the conditions that the operator last wrote. It writes nothing.

The states:
  healthy           the plugin answers and is healthy
  unhealthy         the plugin answers and is not healthy
  error             the plugin does not answer
  stale             the last report is too old: the state is not known
  clock differs     the node's clock differs: the age of its report is not known
  unreadable        the report cannot be read
  not yet observed  the node has not reported yet

Exit codes:
  0  every plugin is healthy by a fresh report; watch: ended by Ctrl-C
  1  some plugin is unhealthy, or in error
  2  the state is not known: a report is stale, unreadable or missing, or its clock
     differs; nothing is reported; a part could not be read. If 1 and 2 apply, it is 1.
  3  nothing could be read, or there is a mistake in the command line

Rights: get, list and watch on these resources, for the object named cluster; list
and watch on kmshealths.kmshealth.openshift.io, where there are any; optionally get on
the operator's Lease, to check whether the operator runs. What doctor reads besides is
in docs/reference/kubectl.md.

Completion: kubectl completes the commands of this plugin when an executable named
kubectl_complete-kms_health is in PATH:
  #!/bin/sh
  exec kubectl kms-health __complete "$@"`

func newRoot(e environment) *cobra.Command {
	root := &cobra.Command{
		Use:           program,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kms-health"},
		Short:         "Shows the state of the KMS v2 plugins of a cluster's API servers",
		Long:          about,
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		// Without a command, print the help.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(version.Line(program) + "\n")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	root.PersistentFlags().AddGoFlag(logging.Lookup("v"))
	root.AddCommand(newStatus(e), newWatch(e), newExplain(e), newDoctor(e), newVersion())
	return root
}
