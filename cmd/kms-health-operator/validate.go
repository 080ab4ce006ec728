package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// defaultConfig is where the shipped manifests mount the file.
const defaultConfig = "/etc/kms-health-operator/config.yaml"

func newValidate() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate --config FILE",
		Short: "Check a file, print it with its defaults, or every error",
		Long: `Checks the operator's file, or that in a ConfigMap (data, config.yaml), and prints it
with its defaults, or every error on a line of its own. Warns of folders of sockets that the
admission policy of the manifests does not allow.`,
		Example: `  kms-health-operator print-defaults > operator.yaml
  kms-health-operator validate --config operator.yaml`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			for _, t := range c.APIServers {
				onNodes := t.Mode == v1alpha1.ModeAuto || t.Mode.ServesNode() // the folders may be the nodes'
				if why := objects.NotAllowed(objects.AsNamed(t.Plugins)); why != "" && onNodes {
					cmd.PrintErrf("warning: %s: %s: %s\n", filewatch.Shown(file), t.Name, why)
				}
			}
			raw, err := yaml.Marshal(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "# ok: %s, as it is with its defaults\n%s", filewatch.Shown(file), raw)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", defaultConfig, "the configuration `file`; - is standard input")
	return cmd
}

// readConfig reads an OperatorConfiguration, or the ConfigMap that has it. An error has one line for each error of
// the file.
func readConfig(file string, stdin io.Reader) (*v1alpha1.OperatorConfiguration, error) {
	content := filewatch.ReadOnce(file, stdin, v1alpha1.MaxFileSize)
	if content.Err != nil {
		return nil, usageError{fmt.Errorf("--config: %w", content.Err)}
	}
	c, err := v1alpha1.DecodeOperator(content.Data)
	if err != nil {
		at := filewatch.Shown(file) + ": "
		return nil, errors.New(at + strings.ReplaceAll(err.Error(), "\n", "\n"+at))
	}
	return c, nil
}

func newPrintDefaults() *cobra.Command {
	kubernetes := false
	cmd := &cobra.Command{
		Use:   "print-defaults [--kubernetes]",
		Short: "Print a sample file: OpenShift's three API servers, or a plain control plane",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sample := v1alpha1.OperatorOpenShift
			if kubernetes {
				sample = v1alpha1.OperatorKubernetes
			}
			_, err := cmd.OutOrStdout().Write(sample)
			return err
		},
	}
	cmd.Flags().BoolVar(&kubernetes, "kubernetes", false, "the sample for a plain control plane, such as kubeadm's")
	return cmd
}
