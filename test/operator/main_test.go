//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// waitTimeout bounds what must happen soon, on a busy machine too. It must be longer
// than the minute of the operator's resync, by which it finds what it does not
// watch: a deleted Secret, for one.
const waitTimeout = 90 * time.Second

// The cluster serves all tests, which run one after another: each leaves it as
// empty as it was.
var (
	cluster *controlplane.ControlPlane
	// audit is the API server's log of the test that runs. The log of all of them takes
	// seconds to read, in which no plugin of this process answers.
	audit   *controlplane.AuditTail
	workers *nodes.Nodes
	client  dynamic.Interface
	kube    kubernetes.Interface
	// metadataClient gets of objects what all kinds have.
	metadataClient metadata.Interface
	binary         string // the operator
)

var nodeNames = []string{"master-0", "master-1", "master-2"}

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests of a package on a cluster of its own. They fail if the operator was
// refused a request.
func runTests(m *testing.M) (code int) {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	dir, err := os.MkdirTemp("", "kms-health-operator")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binary, err = program.Build(dir, "kms-health-operator"); err != nil {
		return fail(err)
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
	err = refusals()
	workers.Stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := cluster.Stop(); err != nil {
		return fail(err)
	}
	return code
}

func start(ctx context.Context) (err error) {
	if cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true}); err != nil {
		return err
	}
	return prepareCluster(ctx)
}

// prepareCluster installs OpenShift's configuration and the operator's manifests.
func prepareCluster(ctx context.Context) (err error) {
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
	if metadataClient, err = metadata.NewForConfig(cluster.RESTConfig()); err != nil {
		return err
	}
	if workers, err = nodes.Start(ctx, cluster.RESTConfig(), nodeNames...); err != nil {
		return err
	}
	return installOperator(ctx)
}

// useEncryptedCluster starts a cluster with an encryption config, which takes the place of
// the one of all tests until the test ends.
func useEncryptedCluster(t *testing.T, config string) {
	t.Helper()
	wasCluster, wasWorkers, wasClient, wasKube, wasMetadata := cluster, workers, client, kube, metadataClient
	t.Cleanup(func() {
		cluster, workers, client, kube, metadataClient = wasCluster, wasWorkers, wasClient, wasKube, wasMetadata
	})
	cluster = controlplane.StartForTest(t, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true, EncryptionConfig: []byte(config)})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := prepareCluster(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { workers.Stop() })
}

// excused are the denials that a test causes.
var excused struct {
	sync.Mutex
	refusals []func(*auditv1.Event) bool
}

// excuse lets the operator be refused what a test has taken from it.
func excuse(refusal func(*auditv1.Event) bool) {
	excused.Lock()
	defer excused.Unlock()
	excused.refusals = append(excused.refusals, refusal)
}

// settling reports whether an event is a read of an encryption config that was refused
// and allowed soon after: the API server's authorizer had not read the new Role yet,
// which takes longer than the operator waits on a busy machine.
func settling(refused *auditv1.Event, events []auditv1.Event) bool {
	const soon = 10 * time.Second
	path, _, _ := strings.Cut(refused.RequestURI, "?")
	return strings.HasSuffix(path, "/secrets") && slices.ContainsFunc(events, func(e auditv1.Event) bool {
		after := e.RequestReceivedTimestamp.Sub(refused.RequestReceivedTimestamp.Time)
		return strings.HasPrefix(e.RequestURI, path) && after > 0 && after < soon && e.ResponseStatus != nil && e.ResponseStatus.Code == 200
	})
}

// refusals proves, from the API server's own log of all tests, that the operator
// was never refused anything: it holds every right that it uses.
func refusals() error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := cluster.AuditFence(ctx); err != nil {
		return err
	}
	events, err := cluster.AuditEventsByUser(controlplane.ServiceAccountUser(operatorNamespace, install.ServiceAccount))
	if err != nil {
		return err
	}
	var refused []string
	for _, e := range events {
		if settling(&e, events) || slices.ContainsFunc(excused.refusals, func(is func(*auditv1.Event) bool) bool { return is(&e) }) {
			continue
		}
		if e.ResponseStatus != nil && (e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401) {
			refused = append(refused, fmt.Sprintf("%d %s %s", e.ResponseStatus.Code, e.Verb, e.RequestURI))
		}
	}
	fmt.Printf("audit log of the run: %d requests by the operator, %d of them refused\n", len(events), len(refused))
	if len(refused) > 0 {
		return fmt.Errorf("the operator was refused:\n%s", strings.Join(refused, "\n"))
	}
	return nil
}
