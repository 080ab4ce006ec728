//go:build integration

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const configAnnotation = "test/config"

// config is the reporter's file, as one beside a socket would have it.
func config(interval time.Duration) string {
	return fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: %s}
plugins:
- {endpoint: 'unix:///var/run/kmsplugin/kms-1.sock', role: Write, timeout: 1s}
destination:
  resource: kubeapiservers
  kubeconfig: /etc/kms-health/credentials/kubeconfig
  writeTimeout: 2s
`, interval)
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: 'https://localhost:6443', certificate-authority: /etc/kms-health/credentials/ca.crt}
users:
- name: u
  user: {tokenFile: /etc/kms-health/credentials/token}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`

// processFixture has one node, on which a plugin serves in the socket folder of a
// static pod, and a reporter's identity.
func processFixture(t *testing.T) (w *fixture, apiServer *corev1.Pod) {
	t.Helper()
	w = newFixture(t, Options{Root: roots(t), Processes: &Processes{
		Binary: binary, Logs: t.TempDir(),
		Env:     []string{"GORACE=atexit_sleep_ms=0"},
		Replace: func(string) map[string]string { return map[string]string{"https://localhost:6443": cluster.URL()} },
	}}, "one")
	apiServer = w.static("one", w.manifest("v1"))
	plugin, err := kmsplugin.Start(kmsplugin.Options{
		Endpoint: "unix://" + filepath.Join(w.EmptyDir(apiServer, "s"), "kms-1.sock"), StateDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	if err := cluster.CreateServiceAccount(soon(t), w.namespace, "reporter"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.AllowStatusPatch(soon(t), controlplane.ServiceAccountUser(w.namespace, "reporter"), controlplane.KubeAPIServers); err != nil {
		t.Fatal(err)
	}
	w.configMap("kubeconfig", "kubeconfig", kubeconfig)
	return w, apiServer
}

func (w *fixture) configMap(name, key, value string) {
	w.t.Helper()
	if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(soon(w.t), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: value},
	}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// companion is a reporter beside a static pod, configured by an annotation.
func companion(beside *corev1.Pod) *corev1.Pod {
	field := func(path string) *corev1.ObjectFieldSelector { return &corev1.ObjectFieldSelector{FieldPath: path} }
	object := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "companion", Annotations: map[string]string{configAnnotation: config(time.Second)}},
		Spec: corev1.PodSpec{
			NodeName:           "one",
			ServiceAccountName: "reporter", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "kms-health", Image: "any", Command: []string{"/kms-health-reporter", "--v=2"},
				Args: []string{"--config=/etc/kms-health/config/config.yaml", "--node-name=$(NODE)"},
				Env:  []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: field("spec.nodeName")}}},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: "/etc/kms-health/config"},
					{Name: "credentials", MountPath: "/etc/kms-health/credentials"},
					{Name: "sockets", MountPath: "/var/run/kmsplugin", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
					Items: []corev1.DownwardAPIVolumeFile{{Path: "config.yaml", FieldRef: field("metadata.annotations['" + configAnnotation + "']")}},
				}}},
				{Name: "credentials", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: object("kube-root-ca.crt"), Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: object("kubeconfig")}},
				}}}},
				{Name: "sockets", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
					Path: "/var/lib/kubelet/pods/" + beside.Annotations[ConfigHashAnnotation] + "/volumes/kubernetes.io~empty-dir/s",
				}}},
			},
		},
	}
}

// reports waits until the reporter of node one reports this, of a check after a time.
func (w *fixture) reports(interval time.Duration, since time.Time) {
	w.t.Helper()
	rc := cluster.RESTConfig()
	http, err := rest.HTTPClientFor(rc)
	if err != nil {
		w.t.Fatal(err)
	}
	defer http.CloseIdleConnections()
	client, err := dynamic.NewForConfigAndClient(rc, http)
	if err != nil {
		w.t.Fatal(err)
	}
	took := w.eventually(fmt.Sprintf("a healthy report every %v", interval), func(ctx context.Context) error {
		object, err := client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers)).Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			condition := c.(map[string]any)
			if condition["type"] != health.ConditionType("one") {
				continue
			}
			entries, err := health.DecodeMessage(condition["message"].(string))
			if err != nil {
				return err
			}
			if len(entries) == 1 && entries[0].KeyID == "1" && entries[0].Status == health.Healthy &&
				entries[0].Interval == interval && entries[0].LastChecked.After(since) {
				return nil
			}
			return fmt.Errorf("it reports %s", condition["message"])
		}
		return errors.New("no condition")
	})
	w.t.Logf("a healthy report every %v: %v", interval, took.Round(time.Millisecond))
}

const running = "Running, kms-health:running, ready"

func (w *fixture) pid() int {
	w.t.Helper()
	pid := w.ProcessID(w.namespace, "companion")
	if pid == 0 {
		w.t.Fatal("the companion has no process")
	}
	return pid
}

func TestACompanionReportsFromItsProcess(t *testing.T) {
	w, apiServer := processFixture(t)
	began := time.Now()
	w.create(companion(apiServer))
	first := w.becomes("companion", running)
	defer func() {
		if log, _ := os.ReadFile(w.LogPath(first)); t.Failed() {
			t.Logf("the reporter's log:\n%s", log)
		}
	}()
	w.reports(time.Second, began)

	pid := w.pid()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{configAnnotation: config(2 * time.Second)}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().Pods(w.namespace).Patch(soon(t), "companion", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.reports(2*time.Second, began)
	if now := w.pid(); now != pid {
		t.Errorf("its process is %d, was %d", now, pid)
	}

	// A new token is another file of the same name.
	path := filepath.Join(w.options.Root("one"), "pods", string(first.UID), "volumes/kubernetes.io~projected/credentials/token")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.RenewTokens()
	w.eventually("another token", func(context.Context) error {
		after, err := os.ReadFile(path)
		if err == nil && string(after) == string(before) {
			return errors.New("it is the same")
		}
		return err
	})
	w.reports(2*time.Second, time.Now())

	// One that exits is started again.
	if err := w.KillProcess(w.namespace, "companion"); err != nil {
		t.Fatal(err)
	}
	again := w.becomes("companion", "Running, kms-health:running, restarts 1, ready")
	if last := again.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
		t.Errorf("it ended as %v", last)
	}
	w.reports(2*time.Second, time.Now())

	// One whose image cannot be pulled does not run.
	w.PodBehaviour(func(*corev1.Pod) *Behaviour { return &Behaviour{Container: "kms-health", Does: CannotPull} })
	w.becomes("companion", "Running, kms-health:ImagePullBackOff, restarts 1")
	w.eventually("its process is deleted", func(context.Context) error {
		if pid := w.ProcessID(w.namespace, "companion"); pid != 0 {
			return fmt.Errorf("it is %d", pid)
		}
		return nil
	})
	w.PodBehaviour(nil)
	w.eventually("its process is back", func(context.Context) error {
		if w.ProcessID(w.namespace, "companion") == 0 {
			return errors.New("there is none")
		}
		return nil
	})

	// It ends before its pod does.
	if err := w.client.CoreV1().Pods(w.namespace).Delete(soon(t), "companion", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone("companion")
	if pid := w.ProcessID(w.namespace, "companion"); pid != 0 || exists(path) {
		t.Errorf("its process is %d, its folder is there: %t", pid, exists(path))
	}
}

func TestAConfigMapThatAppearsAndChangesIsSeen(t *testing.T) {
	w, apiServer := processFixture(t)
	p := companion(apiServer)
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Optional: new(true),
	}}
	w.create(p)
	w.becomes("companion", running)
	pid, began := w.pid(), time.Now()
	w.configMap("config", "config.yaml", config(time.Second))
	w.reports(time.Second, began)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config.yaml": config(3 * time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(soon(t), "config", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.reports(3*time.Second, began)
	if now := w.pid(); now != pid {
		t.Errorf("its process is %d, was %d", now, pid)
	}
}

func TestAProcessWaitsForWhatItMounts(t *testing.T) {
	w, apiServer := processFixture(t)
	p := companion(apiServer)
	folder := filepath.Join(t.TempDir(), "sockets")
	p.Spec.Volumes[2].HostPath = &corev1.HostPathVolumeSource{Path: folder, Type: new(corev1.HostPathDirectory)}
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "config"}}
	w.create(p)
	waitsFor := func(what string) {
		t.Helper()
		w.eventually("it reports for what it waits", func(context.Context) error {
			if status := w.get("companion").Status; len(status.ContainerStatuses) == 0 || status.ContainerStatuses[0].State.Waiting == nil {
				return errors.New("it does not wait")
			} else if message := status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(message, what) {
				return errors.New(message)
			}
			return nil
		})
	}
	waitsFor(`secrets "config" not found`)
	if _, err := w.client.CoreV1().Secrets(w.namespace).Create(soon(t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "config"}, StringData: map[string]string{"config.yaml": config(time.Second)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitsFor("hostPath type check failed")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	w.becomes("companion", running)
}

func TestAProcessThatEndsEndsItsPod(t *testing.T) {
	w, _ := processFixture(t)
	for _, test := range []struct{ name, flag, want, message string }{
		{"good", "--version", "Succeeded, kms-health:ended 0", ""},
		{"bad", "--no-such-flag", "Failed, kms-health:ended 2", "no-such-flag"},
	} {
		p := pod(test.name)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0] = corev1.Container{
			Name: "kms-health", Image: "any", Args: []string{test.flag},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}
		w.create(p)
		ended := w.becomes(test.name, test.want)
		if got := ended.Status.ContainerStatuses[0].State.Terminated.Message; !strings.Contains(got, test.message) || test.message == "" && got != "" {
			t.Errorf("%s: it reports %q", test.name, got)
		}
	}
}
