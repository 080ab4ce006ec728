package pluginhealthcontroller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// with returns a pod with these containers. The first is the API server's.
func with(containers ...corev1.Container) *corev1.Pod {
	return pod("a", func(p *corev1.Pod) { p.Spec.Containers = containers })
}

func initially(p *corev1.Pod, containers ...corev1.Container) *corev1.Pod {
	p.Spec.InitContainers = containers
	return p
}

func TestContainersOfPlugins(t *testing.T) {
	api, kms, sidecar := container("api", "sockets"), container("kms", "sockets"), container("kms-health", "sockets")
	onHost := corev1.Container{Name: "api",
		VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/var/run/kmsplugin"}}}
	for _, tt := range []struct {
		name      string
		pod       *corev1.Pod
		container string
		want      string
	}{
		{"nothing but an API server", with(api), "api", ""},
		{"a plugin", with(api, container("other"), kms), "api", "kms"},
		{"two plugins", with(api, kms, container("kms-old", "sockets")), "api", "kms kms-old"},
		{"the API server's container is the first", with(api, kms), "", "kms"},
		{"the API server's container is the first but our own", with(sidecar, api, kms), "", "kms"},
		{"a plugin in a restartable init container", initially(with(api), kms), "api", "kms"},
		{"a plugin and a sidecar", with(api, kms, sidecar), "api", "kms"},
		{"OpenShift's own reporter", initially(with(api, kms), container("kms-health-reporter", "sockets")), "api", "kms"},
		{"a plugin on the host, elsewhere", with(onHost, container("other")), "api", ""},
		{"no such container", with(api, kms), "apiserver", ""},
		{"no volume with sockets", with(container("api"), kms), "api", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := withKeys("2").but(func(t *delivery.Snapshot) { t.Container = tt.container })
			got := newBeside(&of.Snapshot, tt.pod, of.State.Live, nil).names
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
}

func pull(name string) corev1.ContainerStatus { return waiting(name, "ImagePullBackOff") }

func crash(name string) corev1.ContainerStatus {
	return after(waiting(name, "CrashLoopBackOff"), 3, 1)
}

// faulty returns an API server's pod with a plugin, a reporter as sidecar, and another container.
func faulty(change ...func(*corev1.Pod)) *corev1.Pod {
	p := with(container("api", "sockets"), container("kms", "sockets"), container("kms-health", "sockets"),
		container("other"))
	for _, c := range change {
		c(p)
	}
	return p
}

func inInit(s corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container(s.Name, "sockets"))
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
	}
}

// companionWith is a reporter's pod with the status of its container.
func companionWith(s corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.Status.ContainerStatuses = "kms-health-api-0a1b", "kms-health", []corev1.ContainerStatus{s}
	return p
}

// fault returns the finding on a container of the API server's pod, and ofCompanion that on the companion's.
func fault(reason, container, why string) rollup.Finding {
	return rollup.Finding{Reason: reason, Node: "a", Text: "container " + container + " of pod ns/api-a cannot start",
		Detail: why}
}

func ofCompanion(f rollup.Finding) rollup.Finding {
	f.Text = strings.Replace(f.Text, "ns/api-a", "kms-health/kms-health-api-0a1b", 1)
	return f
}

// outOfMemory returns the status of a container that exceeded its memory limit, as containerd and CRI-O report it.
func outOfMemory(s corev1.ContainerStatus) corev1.ContainerStatus {
	s = after(s, 3, 137)
	s.LastTerminationState.Terminated.Reason = "OOMKilled"
	return s
}

func TestFaults(t *testing.T) {
	refused := companionWith(corev1.ContainerStatus{})
	refused.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "no memory"}
	const plugin, reporter = contract.PluginNotRunning, contract.ReporterNotRunning
	type faults []rollup.Finding
	noImage, noSidecar := fault(plugin, "kms", "ImagePullBackOff"), fault(reporter, "kms-health", "ImagePullBackOff")
	for _, tt := range []struct {
		name     string
		pod      *corev1.Pod
		reporter *corev1.Pod
		want     faults
	}{
		{"all run", faulty(status(running("kms", time.Hour))), companionWith(running("kms-health", time.Hour)), nil},
		{"a plugin's image", faulty(status(pull("kms"))), nil, faults{noImage}},
		{"a plugin crashes", faulty(status(crash("kms"))), nil,
			faults{fault(plugin, "kms", "CrashLoopBackOff, exit code 1 (Error)")}},
		{"a plugin that the kernel kills, of which its log has nothing", faulty(status(outOfMemory(crash("kms")))), nil,
			faults{fault(plugin, "kms", "CrashLoopBackOff, exit code 137 (OOMKilled)")}},
		{"restarted, and its image can no longer be pulled", faulty(status(after(pull("kms"), 1, 1))), nil,
			faults{noImage}},
		{"the sidecar", faulty(status(pull("kms-health"))), nil, faults{noSidecar}},
		{"the API server itself, and a stranger", faulty(status(crash("api")), status(pull("other"))), nil, nil},
		{"init containers first", faulty(status(pull("kms")), inInit(pull("kms-health"))), nil, faults{noSidecar, noImage}},
		{"OpenShift's own reporter is neither", faulty(inInit(crash("kms-health-reporter"))), nil, nil},
		{"an init container that shares the sockets' volume has completed, also after two reboots",
			faulty(inInit(after(completed("setup"), 2, 0))), nil, nil},
		{"a stranger's init container",
			faulty(func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{pull("setup")} }), nil, nil},
		{"a companion", faulty(), companionWith(pull("kms-health")),
			faults{ofCompanion(noSidecar)}},
		{"a companion that a kubelet refused", faulty(), refused,
			faults{ofCompanion(fault(reporter, "kms-health", "Evicted: no memory"))}},
		{"a plugin and a companion", faulty(status(pull("kms"))), companionWith(crash("kms-health")),
			faults{noImage, ofCompanion(fault(reporter, "kms-health", "CrashLoopBackOff, exit code 1 (Error)"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := withKeys("2")
			got := lookOf(of).faults(newBeside(&of.Snapshot, tt.pod, of.State.Live, tt.reporter))
			if d := cmp.Diff(tt.want, faults(got)); d != "" {
				t.Error(d)
			}
		})
	}
	// After two reboots of a node, all containers have restarted. A new process knows from the condition which crash.
	rebooted := faulty(status(after(running("kms", 0), 2, 1)), status(after(running("kms-health", 0), 2, 1)))
	for reason, want := range map[string]string{plugin: noImage.Text, contract.AsExpected: "", reporter: noSidecar.Text} {
		of := withKeys("2")
		l, text := lookOf(of), ""
		l.first, l.degraded.Reason, l.reporting.Reason = true, reason, reason
		for _, f := range l.faults(newBeside(&of.Snapshot, rebooted, of.State.Live, nil)) {
			text += f.Text
		}
		if text != want {
			t.Errorf("at the first look, after %s: %q, want %q", reason, text, want)
		}
	}
}

// lookOf returns a look at node a that is not the first one.
func lookOf(of *target) *look {
	return &look{healthSync: syncingOf(of, abc), nodeHistory: nodeHistory{began: map[string]time.Time{}}}
}

// saying returns the status of a container that waits, with a reason and a message.
func saying(reason, message string) corev1.ContainerStatus {
	s := waiting("kms", reason)
	s.State.Waiting.Message = message
	return s
}

func TestContainerThatCannotStart(t *testing.T) {
	runs := func(since time.Duration) corev1.ContainerStatus { return running("kms", since) }
	for _, tt := range []struct {
		name   string
		status corev1.ContainerStatus
		want   string
	}{
		{"nothing is known", corev1.ContainerStatus{}, ""},
		{"it runs", runs(time.Second), ""},
		{"waiting for no reason", saying("", ""), ""},
		{"being created", saying("ContainerCreating", ""), ""},
		{"waiting for init containers", saying("PodInitializing", ""), ""},
		{"its pod restarts all containers, by a rule of its own",
			after(saying("RestartingAllContainers", "The container is removed"), 1, 137), ""},
		{"no image, at a try", saying("ErrImagePull", "not found"), "ImagePullBackOff"},
		{"no image, in back-off: the same text", saying("ImagePullBackOff", `Back-off pulling "x"`), "ImagePullBackOff"},
		{"a Secret is missing", saying("CreateContainerConfigError", `secret "x" not found`),
			`CreateContainerConfigError: secret "x" not found`},
		{"waiting after a crash: without the kubelet's seconds",
			after(saying("CrashLoopBackOff", "back-off 10s"), 2, 137), "CrashLoopBackOff, exit code 137 (Error)"},
		{"waiting after a crash of which nothing is known", saying("CrashLoopBackOff", ""), "CrashLoopBackOff"},

		{"it ended, and was not seen to wait", ended("kms", 1, time.Second), ""},
		{"an init container completed after two reboots", after(completed("kms"), 2, 0), ""},
		{"it runs after many restarts", after(runs(time.Second), 9, 1), ""},
	} {
		if why, _ := lookOf(withKeys("2")).cannotStart(&tt.status, false); why != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, why, tt.want)
		}
	}
}

// A container in CrashLoopBackOff has recovered only when it was seen to run for the period calm. Its exit codes and
// the times in its status do not count. An init container has recovered when it completed, too.
func TestContainerRecoversWhenItWasSeenToRunForAWhile(t *testing.T) {
	const minute = time.Minute
	loop := func(code int32) string { return fmt.Sprintf("CrashLoopBackOff, exit code %d (Error)", code) }
	type step struct {
		at     time.Duration
		status corev1.ContainerStatus
		want   string
	}
	waits := func(code int32) corev1.ContainerStatus { return after(waiting("kms", "CrashLoopBackOff"), 3, code) }
	runs := func(code int32) []step {
		runs := func(id string) corev1.ContainerStatus {
			s := after(running("kms", -24*time.Hour), 3, code)
			s.ContainerID = id
			return s
		}
		ended, exit := ended("kms", code, 0), loop(code)
		return []step{{0, runs("1"), ""}, {minute, waits(0), loop(0)}, {2 * minute, runs("2"), exit},
			{2*minute + calm - 1, runs("2"), exit}, {2*minute + calm - 1, ended, exit}, {3 * minute, runs("3"), exit},
			{3*minute + calm, runs("3"), ""}, {4 * minute, ended, ""}, {4 * minute, runs("4"), ""}}
	}
	done := after(completed("kms"), 3, 1)
	for name, steps := range map[string][]step{"exit code 0": runs(0), "exit code 1": runs(1),
		"an init container": {{0, waits(1), loop(1)}, {minute, ended("kms", 1, 0), loop(1)}, {2 * minute, done, ""},
			{3 * minute, done, ""}},
	} {
		l, loops := lookOf(withKeys("2")), false
		l.was = l.nodeHistory
		for i, step := range steps {
			var why string
			l.now = now.Add(step.at)
			if why, loops = l.cannotStart(&step.status, loops); why != step.want {
				t.Errorf("%s, step %d: %q, want %q", name, i, why, step.want)
			}
		}
	}
}
