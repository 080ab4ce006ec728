package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

func newDoctor(e environment) *cobra.Command {
	o := options{environment: e}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation: what is wrong, and what to do next",
		Long: `Checks an installation: that the operator runs, that reporters are delivered, that
they run with the current configuration, what they report, clocks, credentials, keys,
and the API server's own metrics about KMS. Each finding is OK, WARNING, ERROR or
UNKNOWN, with what was found and what to do next. UNKNOWN: what the check needs could
not be read, for example since there is no right to.

It reads no Secret, and writes nothing. In a must-gather or the output of
oc adm inspect it checks the same, as far as the files have it.

Exit codes: 0 all OK, 1 an ERROR or a WARNING, 2 otherwise an UNKNOWN, 3 nothing could
be read.`,
		Example: `  kubectl kms-health doctor

  # Of a must-gather, or of the output of oc adm inspect, without a cluster.
  oc adm inspect clusteroperator/kms-health
  kubectl kms-health doctor --from-file inspect.local.123

  # What is wrong?
  kubectl kms-health doctor -o json | jq -r '.findings[] | select(.status != "OK") | [.status, .check, .target, .found] | @tsv'`,
		Args:    noArguments,
		PreRunE: o.validate,
		RunE:    works(func(cmd *cobra.Command, _ []string) error { return o.doctor(cmd.Context()) }),
	}
	o.clusterFlags(cmd)
	o.selectFlags(cmd, false)
	o.fileFlags(cmd)
	o.tableFlags(cmd)
	o.outputFlag(cmd, "json", "yaml")
	return cmd
}

func (o *options) doctor(ctx context.Context) error {
	s := &doctor.Snapshot{Namespaces: o.leaseNamespaces(), Wanted: o.wants}
	collect := o.examine
	if len(o.files) > 0 {
		collect = o.examineFiles
	}
	if err := collect(ctx, s); err != nil {
		return err
	}
	d := doctor.Evaluate(s)
	var err error
	if o.output != "" {
		err = encode(o.stdout, o.output, d)
	} else {
		_, err = io.WriteString(o.stdout, show.Diagnosis(&d, o.table()))
	}
	if err != nil {
		return err
	}
	return exitCode(d.Verdict(), false)
}

// examine reads a cluster.
func (o *options) examine(ctx context.Context, s *doctor.Snapshot) error {
	c, err := o.cluster()
	if err != nil {
		return err
	}
	live := &source.Live{Cluster: c}
	doctor.Collect(ctx, live, s)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err := live.Unreachable(); err != nil && len(s.Targets) == 0 && len(s.Objects) == 0 {
		return err
	}
	s.Offset = c.Offset()
	s.Now = o.clock.Now().Add(s.Offset)
	return nil
}

// examineFiles reads files.
func (o *options) examineFiles(ctx context.Context, s *doctor.Snapshot) error {
	taken, err := o.takeFiles(source.Files{Objects: true})
	if err != nil {
		return err
	}
	if len(taken.Targets) == 0 && taken.Gathered.Empty() {
		return fmt.Errorf("%s: has no object of kms-health: expected a folder or an archive of oc adm must-gather, or of oc adm inspect clusteroperator/kms-health", strings.Join(o.files, ", "))
	}
	if slices.ContainsFunc(taken.Targets, view.Target.IsOutput) {
		return fmt.Errorf("%s: the output of a reporter has nothing that the doctor checks; see it by kubectl kms-health status", strings.Join(o.files, ", "))
	}
	s.Files = true
	doctor.Collect(ctx, source.Offline{Taken: taken}, s)
	s.Now, err = o.evaluatedAt(taken)
	return err
}
