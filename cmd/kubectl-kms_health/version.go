package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/pkg/version"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: works(func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Line(program))
			return err
		}),
	}
}
