package nodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFitsGoesByWhatIsWrittenOnPodAndNode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{ControlPlaneLabel: "", "zone": "a"}}}
	affinity := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	field := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
	}
	label := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: operator, Values: values}}}
	}
	tainted := node.DeepCopy()
	tainted.Spec.Taints = []corev1.Taint{{Key: ControlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node.DeepCopy()
	cordoned.Spec.Unschedulable = true
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

	for name, test := range map[string]struct {
		spec corev1.PodSpec
		node *corev1.Node
		want bool
	}{
		"no wish":                      {corev1.PodSpec{}, node, true},
		"selected":                     {corev1.PodSpec{NodeSelector: map[string]string{ControlPlaneLabel: ""}}, node, true},
		"another label":                {corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}, node, false},
		"a DaemonSet's, here":          {affinity(field("one")), node, true},
		"a DaemonSet's, elsewhere":     {affinity(field("two")), node, false},
		"one term of two":              {affinity(field("two"), label(corev1.NodeSelectorOpIn, "a", "b")), node, true},
		"both parts of a term":         {affinity(corev1.NodeSelectorTerm{MatchFields: field("one").MatchFields, MatchExpressions: label(corev1.NodeSelectorOpNotIn, "a").MatchExpressions}), node, false},
		"does not exist":               {affinity(label(corev1.NodeSelectorOpDoesNotExist)), node, false},
		"an empty term":                {affinity(corev1.NodeSelectorTerm{}), node, false},
		"a taint":                      {corev1.PodSpec{}, tainted, false},
		"a tolerated taint":            {corev1.PodSpec{Tolerations: everything}, tainted, true},
		"a cordoned node":              {corev1.PodSpec{}, cordoned, false},
		"a cordoned node is tolerated": {corev1.PodSpec{Tolerations: everything}, cordoned, true},
	} {
		if got := fits(&corev1.Pod{Spec: test.spec}, test.node); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestChooseSpreadsTheOwnersPodsFirst(t *testing.T) {
	nodes := []string{"c", "b", "a"}
	placed := []assumption{{node: "a", owner: "mine"}, {node: "b", owner: "other"}, {node: "b", owner: "other"}, {node: "c", owner: "mine"}}
	if got := choose(nodes, "mine", placed); got != "b" {
		t.Errorf("mine went to %s, not b", got)
	}
	if got := choose(nodes, "", placed); got != "a" {
		t.Errorf("the other's went to %s, not a", got)
	}
}
