// kms-health-operator runs a kms-health-reporter next to every KMS plugin of a cluster's
// API servers, and reports the health of the plugins for the whole cluster.
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
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/output"
	"github.com/kms-health/kms-health/pkg/version"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed, or the file has errors
	exitUsage  = 3 // the command line is wrong, or the file cannot be read
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, stderr io.Writer) int {
	stdout := &output.Checked{Writer: out}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false // else the command line is wrong
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	switch {
	case stdout.Err != nil:
		err = fmt.Errorf("standard output: %w", stdout.Err)
	case err == nil:
		return exitOK
	case !started:
		_, _ = fmt.Fprintf(stderr, "error: %v\nSee kms-health-operator --help.\n", err)
		return exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(stderr, "error: %s\n", line)
	}
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

// usageError is the error of a wrong command line, or of a file that cannot be read.
type usageError struct{ error }

// noFiles rejects arguments of commands that take their files by flags.
func noFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q: %s takes its files by flags, such as --config FILE", args[0], cmd.Name())
	}
	return nil
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kms-health-operator",
		Short: "Runs a kms-health-reporter next to every KMS plugin of a cluster's API servers",
		Long: `kms-health-operator runs a kms-health-reporter next to every KMS plugin of a
cluster's API servers, keeps its configuration current, and removes everything when
KMS is turned off. It is configured by one file: print-defaults prints a sample, and
docs/reference/configuration.md explains every field.

Exit codes:
  0  success; start: ended by SIGTERM or SIGINT
  1  the command failed; validate: the file has errors
  3  the command line is wrong, or the file cannot be read`,
		Version:       version.Text(), // a SetVersionTemplate would link text/template
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		// Without a command, print the help.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	for _, name := range []string{"v", "vmodule"} {
		root.PersistentFlags().AddGoFlag(logging.Lookup(name))
	}
	root.AddCommand(newStart(), newRender(), newValidate(), newPrintDefaults())
	return root
}
