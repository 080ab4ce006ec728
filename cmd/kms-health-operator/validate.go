package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// defaultConfig is where the shipped manifests mount the file.
const defaultConfig = "/etc/kms-health-operator/config.yaml"

func newValidate() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate [--config FILE]",
		Short: "Check a file, print it with its defaults, or every mistake",
		Args:  cobra.NoArgs,
		RunE: works(func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file)
			if err != nil {
				return err
			}
			raw, err := yaml.Marshal(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "# ok: %s, as it is with its defaults\n%s", file, raw)
			return err
		}),
	}
	cmd.Flags().StringVar(&file, "config", defaultConfig, "the configuration `file`")
	return cmd
}

// readConfig reads an OperatorConfiguration. An error holds a line per mistake.
func readConfig(file string) (*v1alpha1.OperatorConfiguration, error) {
	content := filewatch.Read(file, v1alpha1.MaxFileSize)
	if content.Err != nil {
		return nil, content.Err
	}
	c, err := v1alpha1.DecodeOperator(content.Data)
	if err != nil {
		return nil, errors.New(file + ":\n  " + strings.Join(v1alpha1.Lines(err), "\n  "))
	}
	return c, nil
}

func newPrintDefaults() *cobra.Command {
	kubernetes := false
	cmd := &cobra.Command{
		Use:   "print-defaults [--kubernetes]",
		Short: "Print a sample file: OpenShift's three API servers, or a plain control plane",
		Args:  cobra.NoArgs,
		RunE: works(func(cmd *cobra.Command, _ []string) error {
			sample := v1alpha1.OperatorOpenShift
			if kubernetes {
				sample = v1alpha1.OperatorKubernetes
			}
			_, err := cmd.OutOrStdout().Write(sample)
			return err
		}),
	}
	cmd.Flags().BoolVar(&kubernetes, "kubernetes", false, "that of a plain control plane")
	return cmd
}
