//go:build e2e

// Package e2e runs kms-health on a real cluster: package cluster has the cluster,
// package fixture what is on it. The tests of a file share one cluster, and each leaves
// it as it found it: KMS on, every plugin healthy, all delivered.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
)

var (
	logsDir = flag.String("logs", ".logs/e2e", "where a failed test keeps its logs, from the root of the checkout")
)

var (
	root string // of the checkout
	work string // a folder of this run
)

func TestMain(m *testing.M) {
	cluster.Main()
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	wd, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	root = filepath.Dir(filepath.Dir(wd))
	if work, err = os.MkdirTemp("", "kms-health-e2e-run-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(work) }()
	// Ctrl-C ends what was started, too.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-interrupted
		fmt.Fprintln(os.Stderr, "interrupted: taking the clusters down")
		stopAll()
		_ = os.RemoveAll(work)
		os.Exit(130)
	}()
	code = m.Run()
	if errs := stopAll(); len(errs) > 0 {
		fmt.Fprintln(os.Stderr, "taking the clusters down:", errs)
		code = 1
	}
	times.print()
	return code
}

// clusters are those that run.
var clusters struct {
	sync.Mutex
	all []*fixture.Cluster
}

func stopAll() (errs []error) {
	clusters.Lock()
	defer clusters.Unlock()
	for _, s := range clusters.all {
		if err := s.Stop(); err != nil {
			errs = append(errs, err)
		}
	}
	clusters.all = nil
	return errs
}

// newCluster starts a cluster, without anything on it.
func newCluster(ctx context.Context, nodes int) (*fixture.Cluster, error) {
	s, err := fixture.New(ctx, fixture.Options{
		Root: root, Assets: os.Getenv("KUBEBUILDER_ASSETS"), Dir: filepath.Join(work, "builds"), Nodes: nodes, Log: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	clusters.Lock()
	defer clusters.Unlock()
	clusters.all = append(clusters.all, s)
	return s, nil
}

// stopCluster takes one cluster down before the others.
func stopCluster(s *fixture.Cluster) error {
	clusters.Lock()
	for i := range clusters.all {
		if clusters.all[i] == s {
			clusters.all = append(clusters.all[:i:i], clusters.all[i+1:]...)
			break
		}
	}
	clusters.Unlock()
	return s.Stop()
}

// timesTable is what the run prints at its end.
type timesTable struct {
	mu   sync.Mutex
	rows [][5]string
}

var times timesTable

const noTime = time.Duration(-1)

// took notes how long something took: in all, and how much of it was the kubelet's
// doing (or the container runtime's), where that can be measured apart. bound may be empty.
func (t *timesTable) took(scenario, what string, total, kubelet time.Duration, bound string) {
	show := func(d time.Duration) string {
		if d == noTime {
			return "-"
		}
		if d < 10*time.Second {
			return d.Round(time.Millisecond).String()
		}
		return d.Round(100 * time.Millisecond).String()
	}
	ours := noTime
	if total != noTime && kubelet != noTime {
		ours = total - kubelet
	} else if total != noTime {
		ours = total
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := [5]string{scenario, what, show(ours), show(kubelet), bound}
	t.rows = append(t.rows, row)
}

// print writes the table into the logs' folder, and to stdout.
func (t *timesTable) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSCENARIO\tWHAT\tOURS\tKUBELET'S\tBOUND")
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r[:], "\t"))
	}
	_ = w.Flush()
	fmt.Println(out.String())
	dir := filepath.Join(root, *logsDir)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "times.txt"), append(out.Bytes(), '\n'), 0o644)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
