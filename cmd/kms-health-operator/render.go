package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator"
	"github.com/kms-health/kms-health/pkg/operator/render"
)

func newRender() *cobra.Command {
	var config, image, folder string
	var in render.Input
	cmd := &cobra.Command{
		Use:   "render --config FILE --output-dir DIR",
		Short: "Write the objects that would be applied into files, without an API server",
		Long: `Writes what the operator would apply for one API server into files, without any API
server: for bootstrap, for control planes without the operator, for GitOps, or to
see what it would apply. The files are numbered in the order to apply them in.

What is written depends on the API server's mode, DaemonSet or Sidecar, and on --pod: see
docs/operate/by-hand.md.

Environment:
  IS_OPENSHIFT    true or false. Without it, this is OpenShift unless each API server's
                  resource is kmshealths.`,
		Example: `  # What runs the reporters of a plain control plane.
  kms-health-operator print-defaults --kubernetes > operator.yaml
  kms-health-operator render --config operator.yaml --image REGISTRY/kms-health-reporter:v1 \
    --ca-file /etc/kubernetes/pki/ca.crt --output-dir out`,
		Args: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if in.Config, err = readConfig(config, cmd.InOrStdin()); err != nil {
				return err
			}
			in.OpenShift, err = operator.IsOpenShift(slices.ContainsFunc(in.Config.APIServers, func(t v1alpha1.APIServer) bool {
				return !t.ReportsTo().PerAPIServer()
			}))
			problems := []error{err, in.Config.UseImage(image)}
			if folder == "" {
				problems = append(problems, errors.New("--output-dir: is empty, must be the folder to write to"))
			}
			files, warnings, err := render.Render(in, problems...)
			if err != nil {
				return usageError{err}
			}
			for _, warning := range warnings {
				cmd.PrintErrln("warning: " + warning)
			}
			return write(folder, files, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&config, "config", defaultConfig, "the configuration `file` of the operator; - is standard input")
	addInputFlags(f, &in)
	f.StringVar(&image, "image", os.Getenv(imageVariable), "the reporter's `image`, where the file names none")
	f.StringVar(&folder, "output-dir", "", "the `folder` to write to; files of the same names are replaced")
	_ = cmd.MarkFlagDirname("output-dir")
	return cmd
}

// write writes the files, and prints the path of each with its note.
func write(folder string, files []render.File, out io.Writer) error {
	for _, f := range files {
		path := filepath.Join(folder, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", path, f.Note); err != nil {
			return err
		}
	}
	return nil
}

// content is a flag that names a file. It has the content of that file.
type content []byte

func (c *content) Set(path string) error {
	read := filewatch.ReadOnce(path, os.Stdin, v1alpha1.MaxFileSize)
	*c = read.Data
	return read.Err
}
func (c *content) String() string { return "" }
func (c *content) Type() string   { return "file" }

func addInputFlags(f *pflag.FlagSet, in *render.Input) {
	f.StringVar(&in.APIServer, "api-server", "", "the `name` of one of its API servers, where there are several")
	f.Var((*content)(&in.EncryptionConfig), "encryption-config",
		"the API server's EncryptionConfiguration, a `file`; needed unless the configuration names its plugins")
	f.Var((*content)(&in.Pod), "pod",
		"the API server's pod, a `file`: a static pod's manifest, a Deployment, or a running Pod; - is standard input")
	f.Var((*content)(&in.CA), "ca-file", "the API server's CA, a PEM `file`, to go into kubeconfigs")
	f.StringVar(&in.Namespace, "namespace", cmp.Or(os.Getenv(namespaceVariable), contract.KubernetesNamespace),
		"the `namespace` of reporters that are pods of their own")
	f.StringVar(&in.HostFolder, "host-folder", "/etc/kubernetes/kms-health",
		"the `folder` on the node for a static pod's files")
}
