//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cannotMount has nothing against a pod that has not started since a time because of its
// volumes. A container of before stays Terminated, that of a new pod is in ContainerCreating.
func (h *scenario) cannotMount(pod *corev1.Pod, on time.Time) error {
	if len(pod.Status.ContainerStatuses) == 0 {
		return fmt.Errorf("%s has no status", pod.Name)
	}
	for _, c := range pod.Status.ContainerStatuses {
		before := c.State.Terminated != nil && c.State.Terminated.StartedAt.Time.Before(on)
		creating := c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating"
		if !before && !creating {
			return fmt.Errorf("%s: %+v", pod.Name, c.State)
		}
	}
	events, err := h.Kube.CoreV1().Events(pod.Namespace).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=FailedMount,involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.LastTimestamp.After(on) && strings.Contains(e.Message, "MountVolume.SetUp failed") {
			return nil
		}
	}
	return fmt.Errorf("%s has no event FailedMount of after the reboot", pod.Name)
}

// premise is a pod that has nothing to do with this project, and mounts a ConfigMap;
// premiseNew is one that is created while the plugin is unhealthy.
const (
	premise    = "mounts-a-configmap"
	premiseNew = "mounts-a-configmap-too"
)

func (h *scenario) premiseConfigMap() {
	h.t.Helper()
	_, err := h.Kubectl(h.ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+premise+", namespace: default}\ndata: {a: b}\n", "apply", "-f", "-")
	h.must(err)
}

func (h *scenario) premisePod(name string) {
	h.t.Helper()
	_, err := h.Kubectl(h.ctx, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, namespace: default}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: hold, image: registry.invalid/e2e/pause:v1, volumeMounts: [{name: file, mountPath: /file}]}]
  volumes: [{name: file, configMap: {name: `+premise+`}}]
`, "apply", "-f", "-")
	h.must(err)
}

// checkPremise requires pods that mount a ConfigMap to run after a reboot with a healthy
// plugin, and not with an unhealthy one.
func (h *scenario) checkPremise(on time.Time, healthy bool) {
	h.t.Helper()
	if healthy {
		h.await(time.Minute, "a pod that mounts a ConfigMap runs", func() error { return h.started(premise, on) })
		return
	}
	h.premisePod(premiseNew)
	for _, name := range []string{premise, premiseNew} {
		var pod *corev1.Pod
		h.await(time.Minute, name+" cannot mount its ConfigMap", func() (err error) {
			if pod, err = h.Kube.CoreV1().Pods("default").Get(h.ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			return h.cannotMount(pod, on)
		})
		state, _ := json.Marshal(pod.Status.ContainerStatuses[0].State)
		h.t.Logf("with an unhealthy plugin pod %s: %s", name, state)
	}
	_, err := h.Kubectl(h.ctx, "", "-n", "default", "delete", "--now", "pod/"+premiseNew)
	h.must(err)
}

// started has nothing against a pod whose container has started since a time.
func (h *scenario) started(name string, since time.Time) error {
	pod, err := h.Kube.CoreV1().Pods("default").Get(h.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if c := pod.Status.ContainerStatuses; len(c) != 1 || c[0].State.Running == nil || c[0].State.Running.StartedAt.Time.Before(since.Add(-time.Second)) {
		return fmt.Errorf("%+v", c)
	}
	return nil
}
