package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// folder is where a running cluster describes itself, in the checkout.
const folder = ".tools/cluster-up"

// state is what the other commands must know of a running cluster.
type state struct {
	// PID is its process, and Started when it was started.
	PID     int
	Started time.Time
	// Dirs are its folders, which are left behind where that process was killed.
	Dirs []string
	// Nodes are the ids of their first processes. There are none until all is up.
	Nodes map[string]int
}

func stateFile() string { return filepath.Join(folder, "state.json") }

var errNone = errors.New("no cluster was started from this folder: make cluster-up")

func readState() (*state, error) {
	raw, err := os.ReadFile(stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNone
	}
	if err != nil {
		return nil, err
	}
	s := new(state)
	return s, json.Unmarshal(raw, s)
}

func (s *state) write() error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(), raw, 0o600)
}

// runs returns whether the cluster's process is there: that of this id, and no later one.
func (s *state) runs() bool {
	started, err := cluster.StartTime(s.PID)
	return err == nil && started.Sub(s.Started).Abs() < time.Second
}

func newUp() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster, and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s, err := readState(); err == nil && s.runs() {
				return fmt.Errorf("a cluster is up already, or about to be, as process %d: make cluster-down", s.PID)
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			return start(cmd.Context(), cmd.OutOrStdout(), fmt.Sprintf("--nodes=%d", o.nodes), fmt.Sprintf("--off=%t", o.off), fmt.Sprintf("--bare=%t", o.bare))
		},
	}
	o.add(cmd)
	return cmd
}

// options of a cluster.
type options struct {
	nodes     int
	off, bare bool
}

func (o *options) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&o.nodes, "nodes", 1, "how many nodes, from 1 to 9")
	cmd.Flags().BoolVar(&o.off, "off", false, "leave KMS off")
	cmd.Flags().BoolVar(&o.bare, "bare", false, "leave kms-health out, to install it by the documentation")
}

// start starts this program again, to hold the cluster, and shows what it reports until
// all is up.
func start(ctx context.Context, out io.Writer, args ...string) error {
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"hold"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	started, err := cluster.StartTime(cmd.Process.Pid)
	if err == nil {
		err = (&state{PID: cmd.Process.Pid, Started: started}).write()
	}
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // what it reports is shown
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	shown := 0
	show := func() (up bool) {
		raw, _ := os.ReadFile(log.Name())
		fmt.Fprint(out, string(raw[shown:]))
		shown = len(raw)
		return strings.Contains(string(raw), upLine)
	}
	for {
		select {
		case <-ended:
			show()
			return errors.New("the cluster is not up")
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return errors.New("interrupted: the cluster is down")
		case <-time.After(100 * time.Millisecond):
			if show() {
				return nil
			}
		}
	}
}

// upLine is the last line of the log when all is up.
const upLine = "End it with: make cluster-down\n"

func newHold() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "hold", Short: "Run a cluster until it is stopped", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return hold(ctx, o)
		},
	}
	o.add(cmd)
	return cmd
}

func hold(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "kms-health-up-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(stateFile())) }()
	s, err := fixture.New(ctx, fixture.Options{Assets: os.Getenv("KUBEBUILDER_ASSETS"), Dir: dir, Nodes: o.nodes, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := fill(ctx, s, o); err != nil {
		return err
	}
	if err := writeState(ctx, s, dir, o); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// fill puts kms-health on the cluster, and turns KMS on.
func fill(ctx context.Context, s *fixture.Cluster, o options) error {
	if o.bare {
		if err := prepare(ctx, s); err != nil || o.off {
			return err
		}
		return s.Encrypt(ctx)
	}
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	version, err := s.Build(ctx, "dev", checkout)
	if err != nil {
		return err
	}
	if err := s.Install(ctx, version, fixture.Configuration); err != nil {
		return err
	}
	if err := s.AwaitOperator(ctx); err != nil || o.off {
		return err
	}
	return s.TurnOn(ctx)
}

// prepare adds what the manifests need of OpenShift.
func prepare(ctx context.Context, s *fixture.Cluster) error {
	files, err := controlplane.MonitoringCRDs()
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := s.Kubectl(ctx, string(content), "apply", "--server-side", "-f", "-"); err != nil {
			return err
		}
	}
	if _, err := s.Kubectl(ctx, "", "create", "namespace", "openshift-config-managed"); err != nil {
		return err
	}
	return s.ServingCertificate(ctx)
}

// writeState writes the files by which the other commands, and kubectl on the host, find the cluster.
func writeState(ctx context.Context, s *fixture.Cluster, dir string, o options) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go forward(ctx, listener, s.Nodes()[0])
	kubeconfig, err := filepath.Abs(filepath.Join(folder, "kubeconfig"))
	if err != nil {
		return err
	}
	content, err := s.Kubeconfig("https://" + listener.Addr().String())
	if err != nil {
		return err
	}
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return err
	}
	reported, err := readState()
	if err != nil {
		return err
	}
	reported.Dirs, reported.Nodes = []string{s.Dir(), dir}, map[string]int{}
	for _, n := range s.Nodes() {
		reported.Nodes[n.Name] = n.PID()
	}
	if err := reported.write(); err != nil {
		return err
	}
	fmt.Printf("\nThe cluster is up.\n  export KUBECONFIG=%s PATH=%s:$PATH\n  kubectl get nodes,pods -A\n", kubeconfig, os.Getenv("KUBEBUILDER_ASSETS"))
	if o.bare {
		fmt.Print("No registry is reachable from it. Bring the images to each node, then follow docs/quickstart/single-node.md\n" +
			"with the registry registry.invalid and the tag v0:\n  make image build ARCHITECTURES=amd64 VERSION=v0\n")
		for _, program := range []string{"operator", "reporter"} {
			fmt.Printf("  bin/e2e-cluster exec node-1 -- ctr -n k8s.io images import - <bin/images/kms-health-%s.tar\n", program)
		}
	} else if !o.off {
		fmt.Print("  bin/kubectl-kms_health status        # make build\n")
	}
	if !o.off {
		fmt.Printf("  bin/e2e-cluster plugin node-1 %s-1 unhealthy \"vault is sealed\"      # and heal\n", apiservers.Kube.Name)
	}
	fmt.Print("  bin/e2e-cluster exec node-1 -- ctr -n k8s.io containers list\n" + upLine)
	return nil
}

// forward takes connections of the host to a node's kube-apiserver.
func forward(ctx context.Context, listener net.Listener, n *cluster.Node) {
	go func() { <-ctx.Done(); _ = listener.Close() }()
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := n.Dial(ctx, "tcp", "127.0.0.1:6443")
			if err != nil {
				return
			}
			cluster.Join(from, to)
		}()
	}
}

func newDown() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			s, err := readState()
			if errors.Is(err, errNone) {
				fmt.Fprintln(out, "no cluster is up")
				return nil
			}
			if err != nil {
				return err
			}
			if !s.runs() {
				// It was killed, and the kernel has ended everything in it.
				errs := []error{os.Remove(stateFile())}
				for _, dir := range s.Dirs {
					errs = append(errs, os.RemoveAll(dir))
				}
				fmt.Fprintln(out, "the cluster's process had died; removed what it left")
				return errors.Join(errs...)
			}
			if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
				return err
			}
			for range 600 {
				if !s.runs() {
					fmt.Fprintln(out, "the cluster is down")
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			return fmt.Errorf("process %d goes on after a minute", s.PID)
		},
	}
}
