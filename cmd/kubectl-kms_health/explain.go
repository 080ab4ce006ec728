package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/pkg/contract"
)

func newExplain(e environment) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
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
			text, err := explain(args, format)
			if err == nil {
				_, err = e.stdout.Write(text)
			}
			return err
		},
	}
	addOutput(cmd, &format, []string{"json", "yaml"})
	return cmd
}

// explain is the output for one name, or the list of all.
func explain(args []string, format string) ([]byte, error) {
	all := show.Explanations()
	if len(args) == 0 {
		return show.As(format, all, show.List(all))
	}
	for _, name := range []string{args[0], withoutPrefix(args[0])} {
		at := slices.IndexFunc(all, func(x show.Explanation) bool { return x.Has(name) })
		if at >= 0 {
			return show.As(format, all[at], all[at].Text())
		}
	}
	return nil, fmt.Errorf("%q is no reason, alert or condition of this version%s", args[0], similar(args[0]))
}

// withoutPrefix is the reason in that of a ClusterOperator, which has the name of a condition before it.
func withoutPrefix(name string) string { return name[strings.LastIndex(name, "_")+1:] }

// similar are the names that contain the given one, for an error.
func similar(name string) string {
	found := slices.DeleteFunc(contract.Explainable(), func(n string) bool {
		return !strings.Contains(strings.ToLower(n), strings.ToLower(name))
	})
	if name == "" || len(found) == 0 {
		return "; kubectl kms-health explain lists all"
	}
	return "; names with this text: " + strings.Join(found, ", ")
}
