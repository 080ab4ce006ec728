package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

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
