package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

func newExplain(e environment) *cobra.Command {
	o := options{environment: e}
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Explain the state of one node: its reports, what they mean, what to do",
		Long: `Shows all that is known about one node: for each API server and key what was last
reported, when, and by whom; what it means; what to do next; and the conditions that
the operator last wrote.

Exit codes: of this node, as those of status.`,
		Example: `  kubectl kms-health explain master-0

  # Of the output of a reporter's --output, which does not contain the node's name.
  kubectl kms-health explain master-0 --from-file reporter.json`,
		Args:    oneNode,
		PreRunE: o.validate,
		RunE:    works(func(cmd *cobra.Command, args []string) error { return o.explain(cmd, args[0]) }),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.completeNodes(cmd, args, prefix)
		},
	}
	o.clusterFlags(cmd)
	o.selectFlags(cmd, false)
	o.fileFlags(cmd)
	o.outputFlag(cmd, "json", "yaml")
	return cmd
}

func (o *options) explain(cmd *cobra.Command, node string) error {
	o.nodes = []string{node}
	f, err := o.read(cmd.Context())
	if err != nil {
		return err
	}
	s, _ := view.Of(f.targets, f.now)
	if err := known(&s, o.nodes); err != nil {
		return err
	}
	explanation := view.Explain(&s, node)
	if o.output != "" {
		err = encode(o.stdout, o.output, explanation)
	} else {
		_, err = io.WriteString(o.stdout, show.Prose(&explanation, o.table()))
	}
	if err != nil {
		return err
	}
	s.Select(o.nodes)
	return exitCode(s.Verdict(), f.partly)
}
