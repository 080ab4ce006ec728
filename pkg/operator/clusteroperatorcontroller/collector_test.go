package clusteroperatorcontroller

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/configobserver"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/disk"
)

// Before the operator has run, the manifest's ClusterOperator already lists the related objects of the shipped API
// servers, except for objects that the operator creates.
func TestTheManifestsRelatedObjectsAreThoseOfTheOperator(t *testing.T) {
	text := disk.Read(t, "../../../manifests/openshift/0000_50_kms-health-operator_12_clusteroperator.yaml")
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
	var targets []delivery.Target
	for _, server := range c.APIServers {
		targets = append(targets, delivery.Target{APIServer: server})
	}
	collector := &Collector{Namespace: "openshift-kms-health"}
	related := slices.DeleteFunc(collector.related(targets), func(o any) bool {
		return o.(map[string]any)["group"] == informers.ClusterRoles.Group
	})
	if diff := cmp.Diff(related, shipped.Status.RelatedObjects); diff != "" {
		t.Error(diff)
	}
}

func TestTheRelatedPoliciesAreThoseOfTheManifests(t *testing.T) {
	var shipped []string
	for _, folder := range []string{"common", "openshift"} {
		paths, err := filepath.Glob("../../../manifests/" + folder + "/*policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text := disk.Read(t, path)
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

// parts are the sources of a Collector, with one API server that has no verdict yet.
type parts struct {
	delivery.Status
	configured chan struct{}
}

func (p *parts) Enqueue(string) { p.configured <- struct{}{} }
func (p *parts) Targets() []delivery.Target {
	return []delivery.Target{{APIServer: v1alpha1.APIServer{Name: "a"}, Status: p.Status}}
}
func (p *parts) IsOpenShift() bool               { return true }
func (p *parts) Verdict(string) delivery.Verdict { return delivery.Verdict{} }

// The Collector waits for the first verdicts, unless a delivery needs an administrator.
func TestADeliveryThatNeedsActionIsReportedBeforeTheFirstVerdicts(t *testing.T) {
	p := &parts{configured: make(chan struct{}, 10)}
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: " + v1alpha1.APIVersion + "\nkind: OperatorConfiguration\nimage: i:1\napiServers: []\n"
	disk.Write(t, path, []byte(text))
	file := configobserver.NewFile(configobserver.FileOptions{Path: path, Enqueue: []informers.Key{{Queue: p}},
		Valid: prometheus.NewGauge(prometheus.GaugeOpts{})})
	go file.Run(t.Context())
	<-p.configured
	collector := &Collector{Config: file, Reporters: p, Health: p}
	for reason, want := range map[string]bool{contract.Forbidden: true, contract.Progressing: false, "": false} {
		p.Reason = delivery.Reason(reason)
		if _, _, ready := collector.Collect(0); ready != want {
			t.Errorf("%q: reported at once: %t, want %t", reason, ready, want)
		}
		if _, _, ready := collector.Collect(firstLook + 1); !ready {
			t.Errorf("%q: not reported after %s", reason, firstLook)
		}
	}
}
