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

// completionTimeout bounds a completion.
const completionTimeout = 2 * time.Second

// completeNodes completes the names of nodes that have a report or should have one.
func (o *options) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	quiet := *o
	quiet.stderr = io.Discard
	quiet.nodes = nil
	if slices.Contains(o.files, "-") { // stdin belongs to the shell
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
