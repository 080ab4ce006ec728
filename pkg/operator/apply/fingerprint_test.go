package apply

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOnlyWhatWasAppliedCountsOfASharedObject(t *testing.T) {
	const desired = `{kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: kms-health, image: x, volumeMounts: [{name: c, mountPath: /c}], args: [a]}]}}}}`
	const live = `{kind: Deployment, metadata: {name: a, uid: u}, spec: {template: {spec: {containers: [{name: api}, {name: kms-health, image: x, imagePullPolicy: Always, volumeMounts: [{name: c, mountPath: /c}], args: [a]}]}}}}`
	base := fingerprint(object(t, desired), object(t, live))
	for name, c := range map[string]struct {
		live string
		same bool
	}{
		"itself":              {live, true},
		"another container":   {`{kind: Deployment, metadata: {name: a, uid: u}, spec: {replicas: 2, template: {spec: {containers: [{name: api, image: new}, {name: more}, {name: kms-health, image: x, volumeMounts: [{name: c, mountPath: /c}], args: [a]}]}}}}`, true},
		"a controller's mark": {`{kind: Deployment, metadata: {name: a, uid: u, annotations: {x: y}, generation: 7}, status: {replicas: 1}, spec: {template: {spec: {containers: [{name: kms-health, image: x, volumeMounts: [{name: c, mountPath: /c}, {name: d, mountPath: /d}], args: [a]}]}}}}`, true},
		"another image":       {`{kind: Deployment, metadata: {name: a, uid: u}, spec: {template: {spec: {containers: [{name: kms-health, image: y, volumeMounts: [{name: c, mountPath: /c}], args: [a]}]}}}}`, false},
		"more arguments":      {`{kind: Deployment, metadata: {name: a, uid: u}, spec: {template: {spec: {containers: [{name: kms-health, image: x, volumeMounts: [{name: c, mountPath: /c}], args: [a, b]}]}}}}`, false},
		"no container":        {`{kind: Deployment, metadata: {name: a, uid: u}, spec: {template: {spec: {containers: [{name: api}]}}}}`, false},
		"made anew":           {`{kind: Deployment, metadata: {name: a, uid: v}, spec: {template: {spec: {containers: [{name: kms-health, image: x, volumeMounts: [{name: c, mountPath: /c}], args: [a]}]}}}}`, false},
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
