package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

func newExplain(e environment) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [REASON | ALERT | CONDITION]",
		Short: "Explain a reason, an alert or a condition: what it means, what to check, how to fix it",
		Long: `Explains a reason, an alert or a condition of this project: what it means, what to
check, how to fix it, and what makes it worse. Without a name it explains all of them.

It needs no cluster, and prints the texts of the runbooks. Upper and lower case are the
same. A reason of a ClusterOperator may be as it is there, also of several conditions:
KMSPlugins_PluginError::KmsHealthReports_Error.`,
		Example: `  kubectl kms-health explain PluginUnhealthy
  kubectl kms-health explain KMSWriteKeysDiffer        # an alert
  kubectl kms-health explain KMSPluginsDegraded        # a condition`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: show.Names(), // for completion
		RunE: func(_ *cobra.Command, args []string) error {
			text := explain(cmp.Or(strings.Join(args, ""), show.All))
			if text == "" {
				return fmt.Errorf("%q is no reason, alert or condition of this version; "+
					"kubectl kms-health explain lists all", args[0])
			}
			_, err := fmt.Fprint(e.stdout, text)
			return err
		},
	}
}

// explain explains a name. A reason of a ClusterOperator has the name of a condition before it. StatusSyncers join
// those of several conditions by "::", and some may be OpenShift's. The text is empty if none is known.
func explain(name string) (text string) {
	for part := range strings.SplitSeq(name, "::") {
		text += cmp.Or(show.Explain(part), show.Explain(part[strings.LastIndex(part, "_")+1:]))
	}
	return text
}
