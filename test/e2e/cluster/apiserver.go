package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// Names of the kube-apiserver's pods.
const (
	APIServerNamespace = "openshift-kube-apiserver"
	APIServerName      = "kube-apiserver"
	// SocketsFolder is where pods see the plugins' sockets.
	SocketsFolder = "/var/run/kmsplugin"
)

const (
	resourcesDir = "/etc/kubernetes/static-pod-resources"
	manifestFile = manifestsDir + "/kube-apiserver-pod.yaml"
	holdFile     = StateDir + "/hold-kube-apiserver"
)

// Revision is one of kube-apiserver's static pod.
type Revision struct {
	Number int
	// Encryption is its EncryptionConfiguration. Empty: none.
	Encryption string
	// Plugins are those that run in the pod, by key id.
	Plugins []string
	// Change changes the manifest before it is written, or is nil: the part of who
	// puts a sidecar in.
	Change func(manifest []byte) ([]byte, error)
	// Files are more files of the host, by their path: NODE_NAME and REVISION in them
	// are replaced as they are in the manifest.
	Files map[string][]byte
}

// PluginControl is the path in a node of the control socket of a plugin of its
// kube-apiserver.
func PluginControl(keyID string) string { return StateDir + "/kms-" + keyID + ".control" }

// Install writes a revision to a node, as OpenShift's installer pod does: the files of
// the revision beside those of others, NODE_NAME and REVISION replaced in all of them,
// and the manifest last. The kubelet does the rest.
func (n *Node) Install(r Revision) error {
	// JSON, as OpenShift writes it: a number in the place of REVISION stays a string.
	manifest, err := json.Marshal(n.apiServerPod(r))
	if err != nil {
		return err
	}
	if r.Change != nil {
		if manifest, err = r.Change(manifest); err != nil {
			return err
		}
	}
	replace := strings.NewReplacer("NODE_NAME", n.Name, "REVISION", strconv.Itoa(r.Number))
	dir := filepath.Join(resourcesDir, "kube-apiserver-pod-"+strconv.Itoa(r.Number))
	files := map[string][]byte{filepath.Join(dir, "kube-apiserver-pod.yaml"): manifest}
	if r.Encryption != "" {
		files[filepath.Join(dir, "secrets/encryption-config/encryption-config")] = []byte(r.Encryption)
	}
	for path, content := range r.Files {
		files[path] = content
	}
	for path, content := range files {
		if err := n.WriteFile(path, []byte(replace.Replace(string(content))), 0o600); err != nil {
			return err
		}
	}
	return n.WriteFile(manifestFile, []byte(replace.Replace(string(manifest))), 0o600)
}

// SyncFolder replaces a folder of the node as a whole, as OpenShift's cert-syncer
// does: the new one is made beside it, the two are exchanged, and the old is removed.
func (n *Node) SyncFolder(folder string, files map[string][]byte) error {
	next := folder + ".next"
	for name, content := range files {
		if err := n.WriteFile(filepath.Join(next, name), content, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(n.Path(folder)); errors.Is(err, os.ErrNotExist) {
		return os.Rename(n.Path(next), n.Path(folder))
	}
	return errors.Join(exchange(n.Path(next), n.Path(folder)), os.RemoveAll(n.Path(next)))
}

func (n *Node) apiServerArgs(r Revision) []string {
	etcd := "http://127.0.0.1:2379"
	if n.index != 1 {
		etcd = "http://" + nodeIP(1).String() + ":2379"
	}
	args := []string{
		"/hold", holdFile, "--", "/kube-apiserver",
		"--etcd-servers=" + etcd,
		"--secure-port=6443", "--bind-address=0.0.0.0",
		"--client-ca-file=" + pkiDir + "/ca.crt",
		"--tls-cert-file=" + pkiDir + "/serving.crt", "--tls-private-key-file=" + pkiDir + "/serving.key",
		"--service-account-key-file=" + pkiDir + "/sa.key", "--service-account-signing-key-file=" + pkiDir + "/sa.key",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + pkiDir + "/kubelet-client.crt", "--kubelet-client-key=" + pkiDir + "/kubelet-client.key",
		"--requestheader-client-ca-file=" + pkiDir + "/ca.crt", "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pkiDir + "/front-proxy.crt", "--proxy-client-key-file=" + pkiDir + "/front-proxy.key",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + serviceCIDR, "--allow-privileged=true",
		"--audit-policy-file=/etc/kubernetes/audit-policy.yaml", "--audit-log-path=/var/log/kube-apiserver/audit.log", "--audit-log-maxsize=500",
		"--shutdown-delay-duration=0s",
	}
	if r.Encryption != "" {
		args = append(args, "--encryption-provider-config="+resourcesDir+"/secrets/encryption-config/encryption-config")
	}
	return args
}

func (n *Node) apiServerPod(r Revision) *corev1.Pod {
	folder, orNew := corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate
	host := func(name, path string, kind *corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
	}
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(6443), Scheme: corev1.URISchemeHTTPS, Host: "127.0.0.1"}},
			PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 10,
		}
	}
	grace := int64(5)
	sockets := corev1.VolumeMount{Name: "kms-sockets", MountPath: SocketsFolder}
	state := corev1.VolumeMount{Name: "state", MountPath: StateDir}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: APIServerName, Namespace: APIServerNamespace,
			Labels: map[string]string{"app": "openshift-kube-apiserver", "apiserver": "true", "revision": "REVISION"},
		},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: APIServerName, Image: apiServerImage, Command: n.apiServerArgs(r), ImagePullPolicy: corev1.PullIfNotPresent,
				ReadinessProbe: probe("/readyz", 2, 3),
				// Longer than any test keeps it down: what restarts it is the test.
				LivenessProbe:            probe("/livez", 10, 30),
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				VolumeMounts: []corev1.VolumeMount{
					{Name: "resource-dir", MountPath: resourcesDir, ReadOnly: true},
					{Name: "pki", MountPath: pkiDir, ReadOnly: true},
					{Name: "audit-policy", MountPath: "/etc/kubernetes/audit-policy.yaml", ReadOnly: true},
					{Name: "log", MountPath: "/var/log/kube-apiserver"},
					state, sockets,
				},
			}},
			Volumes: []corev1.Volume{
				host("resource-dir", resourcesDir+"/kube-apiserver-pod-REVISION", &folder),
				host("pki", pkiDir, &folder),
				host("audit-policy", "/etc/kubernetes/audit-policy.yaml", nil),
				host("log", "/var/log/kube-apiserver", &orNew),
				host("state", StateDir, &folder),
				host("remote", RemoteDir, &folder),
				{Name: "kms-sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	for _, keyID := range slices.Sorted(slices.Values(r.Plugins)) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "kms-plugin-" + keyID, Image: PluginImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{
				"--endpoint=unix://" + SocketsFolder + "/kms-" + keyID + ".sock",
				"--state-dir=" + RemoteDir + "/" + APIServerName + "-" + keyID, "--control=" + PluginControl(keyID),
			},
			VolumeMounts: []corev1.VolumeMount{sockets, state, {Name: "remote", MountPath: RemoteDir}},
		})
	}
	return pod
}

// HoldAPIServer keeps the node's kube-apiserver from starting, from its next start on:
// its container runs, and waits. To end the one that runs: KillContainer.
func (n *Node) HoldAPIServer() error { return n.WriteFile(holdFile, nil, 0o600) }

// ReleaseAPIServer lets it start.
func (n *Node) ReleaseAPIServer() error { return os.Remove(n.Path(holdFile)) }

// Get asks the node's kube-apiserver as its loopback does, without credentials, and
// returns the status code.
func (n *Node) Get(ctx context.Context, path string) (int, error) {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: n.cluster.pki.tlsConfig(), DialContext: n.Dial,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:6443"+path, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// AwaitAPIServer waits until the node's kube-apiserver passes a health check.
func (n *Node) AwaitAPIServer(ctx context.Context, check string, limit time.Duration) error {
	err := wait.For(ctx, limit, "200", func(ctx context.Context) error {
		code, err := n.Get(ctx, check)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s of kube-apiserver on %s: %w", check, n.Name, err)
	}
	return nil
}
