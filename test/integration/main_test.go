//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	// waitLimit bounds each wait. The reporter retries a refused write after 10 s and a failed round trip after 30 s.
	waitLimit = 2 * time.Minute
	// namespace holds the identities of all reporters of the run.
	namespace = "kms-health"
)

// cluster serves all tests, which run one after another, each with a different node: to start it takes longer than most
// tests.
var cluster *controlplane.ControlPlane

// binary is the path of the reporter. It has the race detector if the tests have it.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	dir, err := os.MkdirTemp("", "kms-health-integration")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Some tests run the reporter as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	if binary, err = program.Build(dir, "cmd/kms-health-reporter"); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true})
	if err != nil {
		return fail(err)
	}
	code = m.Run()
	err = errors.Join(auditOfTheRun(), cluster.Stop())
	if err != nil {
		return fail(err)
	}
	return code
}

// auditOfTheRun checks in the audit log of all tests that the reporters sent nothing but PATCH requests for the status
// of an object.
func auditOfTheRun() error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := cluster.AuditFence(ctx); err != nil {
		return err
	}
	events, err := cluster.AuditEvents("", func(e *auditv1.Event) bool {
		return strings.HasPrefix(e.UserAgent, "kms-health-reporter/") ||
			strings.HasPrefix(e.User.Username, "system:serviceaccount:"+namespace+":")
	})
	if err != nil {
		return err
	}
	var others []string
	for _, e := range events {
		o := e.ObjectRef
		if e.Verb != "patch" || o == nil || o.Subresource != "status" ||
			(o.APIGroup != controlplane.OperatorGroup || o.Name != controlplane.ClusterObject) &&
				o.APIGroup != contract.KMSHealths.Group {
			others = append(others, e.Verb+" "+e.RequestURI)
		}
	}
	fmt.Printf("audit log of the run: %d requests by reporters, %d of them other than PATCH …/%s/status\n", len(events), len(others), controlplane.ClusterObject)
	if len(others) > 0 {
		return fmt.Errorf("reporters sent requests that they must not:\n%s", strings.Join(others, "\n"))
	}
	return nil
}
