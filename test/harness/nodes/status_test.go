package nodes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settle writes statuses until there is nothing to change, and returns what was
// seen on the way.
func settle(t *testing.T, pod *corev1.Pod, behaviour *Behaviour) []string {
	t.Helper()
	var seen []string
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 10 {
		now = now.Add(time.Second)
		next := podStatus(pod, "192.0.2.1", "10.128.0.1", behaviour, metav1.NewTime(now))
		if equality.Semantic.DeepEqual(next, pod.Status) {
			return seen
		}
		pod.Status = next
		if hasEnded(pod) {
			return append(seen, describePod(pod))
		}
		seen = append(seen, describePod(pod))
	}
	t.Fatalf("it never settles: %q", seen)
	return nil
}

func describePod(pod *corev1.Pod) string {
	words := []string{string(pod.Status.Phase)}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			switch {
			case s.State.Running != nil:
				words = append(words, s.Name+":running")
			case s.State.Waiting != nil:
				words = append(words, s.Name+":"+s.State.Waiting.Reason)
			case s.State.Terminated != nil:
				words = append(words, fmt.Sprintf("%s:ended %d", s.Name, s.State.Terminated.ExitCode))
			}
			if s.RestartCount > 0 {
				words = append(words, fmt.Sprintf("restarts %d", s.RestartCount))
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			words = append(words, "ready")
		}
	}
	return strings.Join(words, ", ")
}

func TestStatusFollowsTheBehaviour(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := corev1.Container{Name: "side", RestartPolicy: &always}
	for name, test := range map[string]struct {
		policy    corev1.RestartPolicy
		inits     []corev1.Container
		behaviour *Behaviour
		want      []string
	}{
		"a behaviour of no container": {"", nil, nil, []string{"Running, a:running, b:running, ready"}},
		"no image":                    {"", nil, &Behaviour{Container: "a", Does: CannotPull}, []string{"Pending, a:ErrImagePull, b:running", "Pending, a:ImagePullBackOff, b:running"}},
		"a crash loop":                {"", nil, &Behaviour{Container: "b", Does: CrashLoops, ExitCode: 3}, []string{"Running, a:running, b:ended 3", "Running, a:running, b:CrashLoopBackOff, restarts 1"}},
		"an end that is none":         {"", nil, &Behaviour{Container: "b", Does: Ends}, []string{"Running, a:running, b:ended 0", "Running, a:running, b:CrashLoopBackOff, restarts 1"}},
		"a job":                       {corev1.RestartPolicyNever, nil, nil, []string{"Succeeded, a:ended 0, b:ended 0"}},
		"a job that fails":            {corev1.RestartPolicyNever, nil, &Behaviour{Container: "a", Does: Ends, ExitCode: 2}, []string{"Failed, a:ended 2, b:ended 0"}},
		"a job that goes on":          {corev1.RestartPolicyNever, nil, &Behaviour{Does: Runs}, []string{"Running, a:running, b:running, ready"}},
		"init containers":             {"", []corev1.Container{{Name: "i"}, sidecar}, nil, []string{"Running, i:ended 0, side:running, a:running, b:running, ready"}},
		"an init container's image":   {"", []corev1.Container{{Name: "i"}}, &Behaviour{Container: "i", Does: CannotPull}, []string{"Pending, i:ErrImagePull, a:PodInitializing, b:PodInitializing", "Pending, i:ImagePullBackOff, a:PodInitializing, b:PodInitializing"}},
		"an init container that ends": {corev1.RestartPolicyNever, []corev1.Container{{Name: "i"}}, &Behaviour{Container: "i", Does: Ends, ExitCode: 1}, []string{"Failed, i:ended 1, a:PodInitializing, b:PodInitializing"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				RestartPolicy: test.policy, InitContainers: test.inits,
				Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
			}}
			if pod.Spec.RestartPolicy == "" {
				pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			}
			if got := settle(t, pod, test.behaviour); strings.Join(got, "; ") != strings.Join(test.want, "; ") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestAContainerRecovers(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "a"}}}}
	for _, step := range []struct {
		behaviour *Behaviour
		want      string
	}{
		{&Behaviour{Does: CannotPull}, "Pending, a:ImagePullBackOff"},
		{nil, "Running, a:running, ready"},
		{&Behaviour{Does: CrashLoops}, "Running, a:CrashLoopBackOff, restarts 1"},
		{nil, "Running, a:running, restarts 1, ready"},
	} {
		if got := settle(t, pod, step.behaviour); len(got) == 0 || got[len(got)-1] != step.want {
			t.Errorf("got %q, want %s", got, step.want)
		}
	}
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 1 {
		t.Errorf("the last end is forgotten: %v", last)
	}
}
