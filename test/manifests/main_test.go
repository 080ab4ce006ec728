//go:build integration

package manifests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// timeout bounds each wait, even on a busy machine.
const timeout = 2 * time.Minute

// home is the operator's namespace on OpenShift.
const home = "openshift-kms-health"

// policyStatusController type-checks policies.
const policyStatusController = "validatingadmissionpolicy-status-controller"

// cluster is a control plane on which an overlay is installed.
type cluster struct {
	*controlplane.ControlPlane
	overlay string
	config  *rest.Config
	kube    kubernetes.Interface
	client  dynamic.Interface
	base    []*unstructured.Unstructured
}

// Two control planes serve all tests. On each, tests run one after another. plain has no resources of OpenShift.
var openshift, plain *cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	defer func() {
		for _, s := range []*cluster{openshift, plain} {
			if s != nil {
				err = errors.Join(err, s.Stop())
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	var both sync.WaitGroup
	var here, there error
	both.Go(func() { openshift, here = newCluster(ctx, install.OpenShift, controlplane.TechPreviewNoUpgrade) })
	both.Go(func() { plain, there = newCluster(ctx, install.Kubernetes, "") })
	both.Wait()
	if err = errors.Join(here, there); err != nil {
		return 1
	}
	return m.Run()
}

func newCluster(ctx context.Context, overlay string, crds controlplane.Variant) (s *cluster, err error) {
	s = &cluster{overlay: overlay}
	if s.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{CRDs: crds, Audit: true}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
			s = nil
		}
	}()
	if err := s.ApplyMonitoringCRDs(ctx); err != nil {
		return s, err
	}
	if crds != "" {
		if err := s.ApplyOpenShiftConfig(ctx, crds); err != nil {
			return s, err
		}
	}
	if err := s.StartControllerManager(ctx, append(controlplane.OperatorControllers, policyStatusController)...); err != nil {
		return s, err
	}
	s.config = s.RESTConfig()
	s.kube = kubernetes.NewForConfigOrDie(s.config)
	s.client = dynamic.NewForConfigOrDie(s.config)
	if s.base, err = install.Render(ctx, overlay); err != nil {
		return s, err
	}
	if overlay == install.OpenShift {
		if err := apiservers.CreateNamespaces(ctx, s.kube); err != nil {
			return s, err
		}
	}
	return s, install.Apply(ctx, s.config, overlay)
}

// with installs components until the test ends.
func (s *cluster) with(t *testing.T, components ...string) {
	t.Helper()
	must.Succeed(t, install.Apply(t.Context(), s.config, s.overlay, components...))
	all, err := install.Render(t.Context(), s.overlay, components...)
	must.Succeed(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		for _, o := range slices.Backward(all) {
			if slices.ContainsFunc(s.base, func(b *unstructured.Unstructured) bool { return id(b) == id(o) }) {
				continue
			}
			err := s.client.Resource(resourceOf(o)).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		must.Succeed(t, install.Apply(ctx, s.config, s.overlay))
	})
}

// eventually waits until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	wait.Eventually(t, timeout, what, check)
}

// soon returns a context that ends after timeout. It also works in cleanups.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	t.Cleanup(cancel)
	return ctx
}
