package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Operator is the state of the operator itself.
type Operator struct {
	State     OperatorState `json:"state"`
	Namespace string        `json:"namespace,omitempty"` // empty: not known
}

// OperatorState is whether the operator works.
type OperatorState string

// The states of the operator.
const (
	OperatorWorks        OperatorState = "Works"
	OperatorNotInstalled OperatorState = "NotInstalled"
	OperatorNotRunning   OperatorState = "NotRunning"
	OperatorNotKnown     OperatorState = "NotKnown"
)

// ConditionsHold reports whether conditions are up to date, as far as is known.
func (o *Operator) ConditionsHold() bool { return o.State != OperatorNotRunning }

// readOperator finds the operator's state: it works if its Deployment is available, or if the pod that its Lease names
// exists and is Ready.
func readOperator(s *Snapshot) (o Operator) {
	deployment, deployed := s.find("Deployment", "", contract.OperatorName)
	lease, leased := s.find("Lease", "", contract.OperatorName)
	o.Namespace = cmp.Or(lease.GetNamespace(), deployment.GetNamespace())
	available, _, _ := unstructured.NestedInt64(deployment.Object, "status", "availableReplicas")
	leader, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	switch {
	case available > 0 || s.isReady(o.Namespace, leader):
		o.State = OperatorWorks
	case !deployed && s.OperatorUnread:
		o.State = OperatorNotKnown
	case !deployed && !leased:
		o.State = OperatorNotInstalled
	default:
		o.State = OperatorNotRunning
	}
	return o
}

// isReady reports whether a pod exists, and is Ready.
func (s *Snapshot) isReady(namespace, name string) bool {
	return slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool {
		ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		return p.Namespace == namespace && p.Name == name && slices.ContainsFunc(p.Status.Conditions, ready)
	})
}

// judgeOperator adds the problems of the operator itself. Reports count without an operator, too,
// if reporters were set up by hand.
func (e *evaluation) judgeOperator() {
	o := &e.Operator
	p := Problem{Verdict: NotKnown, Reason: string(o.State), Cause: "KMSHealthOperatorAbsent"}
	p.Next = e.command("describe deployments,pods -n %s -l %s", o.Namespace, operatorLabel)
	switch {
	case o.State == OperatorNotInstalled && (e.plugins() == nothingReported || e.snapshot.Namespace != ""):
		p.Summary = "the operator is not installed: no Deployment and no Lease " + contract.OperatorName
		p.Fix, p.Cause = "install it, or set up reporters by hand", "" // there is no pod that must not be deleted
		if e.snapshot.Namespace != "" {
			p.Summary += " in namespace " + e.snapshot.Namespace
			p.Fix = "name the operator's namespace by -n, or omit -n"
		}
	case o.State == OperatorNotRunning:
		p.Summary = "the operator is not running: no replica is available"
	}
	if p.Summary != "" {
		e.add(p)
	}
}

// judgeConfiguration adds that the operator's file is rejected, which the operator decodes by the same function. If all
// API servers are shown, it adds those with plugins in the file that have no resource for reports: the operator creates
// a KMSHealth, if it may. What was not read may exist.
func (e *evaluation) judgeConfiguration(all bool) {
	o, c, err := e.snapshot.configuration()
	if err != nil {
		p := Problem{Verdict: Unhealthy, Reason: contract.ConfigurationInvalid, Detail: err.Error(),
			Summary: "the operator's configuration is rejected; the last valid one stays active",
			Next:    e.command("edit configmap -n %s %s", o.GetNamespace(), o.GetName())}
		if o.GetKind() == "Deployment" {
			p.Summary = "the operator's configuration is rejected: a pod with it does not become Ready"
			p.Fix, p.Next = "correct the file, and apply the kustomization again", e.operatorLog()
		}
		e.add(p)
		return
	}
	if c == nil || c.ManagementState != v1alpha1.Managed || !all || e.snapshot.FromFiles || len(e.snapshot.Problems) > 0 {
		return
	}
	for i := range c.APIServers {
		name := c.APIServers[i].Name
		isIt := func(a APIServer) bool { return a.Name == name }
		if len(c.APIServers[i].Plugins) > 0 && !slices.ContainsFunc(e.APIServers, isIt) {
			e.add(Problem{Verdict: NotKnown, Reason: contract.ResourceMissing, APIServer: name,
				Summary: "the resource for its reports does not exist", Next: e.operatorLog(),
				Fix: "grant the operator the rights for this name, or wait until it has created it"})
		}
	}
}

// configuration returns the operator's configuration (nil: there is none), and the object that has it. With the
// component start-during-plugin-outage that is its Deployment: then nothing reads a ConfigMap, which may be left over.
func (s *Snapshot) configuration() (of *unstructured.Unstructured, c *v1alpha1.OperatorConfiguration, err error) {
	of, _ = s.find("Deployment", "", contract.OperatorName)
	text, found, _ := unstructured.NestedString(of.Object, "spec", "template", "metadata", "annotations",
		contract.ConfigAnnotation)
	if !found {
		of, found = s.find("ConfigMap", of.GetNamespace(), contract.OperatorConfigMap)
		text, _, _ = unstructured.NestedString(of.Object, "data", contract.ConfigFile)
	}
	if found {
		c, err = v1alpha1.DecodeOperator([]byte(text))
	}
	return of, c, err
}
