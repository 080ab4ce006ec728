// cluster runs a real cluster with kms-health until Ctrl-C, to try things by hand: `make cluster-up`. For its parts see
// go doc ./test/e2e/cluster
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

func main() {
	nodes := flag.Int("nodes", 1, "how many nodes, from 1 to 9")
	bare := flag.Bool("bare", false, "leave kms-health out, to install it by the documentation")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *nodes, *bare)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, bare bool) (err error) {
	dir, err := os.MkdirTemp("", "kms-health-up-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := fixture.New(ctx, dir, cluster.Options{Assets: os.Getenv("KUBEBUILDER_ASSETS"), Nodes: nodes, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if bare {
		err = prepare(ctx, s)
	} else {
		err = install(ctx, s)
	}
	if err != nil {
		return err
	}
	proxy, err := controlplane.NewProxyBy(func() (net.Conn, error) {
		return s.Nodes()[0].Dial(ctx, "tcp", "127.0.0.1:6443")
	})
	if err != nil {
		return err
	}
	defer proxy.Close()
	content, err := s.Kubeconfig(proxy.URL())
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return err
	}
	invite(s, kubeconfig, bare)
	<-ctx.Done()
	fmt.Println("\nEnding everything.")
	return nil
}

// install installs kms-health on the cluster, and turns KMS on.
func install(ctx context.Context, s *fixture.Cluster) error {
	version, err := s.Build(ctx, "dev", ".")
	if err != nil {
		return err
	}
	if err := s.Install(ctx, version, fixture.Configuration); err != nil {
		return err
	}
	if err := s.AwaitOperator(ctx); err != nil {
		return err
	}
	return s.TurnOn(ctx)
}

// prepare adds the parts of OpenShift that the manifests need, and turns KMS on.
func prepare(ctx context.Context, s *fixture.Cluster) error {
	files, err := controlplane.MonitoringCRDs()
	if err != nil {
		return err
	}
	if err := s.ApplyFiles(ctx, files...); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "", "create", "namespace", "openshift-config-managed"); err != nil {
		return err
	}
	if err := s.ServingCertificate(ctx); err != nil {
		return err
	}
	return s.Encrypt(ctx)
}

// invite prints commands for the cluster.
func invite(s *fixture.Cluster, kubeconfig string, bare bool) {
	fmt.Printf(`
The cluster is up until Ctrl-C, with KMS on. In another terminal:
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get nodes,pods -A
A plugin becomes unhealthy, and recovers by heal; first: make bin/kms-plugin
  bin/kms-plugin ctl --control %s unhealthy "vault is sealed"
A shell in a node:
`, kubeconfig, os.Getenv("KUBEBUILDER_ASSETS"), s.Nodes()[0].Path(cluster.PluginControl("1")))
	const enter = "nsenter --all --wdns=/ --target"
	for _, n := range s.Nodes() {
		fmt.Printf("  %s %d    # %s\n", enter, n.PID(), n.Name)
	}
	fmt.Printf("What etcd stores; first: make build\n  nsenter --net --target %d bin/kubectl-kms_health stored-keys "+
		"--endpoints http://127.0.0.1:2379\n", s.Nodes()[0].PID())
	if !bare {
		fmt.Println("The state of KMS:\n  bin/kubectl-kms_health status")
		return
	}
	fmt.Println("No registry is reachable from it. Bring the images to each node, then follow docs/quickstart/single-node.md\n" +
		"with the registry registry.invalid and the tag v0:\n  make image build ARCHITECTURES=amd64 VERSION=v0")
	for _, program := range []string{"operator", "reporter"} {
		fmt.Printf("  %s %d ctr -n k8s.io images import - <bin/images/kms-health-%s.tar\n", enter, s.Nodes()[0].PID(),
			program)
	}
}
