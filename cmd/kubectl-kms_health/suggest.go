package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kms-health/kms-health/pkg/suggest"
)

// knownCommand rejects an unknown command, with the one that it is similar to.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q%s", args[0], suggest.DidYouMean(args[0], names))
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if cmd.Flags().Lookup("node") != nil {
		hint = "; a node is selected by --node, an API server by --target"
	}
	return fmt.Errorf("%s takes no argument, such as %q%s", cmd.Name(), args[0], hint)
}

func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the name of one node, not %d names", cmd.Name(), len(args))
	}
	return nil
}

// suggestFlag adds to the error about an unknown flag the one that it is similar to.
func suggestFlag(cmd *cobra.Command, err error) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return suggest.Flag(err, names)
}
