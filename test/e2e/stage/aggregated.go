package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// AggregatedEncryption is the EncryptionConfiguration of an aggregated API server.
func AggregatedEncryption(keys ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [flunders.wardle.example.com]\n  providers:\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "  - kms: {apiVersion: v2, name: %s_flunders, endpoint: 'unix://%s/kms-%s.sock', timeout: 10s}\n", key, cluster.SocketsFolder, key)
	}
	b.WriteString("  - identity: {}\n")
	return b.String()
}

// aggregated is a real aggregated API server, with its objects encrypted, as a
// Deployment. SOCKETS is its volume of sockets, PLUGIN the container of its plugin.
const aggregated = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: apiserver, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "e2e:NAMESPACE"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: apiserver, namespace: NAMESPACE}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: NAMESPACE}
spec:
  selector: {apiserver: "true"}
  ports: [{port: 443, targetPort: 8443}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: apiserver, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {apiserver: "true"}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      labels: {apiserver: "true", revision: "REVISION"}
    spec:
      serviceAccountName: apiserver
      terminationGracePeriodSeconds: 10
      tolerations: [{operator: Exists}]
      containers:
      - name: CONTAINER
        image: registry.invalid/e2e/sample-apiserver:v1
        args:
        - --etcd-servers=http://192.168.126.11:2379
        - --etcd-prefix=/NAMESPACE
        - --secure-port=8443
        - --cert-dir=/tmp
        - --encryption-provider-config=/var/run/secrets/encryption-config/encryption-config
        readinessProbe:
          httpGet: {path: /readyz, port: 8443, scheme: HTTPS}
          periodSeconds: 2
        # It serves on until everybody knows that it is about to go.
        lifecycle: {preStop: {sleep: {seconds: 5}}}
        volumeMounts:
        - {name: encryption, mountPath: /var/run/secrets/encryption-config}
        - {name: sockets, mountPath: /var/run/kmsplugin}
        - {name: tmp, mountPath: /tmp}
PLUGIN
      volumes:
      - {name: encryption, secret: {secretName: encryption-config-REVISION}}
      - {name: tmp, emptyDir: {}}
      - {name: sockets, SOCKETS}
      - {name: state, hostPath: {path: /var/lib/e2e}}
      - {name: remote, hostPath: {path: /var/lib/e2e-remote}}
`

const pluginContainer = `
      - name: kms-plugin-KEY
        image: registry.invalid/e2e/kms-plugin:v1
        args: [--endpoint=unix:///var/run/kmsplugin/kms-KEY.sock, --state-dir=/var/lib/e2e-remote/CONTAINER-KEY, --control=/var/lib/e2e/CONTAINER-$(POD_NAME).control]
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        volumeMounts:
        - {name: sockets, mountPath: /var/run/kmsplugin}
        - {name: state, mountPath: /var/lib/e2e}
        - {name: remote, mountPath: /var/lib/e2e-remote}
`

const apiService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.wardle.example.com}
spec:
  group: wardle.example.com
  version: v1alpha1
  groupPriorityMinimum: 1000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {name: api, namespace: NAMESPACE}
`

// hostPlugin is a plugin whose socket is in a folder of the node.
const hostPlugin = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kms-plugin", "namespace": "kube-system"},
 "spec": {"hostNetwork": true, "priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}],
  "containers": [{"name": "kms-plugin-1", "image": "registry.invalid/e2e/kms-plugin:v1",
   "args": ["--endpoint=unix:///var/run/kmsplugin/kms-1.sock", "--state-dir=/var/lib/e2e-remote/oauth-apiserver-1", "--control=/var/lib/e2e/oauth-apiserver-host.control"],
   "volumeMounts": [{"name": "sockets", "mountPath": "/var/run/kmsplugin"}, {"name": "state", "mountPath": "/var/lib/e2e"}, {"name": "remote", "mountPath": "/var/lib/e2e-remote"}]}],
  "volumes": [{"name": "sockets", "hostPath": {"path": "/var/run/kmsplugin", "type": "DirectoryOrCreate"}},
   {"name": "state", "hostPath": {"path": "/var/lib/e2e"}}, {"name": "remote", "hostPath": {"path": "/var/lib/e2e-remote"}}]}}
`

// Aggregate runs an aggregated API server of openshift-apiserver's names, encrypted by
// a plugin in its own pods, and waits until it serves.
func (s *Stage) Aggregate(ctx context.Context) error {
	plugin := strings.NewReplacer("KEY", "1", "CONTAINER", apiservers.OpenShift.Name).Replace(pluginContainer)
	if err := s.aggregate(ctx, apiservers.OpenShift, "emptyDir: {}", plugin, apiService); err != nil {
		return err
	}
	return Eventually(ctx, 2*time.Minute, "the aggregated API is served", func(ctx context.Context) error {
		_, err := s.Kubectl(ctx, "", "get", "--raw", "/apis/wardle.example.com/v1alpha1/flunders")
		return err
	})
}

// AggregateOnHost runs one of oauth-apiserver's names, encrypted by a plugin in a folder
// of the node.
func (s *Stage) AggregateOnHost(ctx context.Context) error {
	for _, n := range s.Nodes() {
		if err := n.WriteFile("/etc/kubernetes/manifests/kms-plugin.yaml", []byte(hostPlugin), 0o600); err != nil {
			return err
		}
	}
	return s.aggregate(ctx, apiservers.OAuth, "hostPath: {path: /var/run/kmsplugin}", "", "")
}

func (s *Stage) aggregate(ctx context.Context, server apiservers.Server, sockets, plugin, more string) error {
	const revision = "1"
	for _, name := range []string{revision, ""} {
		if err := s.PutEncryptionSecret(ctx, server.Namespace, name, AggregatedEncryption("1")); err != nil {
			return err
		}
	}
	manifest := strings.NewReplacer("PLUGIN\n", plugin, "SOCKETS", sockets).Replace(aggregated)
	manifest = strings.NewReplacer("NAMESPACE", server.Namespace, "CONTAINER", server.Name, "REVISION", revision,
		"REPLICAS", fmt.Sprint(len(s.Nodes()))).Replace(manifest + "---" + more)
	if _, err := s.Kubectl(ctx, manifest, "apply", "--server-side", "--field-manager=owner", "-f", "-"); err != nil {
		return err
	}
	if err := s.AwaitDeployment(ctx, server.Namespace, "apiserver"); err != nil {
		return err
	}
	s.say("%s runs", server.Name)
	return nil
}

// AwaitDeployment waits until a Deployment has rolled out.
func (s *Stage) AwaitDeployment(ctx context.Context, namespace, name string) error {
	return Eventually(ctx, 2*time.Minute, "the Deployment "+namespace+"/"+name+" has rolled out", func(ctx context.Context) error {
		d, err := s.Kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < *d.Spec.Replicas ||
			d.Status.AvailableReplicas < *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
			return fmt.Errorf("%d of %d replicas are updated, %d available, %d in all",
				d.Status.UpdatedReplicas, *d.Spec.Replicas, d.Status.AvailableReplicas, d.Status.Replicas)
		}
		return nil
	})
}

// PluginOf commands the plugin of an aggregated API server on a node; where two of its
// pods run there, of the younger.
func (s *Stage) PluginOf(server apiservers.Server, n *cluster.Node) (*kmsplugin.Client, error) {
	found, err := filepath.Glob(n.Path(cluster.StateDir + "/" + server.Name + "-*.control"))
	if err != nil {
		return nil, err
	}
	var youngest string
	var born time.Time
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(born) {
			youngest, born = path, info.ModTime()
		}
	}
	if youngest == "" {
		return nil, fmt.Errorf("no plugin of %s runs on %s", server.Name, n.Name)
	}
	return kmsplugin.NewClient(youngest)
}

// AggregateOff turns KMS off for both aggregated API servers: a revision without it,
// and without plugins. What they hold must have been written without it.
func (s *Stage) AggregateOff(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "", "delete", "flunders.wardle.example.com", "--all", "--all-namespaces"); err != nil {
		return err
	}
	const revision = "2"
	const patch = `{"spec": {"template": {"metadata": {"labels": {"revision": "` + revision + `"}}, "spec": {` +
		`"containers": [{"name": "kms-plugin-1", "$patch": "delete"}], ` +
		`"volumes": [{"name": "encryption", "secret": {"secretName": "encryption-config-` + revision + `"}}]}}}}`
	for _, server := range []apiservers.Server{apiservers.OpenShift, apiservers.OAuth} {
		for _, name := range []string{revision, ""} {
			if err := s.PutEncryptionSecret(ctx, server.Namespace, name, AggregatedEncryption()); err != nil {
				return err
			}
		}
		if _, err := s.Kubectl(ctx, "", "-n", server.Namespace, "patch", "deployment", "apiserver", "--type=strategic", "-p", patch); err != nil {
			return err
		}
		if err := s.AwaitDeployment(ctx, server.Namespace, "apiserver"); err != nil {
			return err
		}
	}
	for _, n := range s.Nodes() {
		if err := os.Remove(n.Path("/etc/kubernetes/manifests/kms-plugin.yaml")); err != nil {
			return err
		}
	}
	return nil
}
