//go:build integration

package identity

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
)

const (
	// timeout bounds each wait.
	timeout = 2 * time.Minute
	// home is the namespace of the reporters.
	home = "kms-health"
	// target is the API server of the tests' reporters, and account is their ServiceAccount.
	target  = "kube-apiserver"
	account = "kms-health-reporter-" + target
)

// cluster serves all tests except the tests of an outage, one after another.
var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = cluster.StartControllerManager(ctx, controlplane.OperatorControllers...)
	if err == nil { // the policies are tested with this CRD, too
		err = cluster.InstallCRDs(ctx, "../../manifests/kubernetes/crd.yaml")
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	for _, err := range []error{err, cluster.Stop()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// soon returns a context that ends after timeout. It also works in cleanups.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	wait.Eventually(t, timeout, what, check)
}
