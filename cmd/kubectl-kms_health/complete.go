package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// patience of somebody who pressed Tab.
const patience = 2 * time.Second

// completeNodes offers the nodes that anything is known of.
func (o *options) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	quiet := *o
	quiet.stderr = io.Discard
	quiet.nodes = nil
	if slices.Contains(o.files, "-") { // it is the shell's
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f, err := quiet.read(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, _ := view.Of(f.targets, f.now)
	return s.Nodes(), cobra.ShellCompDirectiveNoFileComp
}

func (o *options) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := o.clientConfig().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
