package pluginhealthcontroller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

// now is the time of the evaluation.
var now = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// plugins returns plugins with sockets in one folder. The first is the write key's.
func plugins(keys ...string) []v1alpha1.Plugin {
	all := []v1alpha1.Plugin{}
	for i, key := range keys {
		role := v1alpha1.RoleRead
		if i == 0 {
			role = v1alpha1.RoleWrite
		}
		all = append(all, v1alpha1.Plugin{KeyID: key, Endpoint: "unix:///var/run/kmsplugin/kms-" + key + ".sock", Role: role})
	}
	return all
}

// target is an API server as reportercontroller publishes it.
type target struct{ delivery.Snapshot }

// withKeys returns a target whose live plugins have these key IDs.
func withKeys(keys ...string) *target {
	t := &target{delivery.Snapshot{SetsKnown: true, LiveKnown: true, State: delivery.State{Live: plugins(keys...)}}}
	t.Name, t.Resource, t.Namespace = "api", v1alpha1.ResourceKubeAPIServers, "ns"
	t.PodSelector, t.Container = map[string]string{"app": "api"}, "api"
	t.EncryptionConfig.Secret = "encryption-config"
	return t
}

func (t *target) but(change func(*delivery.Snapshot)) *target {
	change(&t.Snapshot)
	return t
}

// container mounts volumes at the sockets' folder.
func container(name string, volumes ...string) corev1.Container {
	c := corev1.Container{Name: name}
	for _, volume := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/var/run/kmsplugin"})
	}
	return c
}

// pod returns an API server's pod on a node, an hour old, with a plugin as sidecar.
func pod(node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.CreationTimestamp = "api-"+node, "ns", ago(time.Hour)
	p.Labels = map[string]string{"app": "api"}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{container("api", "sockets"), container("kms", "sockets"), container("other")}
	p.Status.Phase = corev1.PodRunning
	for _, c := range change {
		c(p)
	}
	return p
}

func named(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }

func aged(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = ago(d) }
}

func phase(as corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = as } }

func terminating(p *corev1.Pod) { at := ago(time.Second); p.DeletionTimestamp = &at }

// mounting makes a pod mount the Secret of an encryption config.
func mounting(secret string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: "config",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	}
}

func revision(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["revision"] = fmt.Sprint(n) }
}

// status adds the status of a container.
func status(s corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s) }
}

func running(name string, since time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}}}
}

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func ended(name string, code int32, since time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error",
			FinishedAt: ago(since)}}}
}

// completed is an init container that has done its work.
func completed(name string) corev1.ContainerStatus {
	s := ended(name, 0, time.Hour)
	s.Ready = true
	return s
}

// after returns the status of a container with a number of restarts, which ended last with this exit code.
func after(s corev1.ContainerStatus, restarts, code int32) corev1.ContainerStatus {
	s.RestartCount = restarts
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error",
		StartedAt: ago(time.Minute + time.Second), FinishedAt: ago(time.Minute)}
	return s
}

// nodeObject returns a Node that is Ready.
func nodeObject(name string) map[string]any {
	return map[string]any{"kind": "Node", "apiVersion": "v1",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"x": "y"}},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}
}

// addPod adds an API server on a node, an hour old.
func (s *fixture) addPod(node string) {
	s.Helper()
	s.addPodIn("ns", pod(node))
}

// addAgent adds an agent on a node, an hour old.
func (s *fixture) addAgent(node string) {
	s.Helper()
	s.addPodIn("kms-health", pod(node, named("kms-health-api-"+node), func(p *corev1.Pod) {
		p.Namespace = "kms-health"
		p.Labels = map[string]string{contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: "api",
			contract.ModeLabel: string(v1alpha1.ModeDaemonSet)}
	}))
}

// restart shows the API server's container of a node with another ID.
func (s *fixture) restart(node, id string) {
	s.Helper()
	p := pod(node, runsAs(id))
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err == nil {
		err = s.client.Tracker().Update(informers.Pods, &unstructured.Unstructured{Object: o}, "ns")
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *fixture) addPodIn(namespace string, p *corev1.Pod) {
	s.Helper()
	p.CreationTimestamp = metav1.NewTime(s.start.Add(-time.Hour))
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		s.Fatal(err)
	}
	s.add(informers.Pods, namespace, o)
}

func (s *fixture) deletePod(namespace, name string) {
	s.Helper()
	if err := s.client.Tracker().Delete(informers.Pods, namespace, name); err != nil {
		s.Fatal(err)
	}
}
