// kms-health-operator brings a kms-health-reporter to every KMS plugin of a
// cluster's API servers, and takes them back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitOK    = 0
	exitIll   = 1 // it could not be done, or the file has mistakes
	exitUsage = 2 // the command or its flags cannot be parsed
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer klog.Flush()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var failed *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &failed):
		fmt.Fprintf(os.Stderr, "kms-health-operator: %v\n", err)
		return exitIll
	default:
		fmt.Fprintf(os.Stderr, "kms-health-operator: %v\nSee kms-health-operator --help.\n", err)
		return exitUsage
	}
}

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

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kms-health-operator",
		Short: "Brings a kms-health-reporter to every KMS plugin of a cluster's API servers",
		Long: `kms-health-operator brings a kms-health-reporter to every KMS plugin of a
cluster's API servers, keeps its file right, and takes everything back when KMS is
turned off. It is told what to do by one file: see print-defaults.

Exit codes:
  0  done; run: ended by SIGTERM or SIGINT
  1  it could not be done; validate: the file has mistakes
  2  the command or its flags cannot be parsed`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		// Without a command there is nothing to do: say what there is.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(versionLine() + "\n")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	for _, name := range []string{"v", "vmodule"} {
		root.PersistentFlags().AddGoFlag(logging.Lookup(name))
	}
	root.AddCommand(newRun(), newRender(), newValidate(), newPrintDefaults())
	return root
}
