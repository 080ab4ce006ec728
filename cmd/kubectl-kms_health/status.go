package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

func newStatus(e environment) *cobra.Command {
	o := options{environment: e}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of every plugin, and the operator's conditions",
		Long: `Shows the state of every plugin, a line for each API server, node and key, and
below it the operator's last conditions of each API server. "(write)" is the key that
a node encrypts with. AGE is how long ago the plugin was last checked.

Details are below their row, wrapped to the terminal's width, or to 80 columns if the
output is not a terminal. Then the columns are always the same; for programs there are
-o json and -o yaml.

Exit codes: 0 all healthy, 1 some plugin is unhealthy, 2 not known, 3 nothing could be
read; see kubectl kms-health --help.`,
		Example: `  # All of a cluster, with ids and details in full.
  kubectl kms-health status -o wide

  # Of one node, one API server.
  kubectl kms-health status --target kubeapiservers --node master-0

  # Check by the exit code whether every plugin is healthy.
  kubectl kms-health status > /dev/null

  # Of a must-gather, without a cluster.
  kubectl kms-health status --from-file must-gather.local.123
  kubectl kms-health status --from-file must-gather.tar.gz

  # Which plugins are not healthy?
  kubectl kms-health status -o json |
    jq -r '.targets[] | .target as $t | .plugins[] | select(.state != "healthy") | [$t, .node, .keyID, .state] | @tsv'`,
		Args:    noArguments,
		PreRunE: o.validate,
		RunE:    works(func(cmd *cobra.Command, _ []string) error { return o.status(cmd) }),
	}
	o.clusterFlags(cmd)
	o.selectFlags(cmd, true)
	o.fileFlags(cmd)
	o.tableFlags(cmd)
	o.outputFlag(cmd, "json", "yaml", "wide")
	return cmd
}

func (o *options) status(cmd *cobra.Command) error {
	f, err := o.read(cmd.Context())
	if err != nil {
		return err
	}
	s, _ := view.Of(f.targets, f.now)
	if err := known(&s, o.nodes); err != nil {
		return err
	}
	s.Select(o.nodes)
	if o.output == "json" || o.output == "yaml" {
		err = encode(o.stdout, o.output, s)
	} else {
		table := o.table()
		table.Doubtful = f.operatorStopped
		_, err = io.WriteString(o.stdout, show.Table(&s, table))
	}
	if err != nil {
		return err
	}
	return exitCode(s.Verdict(), f.partly)
}

// exitCode is the verdict as an error, which ends a command with its code.
func exitCode(v view.Verdict, partly bool) error {
	if v == view.AllHealthy && partly {
		v = view.CannotTell
	}
	if v == view.AllHealthy {
		return nil
	}
	return verdict(v)
}

// known returns an error with the known nodes if a selected one is not among them.
func known(s *view.Status, nodes []string) error {
	have := s.Nodes()
	for _, node := range nodes {
		if slices.Contains(have, node) {
			continue
		}
		if len(have) == 0 {
			return fmt.Errorf("node %q: no node has reported anything", node)
		}
		return fmt.Errorf("node %q is not known here; known are %s", node, listed(have))
	}
	return nil
}

// maxListed is how many names an error lists.
const maxListed = 20

func listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// encode writes v in a form.
func encode(w io.Writer, form string, v any) error {
	raw, err := show.JSON(v)
	if err == nil && form == "yaml" {
		raw, err = show.YAML(raw)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(raw)
	return err
}
