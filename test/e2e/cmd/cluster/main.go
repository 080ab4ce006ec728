// cluster keeps a real cluster with kms-health on it, for trying things by hand:
// `make cluster-up`, `make cluster-down`.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/test/e2e/cluster"
)

func main() {
	cluster.Main()
	root := &cobra.Command{
		Use:   "e2e-cluster",
		Short: "A real cluster on this host, with kms-health on it",
		Long: `Runs a real cluster on this host, as root: etcd, kubelets, containerd, and
kube-apiserver as a static pod that is encrypted by the development KMS plugin, with
kms-health. Its interval is 1s, and openshift-apiserver is in the mode Sidecar with a
deployment. What it is made of: go doc ./test/e2e/cluster

Everything is started from the root of the checkout, as make does it.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUp(), newHold(), newDown(), newExec(), newPlugin())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e-cluster:", err)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}
