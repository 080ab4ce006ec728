package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/version"
)

var about = `Shows each KMS plugin of a cluster's API servers: the verdict, each problem with the
command to run next, the plugins by node and key, and conditions that are not as expected.
Of one node it shows everything, and the last changes of conditions.

It evaluates the reports itself, so that it works while the operator is down. It writes
nothing, except with --wait: the request, as preflight.

"(write)" is the key that a node encrypts with. AGE is that of the last check, SINCE of the
state, TRIP of the last good round trip, all by the node's clock. LOST are former keys that
no longer decrypt. A plugin is healthy; unhealthy; in error, if it does not answer; stale, if
its report is over 4 intervals old by that clock, unless another one is fresh, the operator
works, and KMSHealthReporting is True; unreadable, if its report is; or missing, if it has none.

Exit codes:
  0  every plugin is healthy by a fresh report
  1  a plugin is unhealthy or in error, or the operator's configuration is rejected
  2  not known: a report is stale, unreadable or missing, nothing is reported, the
     operator is not running, or a part could not be read
  3  nothing could be read, the output could not be written, or the command line is wrong

Rights: get ` + strings.Join(contract.ResourceNames(), ", ") + `
(` + contract.OperatorGroup + `) named ` + contract.OperatorObject + `, or list kmshealths
(` + contract.KMSHealths.Group + `). Optional: get the operator's Deployment, Lease and
ConfigMap; list Events in its namespace, and pods there and in those of the API servers.`

// options are the flags.
type options struct {
	environment
	config *genericclioptions.ConfigFlags

	name    string // of an API server or a node; empty: all
	output  string
	file    string
	timeout time.Duration // for how long to wait; 0: not at all
}

func newStatus(e environment) *cobra.Command {
	o, cmd := newOptions(e, (*options).run)
	cmd.Use = "status [API-SERVER | NODE]"
	cmd.Short, cmd.Long = "Show the state of every plugin, problems first, each with the next command", about
	cmd.Example = `  kubectl kms-health status
  kubectl kms-health status master-0                          # everything about a node
  kubectl kms-health status --wait=10m                        # in a pipeline, after a change
  kubectl kms-health status --from-file must-gather.local.123`
	addOutput(cmd, &o.output, "wide", "json", "yaml")
	f := cmd.Flags()
	f.DurationVar(&o.timeout, "wait", 0, "wait at most so long until everything is healthy by new round trips")
	f.Lookup("wait").NoOptDefVal = "5m"
	f.StringVar(&o.file, "from-file", "", "read this `path` instead of a cluster: a folder, as of a must-gather,"+
		" or a file with resources in YAML or JSON; - is standard input")
	return cmd
}

// newOptions returns a command that reads a cluster, with the flags that all of these have.
func newOptions(e environment, run func(*options, context.Context) error) (*options, *cobra.Command) {
	o := &options{environment: e, config: genericclioptions.NewConfigFlags(false)}
	o.config.CacheDir = nil // discovery is not used
	cmd := &cobra.Command{
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = strings.Join(args, "")
			if err := o.open(); err != nil {
				return err
			}
			return run(o, cmd.Context())
		},
	}
	f := cmd.Flags()
	o.config.AddFlags(f)
	f.Lookup("namespace").Usage = "The operator's namespace; not set: " + strings.Join(source.Namespaces, ", or ")
	return o, cmd
}

// addOutput adds -o, which is one of these formats, or not set.
func addOutput(cmd *cobra.Command, output *string, formats ...string) {
	all := "one of " + strings.Join(formats, ", ")
	cmd.Flags().FuncP("output", "o", "the `format`: "+all, func(format string) error {
		if !slices.Contains(formats, format) {
			return errors.New("must be " + all)
		}
		*output = format
		return nil
	})
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) run(ctx context.Context) (err error) {
	var last *view.Status
	if _, err := time.ParseDuration(o.name); err == nil && o.timeout != 0 {
		return fmt.Errorf("%q is no API server and no node; to wait so long, write --wait=%[1]s", o.name)
	}
	if o.timeout == 0 {
		last, err = o.evaluate(ctx)
	} else {
		err = o.follow(ctx, "wait", func(s *view.Status, trips *view.Trips) bool {
			trips.Await(s)
			last = s
			return s.Verdict == view.Healthy
		})
	}
	if err != nil {
		return err
	}
	return o.print(o.output, last, show.Status(last, o.output == "wide"), last.Verdict)
}

func (o *options) evaluate(ctx context.Context) (*view.Status, error) {
	snapshot, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	return view.Evaluate(snapshot, o.name)
}

// open sets what reads the cluster or the files that the flags select.
func (o *options) open() error {
	switch {
	case o.read != nil:
		return nil
	case o.file != "" && (o.timeout != 0 || *o.config.Namespace != ""):
		return errors.New("--from-file: files do not change, and any of their namespaces may have the operator," +
			" so --wait and -n are not possible")
	case o.file != "":
		o.read = func(context.Context) (*view.Snapshot, error) {
			return source.ReadFiles(o.file, o.stdin, o.clock.Now())
		}
		return nil
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "kubectl-kms-health/" + version.Version
	cluster, err := source.NewCluster(config, *o.config.Namespace, o.clock)
	if err == nil {
		o.read, o.request = cluster.Read, cluster.Request
	}
	return err
}
