package apiservers

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EncryptionSecret is the name of each server's live Secret, and the key in it. The Secret of a revision has the
// suffix -<revision>.
const EncryptionSecret = "encryption-config"

// The resources of the objects of this package.
var (
	Secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	Deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// Unmounted is a provider with its socket in a folder that no pod mounts. Unprobed is a provider of KMS v1, which
// has no Status call.
const Unmounted, Unprobed = "9", "8"

// Moved is a suffix of a plugin's key ID: its socket is in another folder, which pods mount too. Reversed is not a
// provider: it lists the providers of ConfigMaps in reverse order.
const Moved, Reversed = "m", "reversed"

// Endpoint returns the endpoint of a plugin as pods see it, by the plugin's key ID.
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

// Encryption returns an EncryptionConfiguration for Secrets and ConfigMaps. A provider is identity, aescbc, or the
// key ID of a plugin.
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

// Secret returns the Secret with the EncryptionConfiguration of a revision. An empty revision means the live Secret.
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

// StaticPod returns the static pod of Kube at this revision. The plugins' sockets are in its only volume, an emptyDir.
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

// Deployment returns the Deployment of OpenShift at this revision, with three replicas.
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
