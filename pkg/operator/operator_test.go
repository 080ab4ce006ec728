package operator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/reportercontroller"
)

// newTestOperator is an operator without an API server, whose Events are sent to a channel.
func newTestOperator(t *testing.T, registry prometheus.Registerer) (op *operator, events chan string) {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"}) // nobody answers
	if err != nil {
		t.Fatal(err)
	}
	no, events := false, make(chan string, 10)
	return newOperator(Options{ConfigFile: "config.yaml"}, reportercontroller.Options{
		Client: client, Registry: registry, Clock: clock.RealClock{}, Now: time.Now, OpenShift: &no,
		Event: func(about, eventType, reason, message string) {
			events <- strings.Join([]string{about, eventType, reason, message}, " ")
		},
	}, func() (never time.Time) { return never }), events
}

// running runs an operator until the test calls the function.
func running(t *testing.T, op *operator) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); op.run(ctx) }()
	return func() { cancel(); <-ended }
}

// The alert on an absent operator rests on it. A replica that has not been elected exports
// 0, and none of the series of targets.
func TestLeaderGaugeIsOneWhileTheControllersRun(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	op, _ := newTestOperator(t, registry)
	expect := func(want float64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); testutil.ToFloat64(op.leading) != want; {
			if time.Sleep(time.Millisecond); time.Now().After(deadline) {
				t.Fatalf("the gauge is not %v", want)
			}
		}
	}
	expect(0)
	end := running(t, op)
	expect(1)
	end()
	expect(0)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// On a cluster without ClusterOperators nothing else shows it. A replica that waits for the
// Lease has the same file, and reports nothing until it runs.
func TestARejectedConfigurationIsAnEventOfTheReplicaThatRuns(t *testing.T) {
	op, events := newTestOperator(t, prometheus.NewRegistry())
	next := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if !strings.HasPrefix(got, "configuration Warning ConfigurationInvalid ") || !strings.Contains(got, want) {
				t.Errorf("%q, want one about %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("no event about %q", want)
		}
	}
	const valid = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"
	op.configure(filewatch.Content{Data: []byte(valid + "intervall: 1s")})
	if len(events) > 0 {
		t.Errorf("before it runs: %q", <-events)
	}
	end := running(t, op)
	next("intervall")
	op.configure(filewatch.Content{Data: []byte(valid + "managementstate: Removed")})
	next("managementstate")
	end()
	if len(events) > 0 {
		t.Errorf("and %q", <-events)
	}
}

// Until the operator has run, the ClusterOperator of the manifests names what it will name for
// the shipped targets, except for what it makes itself.
func TestTheManifestsRelatedObjectsAreThoseOfTheOperator(t *testing.T) {
	text, err := os.ReadFile("../../manifests/openshift/0000_50_kms-health-operator_12_clusteroperator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Status struct{ RelatedObjects []any }
	}
	if err := yaml.Unmarshal(text, &shipped); err != nil {
		t.Fatal(err)
	}
	c, err := v1alpha1.DecodeOperator(v1alpha1.OperatorOpenShift)
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{Options: reportercontroller.Options{Namespace: "openshift-kms-health"}}
	related := slices.DeleteFunc(o.related(c.APIServers), func(o any) bool {
		return o.(map[string]any)["group"] == informers.ClusterRoles.Group
	})
	if diff := cmp.Diff(related, shipped.Status.RelatedObjects); diff != "" {
		t.Error(diff)
	}
}

func TestTheRelatedPoliciesAreThoseOfTheManifests(t *testing.T) {
	var shipped []string
	for _, folder := range []string{"common", "openshift"} {
		paths, err := filepath.Glob("../../manifests/" + folder + "/*policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				var o metav1.PartialObjectMetadata
				if err := yaml.Unmarshal([]byte(document), &o); err != nil {
					t.Fatal(err)
				}
				shipped = append(shipped, o.Kind+" "+o.Name)
			}
		}
	}
	var named []string
	for _, name := range objects.Policies {
		named = append(named, "ValidatingAdmissionPolicy "+name, "ValidatingAdmissionPolicyBinding "+name)
	}
	slices.Sort(shipped)
	slices.Sort(named)
	if diff := cmp.Diff(named, shipped); diff != "" {
		t.Error(diff)
	}
}
