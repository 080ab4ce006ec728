package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/controlplane"
)

// This file plays the parts of OpenShift's operators, and of the reporters: what
// the operator finds.

// aTarget is an API server with encryption.
type aTarget struct{ name, resource, kind, namespace string }

var targets = []aTarget{
	{"kube-apiserver", controlplane.KubeAPIServers, "KubeAPIServer", "openshift-kube-apiserver"},
	{"openshift-apiserver", controlplane.OpenShiftAPIServers, "OpenShiftAPIServer", "openshift-apiserver"},
	{"oauth-apiserver", controlplane.Authentications, "Authentication", "openshift-oauth-apiserver"},
}

const encryptionSecret = "encryption-config"

var (
	secretGVR     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	deploymentGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// operatorFile is the operator's configuration.
func operatorFile(interval time.Duration) string {
	return fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe: {interval: %s}
targets:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
  delivery: Companion
  serving: {address: "0.0.0.0:9180", secret: serving}
- name: openshift-apiserver
  resource: openshiftapiservers
  namespace: openshift-apiserver
  podSelector: {apiserver: "true"}
  container: openshift-apiserver
  delivery: Deployment
  deployment: apiserver
- name: oauth-apiserver
  resource: authentications
  namespace: openshift-oauth-apiserver
  podSelector: {apiserver: "true"}
  container: oauth-apiserver
  delivery: External
`, interval)
}

// apply writes an object as its owner.
func (e *estate) apply(ctx context.Context, gvr schema.GroupVersionResource, namespace string, object map[string]any, subresource ...string) error {
	return e.applyAs(ctx, "the-owner", gvr, namespace, object, subresource...)
}

func (e *estate) applyAs(ctx context.Context, manager string, gvr schema.GroupVersionResource, namespace string, object map[string]any, subresource ...string) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	force := true
	_, err = e.admin.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: manager, Force: &force}, subresource...)
	return err
}

// fill gives an operator resource as many conditions as OpenShift's have: each of
// its changes is told whole, to whoever watches it.
func (e *estate) fill(ctx context.Context, t aTarget) error {
	var conditions []any
	for i := range 100 {
		conditions = append(conditions, map[string]any{
			"type": fmt.Sprintf("SomeController%dDegraded", i), "status": "False", "reason": "AsExpected",
			"message": strings.Repeat("All is well. ", 10), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return e.apply(ctx, controlplane.OperatorGVR(t.resource), "", t.status(conditions...), "status")
}

func (t aTarget) status(conditions ...any) map[string]any {
	return map[string]any{
		"apiVersion": "operator.openshift.io/v1", "kind": t.kind, "metadata": map[string]any{"name": controlplane.ClusterObject},
		"status": map[string]any{"conditions": conditions},
	}
}

// report writes what a node's reporter would.
func (e *estate) report(ctx context.Context, t aTarget, node string, since time.Time) error {
	var entries []health.Entry
	for _, keyID := range []string{"1", "2"} {
		entries = append(entries, health.Entry{KeyID: keyID, KEKID: "kek-" + keyID, Status: health.Healthy, LastChecked: time.Now(), Interval: time.Second})
	}
	message, err := health.EncodeMessage(entries)
	if err != nil {
		return err
	}
	return e.applyAs(ctx, health.ConditionManager(node), controlplane.OperatorGVR(t.resource), "", t.status(map[string]any{
		"type": health.ConditionType(node), "status": "True", "reason": "AsExpected", "message": message,
		"lastTransitionTime": since.UTC().Format(time.RFC3339),
	}), "status")
}

// encrypt writes an encryption config with plugins of these key ids, the first of
// which writes.
func (e *estate) encrypt(ctx context.Context, t aTarget, secret string, keyIDs ...string) error {
	return e.apply(ctx, secretGVR, t.namespace, encryptionConfig(secret, keyIDs...))
}

func encryptionConfig(secret string, keyIDs ...string) map[string]any {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for _, resource := range []string{"secrets", "configmaps"} {
		fmt.Fprintf(&b, "- resources: [%s]\n  providers:\n", resource)
		for _, id := range keyIDs {
			fmt.Fprintf(&b, "  - kms: {apiVersion: v2, name: %s_%s, endpoint: 'unix:///var/run/kmsplugin/kms-%s.sock', timeout: 10s}\n", id, resource, id)
		}
		b.WriteString("  - identity: {}\n")
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret},
		"stringData": map[string]any{encryptionSecret: b.String()},
	}
}

// staticPod is kube-apiserver's, of revision 1.
func staticPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-apiserver", Namespace: "openshift-kube-apiserver", Labels: map[string]string{"apiserver": "true", "revision": "1"},
		},
		Spec: corev1.PodSpec{
			HostNetwork: true,
			Containers: []corev1.Container{{
				Name: "kube-apiserver", Image: "kube-apiserver:1",
				VolumeMounts: []corev1.VolumeMount{{Name: "kms-sockets", MountPath: "/var/run/kmsplugin"}},
			}},
			Volumes: []corev1.Volume{{Name: "kms-sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

// apiDeployment is an API server that is a Deployment, with a pod on each node.
func apiDeployment() map[string]any {
	labels := map[string]any{"apiserver": "true"}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "apiserver"},
		"spec": map[string]any{
			"replicas": 3, "selector": map[string]any{"matchLabels": labels},
			"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": 1}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{
					"terminationGracePeriodSeconds": 0,
					"tolerations":                   []any{map[string]any{"operator": "Exists"}},
					"containers": []any{map[string]any{
						"name": "openshift-apiserver", "image": "apiserver:1",
						"volumeMounts": []any{
							map[string]any{"name": "sockets", "mountPath": "/var/run/kmsplugin"},
							map[string]any{"name": "encryption", "mountPath": "/var/run/secrets/encryption-config"},
						},
					}},
					"volumes": []any{
						map[string]any{"name": "sockets", "emptyDir": map[string]any{}},
						map[string]any{"name": "encryption", "secret": map[string]any{"secretName": encryptionSecret + "-1"}},
					},
				},
			},
		},
	}
}
