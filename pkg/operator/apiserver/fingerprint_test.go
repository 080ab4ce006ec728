package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil { // numbers as an API server's are read
		t.Fatal(err)
	}
	return o
}

func TestGenerationCountsOfASharedObject(t *testing.T) {
	const desired = `{kind: Deployment, metadata: {name: a}}`
	base := fingerprint(object(t, desired), object(t, `{kind: Deployment, metadata: {name: a, uid: u, generation: 1}}`))
	for name, c := range map[string]struct {
		live string
		same bool
	}{
		"a controller's mark": {`{kind: Deployment, metadata: {name: a, uid: u, generation: 1, annotations: {x: y}}, status: {replicas: 1}}`, true},
		"another spec":        {`{kind: Deployment, metadata: {name: a, uid: u, generation: 2}}`, false},
		"made anew":           {`{kind: Deployment, metadata: {name: a, uid: v, generation: 1}}`, false},
	} {
		if same := fingerprint(object(t, desired), object(t, c.live)) == base; same != c.same {
			t.Errorf("%s: the same is %v", name, same)
		}
	}
}

func TestEverythingCountsOfAnObjectOfOurs(t *testing.T) {
	const desired = `{kind: ClusterRoleBinding, metadata: {name: a}, subjects: [{kind: User, name: u}]}`
	base := fingerprint(object(t, desired), object(t, `{kind: ClusterRoleBinding, metadata: {name: a, uid: u, resourceVersion: "1"}, subjects: [{kind: User, name: u}]}`))
	for name, c := range map[string]struct {
		live string
		same bool
	}{
		"the server's part": {`{kind: ClusterRoleBinding, metadata: {name: a, uid: u, resourceVersion: "2", managedFields: [{}], creationTimestamp: x}, subjects: [{kind: User, name: u}]}`, true},
		"one more subject":  {`{kind: ClusterRoleBinding, metadata: {name: a, uid: u}, subjects: [{kind: User, name: u}, {kind: User, name: v}]}`, false},
		"one more label":    {`{kind: ClusterRoleBinding, metadata: {name: a, uid: u, labels: {a: b}}, subjects: [{kind: User, name: u}]}`, false},
	} {
		if same := fingerprint(object(t, desired), object(t, c.live)) == base; same != c.same {
			t.Errorf("%s: the same is %v", name, same)
		}
	}
}
