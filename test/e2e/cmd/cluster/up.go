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

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/stage"
)

// folder is where a running cluster tells of itself, in the checkout.
const folder = ".tools/cluster-up"

// state is what the other commands must know of a running cluster.
type state struct {
	PID        int
	Nodes      map[string]int // the ids of their first processes
	Kubeconfig string
}

func stateFile() string { return filepath.Join(folder, "state.json") }

func readState() (*state, error) {
	raw, err := os.ReadFile(stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("no cluster is up here: make cluster-up")
	}
	if err != nil {
		return nil, err
	}
	s := new(state)
	return s, json.Unmarshal(raw, s)
}

func newUp() *cobra.Command {
	var nodes int
	var off bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster, and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s, err := readState(); err == nil && syscall.Kill(s.PID, 0) == nil {
				return fmt.Errorf("a cluster is up already, as process %d: make cluster-down", s.PID)
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			return start(cmd.Context(), cmd.OutOrStdout(), fmt.Sprintf("--nodes=%d", nodes), fmt.Sprintf("--off=%t", off))
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "how many nodes, from 1 to 9")
	cmd.Flags().BoolVar(&off, "off", false, "leave KMS off")
	return cmd
}

// start starts this program again, to hold the cluster, and shows what it says until
// all is up.
func start(ctx context.Context, out io.Writer, args ...string) error {
	logPath := filepath.Join(folder, "log")
	log, err := os.Create(logPath)
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
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	shown := 0
	for {
		raw, err := os.ReadFile(logPath)
		if err != nil {
			return err
		}
		fmt.Fprint(out, string(raw[shown:]))
		shown = len(raw)
		if strings.Contains(string(raw), upLine) {
			return nil
		}
		select {
		case err := <-ended:
			return errors.Join(fmt.Errorf("the cluster is not up: see %s", logPath), err)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return errors.Join(errors.New("interrupted"), <-ended)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// upLine is the last line of the log when all is up.
const upLine = "End it with: make cluster-down\n"

func newHold() *cobra.Command {
	var nodes int
	var off bool
	cmd := &cobra.Command{
		Use: "hold", Short: "Be the process that a cluster lives in", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return hold(ctx, nodes, off)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "")
	cmd.Flags().BoolVar(&off, "off", false, "")
	return cmd
}

func hold(ctx context.Context, nodes int, off bool) (err error) {
	dir, err := os.MkdirTemp("", "kms-health-up-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(folder)) }()
	s, err := stage.New(ctx, stage.Options{Assets: os.Getenv("KUBEBUILDER_ASSETS"), Dir: dir, Nodes: nodes, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	version, err := s.Build(ctx, "dev", checkout)
	if err != nil {
		return err
	}
	if err := s.Install(ctx, version, stage.Configuration); err != nil {
		return err
	}
	if err := s.AwaitOperator(ctx); err != nil {
		return err
	}
	if !off {
		if err := s.TurnOn(ctx); err != nil {
			return err
		}
	}
	if err := tell(ctx, s); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// tell lets the other commands, and kubectl on the host, find the cluster.
func tell(ctx context.Context, s *stage.Stage) error {
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
	told := state{PID: os.Getpid(), Nodes: map[string]int{}, Kubeconfig: kubeconfig}
	for _, n := range s.Nodes() {
		told.Nodes[n.Name] = n.PID()
	}
	raw, err := json.Marshal(told)
	if err != nil {
		return err
	}
	if err := os.WriteFile(stateFile(), raw, 0o600); err != nil {
		return err
	}
	fmt.Printf(`
The cluster is up.
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get nodes,pods -A
  bin/kubectl-kms_health status        # make build
  bin/e2e-cluster plugin node-1 %s-1 unhealthy "vault is sealed"      # and heal
  bin/e2e-cluster exec node-1 -- ctr -n k8s.io containers list
`+upLine, kubeconfig, os.Getenv("KUBEBUILDER_ASSETS"), apiservers.Kube.Name)
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
			defer to.Close()
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			_, _ = io.Copy(from, to)
		}()
	}
}

func newDown() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := readState()
			if err != nil {
				return err
			}
			if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
				if errors.Is(err, syscall.ESRCH) { // it died, and everything with it
					return os.RemoveAll(folder)
				}
				return err
			}
			for range 600 {
				if running := syscall.Kill(s.PID, 0) == nil; !running {
					fmt.Fprintln(cmd.OutOrStdout(), "the cluster is down")
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			return fmt.Errorf("process %d goes on after a minute", s.PID)
		},
	}
}
