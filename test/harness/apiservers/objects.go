package apiservers

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EncryptionSecret is the name of each server's live Secret, and its key.
// Those of revisions have -<revision> behind it.
const EncryptionSecret = "encryption-config"

// Resources of what is made here.
var (
	Secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	Deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// Unmounted is the provider whose socket is in a folder that no pod mounts, Unprobed one of KMS v1, which has no
// Status call.
const Unmounted, Unprobed = "9", "8"

// Moved is behind the key ID of a plugin whose socket is in another folder, which pods mount. Reversed is no provider:
// ConfigMaps have the others in reverse order.
const Moved, Reversed = "m", "reversed"

// Endpoint is that of a plugin in pods, by its key ID.
func Endpoint(plugin string) string {
	keyID, moved := strings.CutSuffix(plugin, Moved)
	folder := "kmsplugin"
	switch {
	case moved:
		folder += "/moved"
	case keyID == Unmounted:
		folder = "elsewhere"
	}
	return fmt.Sprintf("unix:///var/run/%s/kms-%s.sock", folder, keyID)
}

// Encryption is an EncryptionConfiguration of Secrets and ConfigMaps. Each word is
// a provider: identity, aescbc, or the key id of a plugin.
func Encryption(providers ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	listed := slices.DeleteFunc(slices.Clone(providers), func(p string) bool { return p == Reversed })
	for _, resource := range []string{"secrets", "configmaps"} {
		fmt.Fprintf(&b, "- resources: [%s]\n  providers:\n", resource)
		if resource == "configmaps" && len(listed) < len(providers) {
			slices.Reverse(listed)
		}
		for _, p := range listed {
			switch p {
			case "identity":
				b.WriteString("  - identity: {}\n")
			case "aescbc":
				b.WriteString("  - aescbc: {keys: [{name: '9', secret: c2VjcmV0IGlzIHNlY3VyZSwgMzIgYnl0ZXMgbG9uZyE=}]}\n")
			default:
				version := "v2"
				if p == Unprobed {
					version = "v1"
				}
				fmt.Fprintf(&b, "  - kms: {apiVersion: %s, name: %s_%s, endpoint: '%s', timeout: 10s}\n",
					version, p, resource, Endpoint(p))
			}
		}
	}
	return b.String()
}

// Secret is one with an EncryptionConfiguration: that of a revision, or the live
// one, whose revision is empty.
func Secret(revision, encryption string) map[string]any {
	name := EncryptionSecret
	if revision != "" {
		name += "-" + revision
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
		"stringData": map[string]any{EncryptionSecret: encryption},
	}
}

// StaticPod is Kube's, of one revision. Its plugins' sockets are in its one volume,
// an emptyDir.
func StaticPod(revision string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: Kube.Name, Namespace: Kube.Namespace,
			Labels: map[string]string{"apiserver": "true", "revision": revision}},
		Spec: corev1.PodSpec{
			HostNetwork: true,
			Containers: []corev1.Container{{
				Name: Kube.Name, Image: "kube-apiserver:1",
				VolumeMounts: []corev1.VolumeMount{{Name: "kms-sockets", MountPath: "/var/run/kmsplugin"}},
			}},
			Volumes: []corev1.Volume{{Name: "kms-sockets",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

// Deployment is OpenShift's, of one revision, with a pod on each of three nodes.
func Deployment(revision string) map[string]any {
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
						"name": OpenShift.Name, "image": "apiserver:1",
						"volumeMounts": []any{
							map[string]any{"name": "kms", "mountPath": "/var/run/kmsplugin"},
							map[string]any{"name": "encryption", "mountPath": "/var/run/secrets/encryption-config"},
						},
					}},
					"volumes": []any{
						map[string]any{"name": "kms", "emptyDir": map[string]any{}},
						map[string]any{"name": "encryption", "secret": map[string]any{"secretName": EncryptionSecret + "-" + revision}},
					},
				},
			},
		},
	}
}
