package view

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/version"
)

// Operator is the state of the operator itself.
type Operator struct {
	State OperatorState `json:"state"`
	// Namespace has its Deployment and its Lease.
	Namespace string `json:"namespace,omitempty"`
	// Replicas should run, and Available do.
	Replicas  int64 `json:"replicas,omitempty"`
	Available int64 `json:"available,omitempty"`
	// Leader is the pod that works, by the Lease, and Renewed when it last showed that.
	Leader  string       `json:"leader,omitempty"`
	Renewed *metav1.Time `json:"renewed,omitempty"`
	// Version is not set if not known.
	Version string `json:"version,omitempty"`

	expired bool // the Lease
}

// OperatorState is whether the operator works.
type OperatorState string

// The states of the operator.
const (
	OperatorWorks        OperatorState = "Works"
	OperatorNotInstalled OperatorState = "NotInstalled"
	OperatorNotRunning   OperatorState = "NotRunning"
	// OperatorStandby: replicas run, and none of them works.
	OperatorStandby OperatorState = "StandbyOnly"
	// OperatorNotKnown: what shows it could not be read.
	OperatorNotKnown OperatorState = "NotKnown"
)

// ConditionsHold reports whether conditions are up to date, as far as is known.
func (o *Operator) ConditionsHold() bool {
	return o.State != OperatorNotRunning && o.State != OperatorStandby
}

// ReadOperator reads its state.
func readOperator(s *Snapshot) (o Operator) {
	deployment := s.find(KindDeployment)
	if deployment != nil {
		o.Namespace, o.Replicas = deployment.GetNamespace(), 1
		if replicas, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas"); found && err == nil {
			o.Replicas = replicas
		}
		o.Available, _, _ = unstructured.NestedInt64(deployment.Object, "status", "availableReplicas")
	}
	lease := s.find(KindLease)
	if lease != nil {
		o.readLease(lease, s.Now)
	}
	o.Version = operatorVersion(s.find(KindClusterOperator))
	switch {
	case o.Leader != "" && !o.expired:
		o.State = OperatorWorks
	case lease == nil && s.Unread[KindLease], deployment == nil && s.Unread[KindDeployment]:
		o.State = OperatorNotKnown
		if lease != nil {
			o.State = OperatorNotRunning
		}
	case deployment == nil && lease == nil:
		o.State = OperatorNotInstalled
	case o.Available > 0:
		o.State = OperatorStandby
	default:
		o.State = OperatorNotRunning
	}
	return o
}

func (o *Operator) readLease(lease *unstructured.Unstructured, now time.Time) {
	o.Namespace = lease.GetNamespace()
	o.Leader, _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	text, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
	renewed, err := time.Parse(time.RFC3339, text)
	if o.expired = err != nil || now.After(renewed.Add(time.Duration(seconds)*time.Second)); err == nil {
		o.Renewed = timeOf(renewed)
	}
}

// operatorVersion is the one that the ClusterOperator has.
func operatorVersion(clusterOperator *unstructured.Unstructured) string {
	if clusterOperator == nil {
		return ""
	}
	versions, _, _ := unstructured.NestedSlice(clusterOperator.Object, "status", "versions")
	for _, v := range versions {
		if fields, _ := v.(map[string]any); fields["name"] == "operator" {
			text, _ := fields["version"].(string)
			return text
		}
	}
	return ""
}

// OtherVersion reports whether the operator is known to have another version than this program.
func (o *Operator) OtherVersion() bool {
	return o.Version != "" && version.Version != "unknown" && strings.TrimPrefix(o.Version, "v") != strings.TrimPrefix(version.Version, "v")
}

// judgeOperator adds the problems of the operator itself. Reports count without an operator, too,
// if reporters were set up by hand.
func (e *evaluation) judgeOperator() {
	o := &e.Operator
	p := Problem{Verdict: NotKnown, Reason: string(o.State), Since: o.Renewed, Next: e.commands.operatorLog()}
	switch {
	case e.Node != "":
		return
	case o.State == OperatorNotInstalled && e.count().all == 0:
		p.Summary, p.Next = "the operator is not installed: no Deployment and no Lease "+contract.OperatorName, nil
		e.add(p)
	case o.State == OperatorNotRunning:
		p.Summary = "the operator is not running: no pod works"
		if o.Replicas > 0 || o.Available > 0 {
			p.Summary = fmt.Sprintf("the operator is not running: %d of %d replicas are available", o.Available, o.Replicas)
		}
		p.Next = e.commands.operatorPods()
		e.add(p)
	case o.State == OperatorStandby:
		p.Summary = fmt.Sprintf("the operator is on standby only: %s, and none holds the Lease", plural(int(o.Available), "replica")+" "+are(int(o.Available))+" available")
		e.add(p)
	}
	e.judgeConfiguration()
}

// judgeConfiguration adds a file that the operator rejects, by the function of the operator.
func (e *evaluation) judgeConfiguration() {
	o := e.snapshot.find(KindConfigMap)
	if o == nil {
		return
	}
	data, _, _ := unstructured.NestedString(o.Object, "data", contract.ConfigFile)
	_, err := v1alpha1.DecodeOperator([]byte(data))
	if err == nil {
		return
	}
	e.add(Problem{
		Verdict: Unhealthy, Reason: contract.ConfigurationInvalid, Detail: err.Error(),
		Summary: "the operator's configuration is rejected; the last valid one stays active",
		Next:    e.commands.editConfiguration(o.GetNamespace()),
	})
}
