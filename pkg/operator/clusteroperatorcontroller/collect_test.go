package clusteroperatorcontroller

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// Before the operator has run, the manifest's ClusterOperator already lists the related objects of the shipped API
// servers, except for objects that the operator creates.
func TestTheManifestsRelatedObjectsAreThoseOfTheOperator(t *testing.T) {
	text := disk.Read(t, "../../../manifests/openshift/0000_50_kms-health-operator_12_clusteroperator.yaml")
	var shipped struct {
		Status struct{ RelatedObjects []any }
	}
	must.Succeed(t, yaml.Unmarshal(text, &shipped))
	c, err := v1alpha1.DecodeOperator(v1alpha1.OperatorOpenShift)
	must.Succeed(t, err)
	var targets []Target
	for _, server := range c.APIServers {
		targets = append(targets, Target{Target: delivery.Target{APIServer: server}})
	}
	related := slices.DeleteFunc(related("openshift-kms-health", targets), func(o any) bool {
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
		must.Succeed(t, err)
		for _, path := range paths {
			text := disk.Read(t, path)
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				var o metav1.PartialObjectMetadata
				must.Succeed(t, yaml.Unmarshal([]byte(document), &o))
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

// parts are what a Controller reports.
type parts struct {
	mu      sync.Mutex
	targets []Target
	config  *v1alpha1.OperatorConfiguration
	problem string
}

func (p *parts) Targets() (all []delivery.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		all = append(all, t.Target)
	}
	return all
}

func (p *parts) Verdict(name string) delivery.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.targets[slices.IndexFunc(p.targets, func(t Target) bool { return t.Name == name })].Verdict
}
func (p *parts) Current() *v1alpha1.OperatorConfiguration { return p.config }
func (p *parts) Problem() string                          { return p.problem }

// The controller waits for the first verdicts, unless a delivery needs an administrator.
func TestADeliveryThatNeedsActionIsReportedBeforeTheFirstVerdicts(t *testing.T) {
	for reason, want := range map[delivery.Reason]bool{contract.Forbidden: true, contract.Progressing: false, "": false} {
		server := delivers("a", reason, "")
		server.Judged = false
		p := &parts{targets: []Target{server}, config: &v1alpha1.OperatorConfiguration{}}
		c := &Controller{OpenShift: true, Config: p, Reporters: p, Health: p}
		if _, ready := c.collect(0); ready != want {
			t.Errorf("%q: reported at once: %t, want %t", reason, ready, want)
		}
		if _, ready := c.collect(firstLook + 1); !ready {
			t.Errorf("%q: not reported after %s", reason, firstLook)
		}
	}
}

func TestRejectedFileIsReportedAtOnce(t *testing.T) {
	p := &parts{problem: "x"}
	c := &Controller{OpenShift: true, Config: p, Reporters: p, Health: p}
	if in, ready := c.collect(0); in.Configuration != "configuration: x" || !ready {
		t.Errorf("the input is %+v, ready: %t", in, ready)
	}
}
