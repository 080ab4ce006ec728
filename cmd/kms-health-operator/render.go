package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/process"
	"github.com/kms-health/kms-health/pkg/operator/render"
)

type renderOptions struct {
	config, target, encryptionConfig, apiServer, pod, ca string
	namespace, image, hostFolder, output                 string
}

func newRender() *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render --config FILE --output-dir DIR",
		Short: "Write what would be applied into files, without any API server",
		Long: `Writes what the operator would apply for one target into files, without any API
server: for bootstrap, for control planes without the operator, for GitOps, or to
see what would be done. The files are numbered in the order to apply them in.

What is made depends on the target's delivery and on --pod:
  DaemonSet            the agents; the sockets' folders are those of the endpoints,
                       or those that the pod mounts
  Deployment, External with a Deployment: its manifest with the reporter in it
  any                  with a static pod's manifest: the manifest with the reporter
                       in it, and the files for its node. The node's name is the
                       word NODE_NAME, which an installer replaces
  Companion            with a running pod, as kubectl get pod -o yaml shows it: the
                       reporter's pod for it`,
		Example: `  # The agents of a plain control plane.
  kms-health-operator print-defaults --kubernetes > operator.yaml
  kms-health-operator render --config operator.yaml --image REGISTRY/kms-health-reporter:v1 \
    --ca-file /etc/kubernetes/pki/ca.crt --output-dir out
  kubectl create namespace kms-health
  kubectl apply -f out

  # A static pod.
  kms-health-operator render --config operator.yaml --image REGISTRY/kms-health-reporter:v1 \
    --encryption-config encryption-config.yaml --pod kube-apiserver.yaml --output-dir out`,
		Args: cobra.NoArgs,
		RunE: works(func(cmd *cobra.Command, _ []string) error {
			files, err := o.render()
			if err != nil {
				return err
			}
			for _, f := range files {
				path := filepath.Join(o.output, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(path, f.Data, 0o644); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", path, f.Note); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", defaultConfig, "the configuration `file` of the operator")
	f.StringVar(&o.target, "target", "", "the `name` of one of its targets, where there are several")
	f.StringVar(&o.encryptionConfig, "encryption-config", "", "the API server's EncryptionConfiguration, a `file`; needed unless the target names its plugins")
	f.StringVar(&o.pod, "pod", "", "the API server's pod, a `file`: a static pod's manifest, a Deployment, or a running Pod")
	f.StringVar(&o.apiServer, "apiserver", "", "the object apiservers.config.openshift.io/cluster, a `file`, for its TLS profile")
	f.StringVar(&o.ca, "ca-file", "", "the API server's CA, a PEM `file`, to go into kubeconfigs")
	f.StringVar(&o.namespace, "namespace", orElse(os.Getenv(namespaceVariable), defaultNamespace), "the `namespace` of reporters that are pods of their own")
	f.StringVar(&o.image, "image", os.Getenv(imageVariable), "the reporter's `image`, where the file names none")
	f.StringVar(&o.hostFolder, "host-folder", "/etc/kubernetes/kms-health", "the `folder` on the node for a static pod's files")
	f.StringVar(&o.output, "output-dir", "", "the `folder` to write to; files of the same names are replaced")
	_ = cmd.MarkFlagRequired("output-dir")
	_ = cmd.MarkFlagDirname("output-dir")
	return cmd
}

func (o *renderOptions) render() ([]render.File, error) {
	config, err := readConfig(o.config)
	if err != nil {
		return nil, err
	}
	if err := config.UseImage(o.image); err != nil {
		return nil, err
	}
	openShift, err := process.ParseOpenShift(os.Getenv(process.OpenShiftVariable))
	if err != nil {
		return nil, err
	}
	in := render.Input{Config: config, Target: o.target, Namespace: o.namespace, HostFolder: o.hostFolder, OpenShift: openShift != nil && *openShift}
	for path, data := range map[string]*[]byte{
		o.encryptionConfig: &in.EncryptionConfig, o.pod: &in.Pod, o.apiServer: &in.APIServer, o.ca: &in.CA,
	} {
		if path == "" {
			continue
		}
		content := filewatch.Read(path, v1alpha1.MaxFileSize)
		if content.Err != nil {
			return nil, content.Err
		}
		*data = content.Data
	}
	return render.Render(in)
}
