package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/pkg/contract"
)

func newExplain(e environment) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [REASON | ALERT | CONDITION]",
		Short: "Explain a reason, an alert or a condition: what it means, what to check, how to fix it",
		Long: `Explains a reason, an alert or a condition of this project: what it means, what to
check, how to fix it, and what makes it worse. Without a name it lists all of them.

It needs no cluster. The texts are those of the runbooks. Upper and lower case are the
same, and a reason of a ClusterOperator may have its prefix, as KMSPlugins_PluginError.`,
		Example: `  kubectl kms-health explain PluginUnhealthy
  kubectl kms-health explain KMSWriteKeysDiffer        # an alert
  kubectl kms-health explain KMSPluginsDegraded        # a condition`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return contract.Explainable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, found := show.Explanations(), true
			if len(args) > 0 {
				text, found = show.Explain(args[0])
			}
			if !found { // a reason of a ClusterOperator has the name of a condition before it
				text, found = show.Explain(args[0][strings.LastIndex(args[0], "_")+1:])
			}
			if !found {
				return fmt.Errorf("%q is no reason, alert or condition of this version; %s", args[0], similar(args[0]))
			}
			_, err := fmt.Fprint(e.stdout, text)
			return err
		},
	}
}

// similar suggests names, as for a misspelt command.
func similar(name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, n := range contract.Explainable() {
		names.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	if all := names.SuggestionsFor(name); len(all) > 0 {
		return "similar are " + strings.Join(all, ", ")
	}
	return "kubectl kms-health explain lists all"
}
