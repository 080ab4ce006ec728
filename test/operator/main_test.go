//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/nodes"
)

// patience bounds what must happen soon, on a busy machine too.
const patience = 20 * time.Second

// The cluster serves all tests, which run one after another: each leaves it as
// empty as it was.
var (
	cluster *controlplane.ControlPlane
	workers *nodes.Nodes
	client  dynamic.Interface
	kube    kubernetes.Interface
	binary  string // the operator
)

var nodeNames = []string{"master-0", "master-1", "master-2"}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	dir, err := os.MkdirTemp("", "kms-health-operator")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "kms-health-operator")
	args := []string{"build", "-tags", "grpcnotrace", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "github.com/kms-health/kms-health/cmd/kms-health-operator")...).CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build the operator: %w\n%s", err, out))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := start(ctx); err != nil {
		if cluster != nil {
			err = errors.Join(err, cluster.Stop())
		}
		return fail(err)
	}
	code = m.Run()
	workers.Stop()
	if err := cluster.Stop(); err != nil {
		return fail(err)
	}
	return code
}

func start(ctx context.Context) (err error) {
	if cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true}); err != nil {
		return err
	}
	if err := cluster.ApplyOpenShiftConfig(ctx, controlplane.TechPreviewNoUpgrade); err != nil {
		return err
	}
	if err := cluster.StartControllerManager(ctx, controlplane.ControllerManagerOptions{}); err != nil {
		return err
	}
	if client, err = dynamic.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	if kube, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	if workers, err = nodes.Start(ctx, cluster.RESTConfig(), nodeNames...); err != nil {
		return err
	}
	return install(ctx)
}
