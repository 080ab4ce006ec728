package pluginhealthcontroller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// with is a pod of containers; the first is the API server's.
func with(containers ...corev1.Container) *corev1.Pod {
	return pod("a", func(p *corev1.Pod) { p.Spec.Containers = containers })
}

func withArgs(c corev1.Container, args ...string) corev1.Container {
	c.Args = args
	return c
}

func initially(p *corev1.Pod, containers ...corev1.Container) *corev1.Pod {
	p.Spec.InitContainers = containers
	return p
}

type logCommands struct {
	name      string
	pod       *corev1.Pod
	container string
	reporter  *corev1.Pod
	keys      []string
	want      map[string]string
}

func (tt *logCommands) check(t *testing.T) {
	of := withKeys(tt.keys...).but(func(t *delivery.Snapshot) { t.Container = tt.container })
	if d := cmp.Diff(tt.want, newBeside(&of.Snapshot, tt.pod, of.State.Live, tt.reporter).look()); d != "" {
		t.Error(d)
	}
}

func TestLogCommands(t *testing.T) {
	api, kms, sidecar := container("api", "sockets"), container("kms", "sockets"), container("kms-health", "sockets")
	companion := &corev1.Pod{}
	companion.Name, companion.Namespace = "kms-health-api-0a1b", "kms-health"
	onHost := corev1.Container{Name: "api",
		VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/var/run/kmsplugin"}}}
	for _, tt := range []logCommands{
		{"nothing but an API server", with(api), "api", nil, []string{"2"}, map[string]string{}},
		{"a plugin", with(api, container("other"), kms), "api", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms"}},
		{"the API server's container is the first", with(api, kms), "", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms"}},
		{"the API server's container is the first but our own", with(sidecar, api, kms), "", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "": "oc logs -n ns api-a -c kms-health"}},
		{"a plugin in a restartable init container", initially(with(api), kms), "api", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms"}},
		{"a plugin and a sidecar", with(api, kms, sidecar), "api", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "": "oc logs -n ns api-a -c kms-health"}},
		{"a plugin and a companion", with(api, kms), "api", companion, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "": "oc logs -n kms-health kms-health-api-0a1b"}},
		{"a companion takes the place of a sidecar", with(api, kms, sidecar), "api", companion, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "": "oc logs -n kms-health kms-health-api-0a1b"}},
		{"OpenShift's own reporter", initially(with(api, kms), container("kms-health-reporter", "sockets")), "api", nil,
			[]string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "": "oc logs -n ns api-a -c kms-health-reporter"}},
		{"a plugin on the host, elsewhere", with(onHost, container("other")), "api", companion, []string{"2"},
			map[string]string{"": "oc logs -n kms-health kms-health-api-0a1b"}},
		{"no such container", with(api, kms), "apiserver", companion, []string{"2"},
			map[string]string{"": "oc logs -n kms-health kms-health-api-0a1b"}},
		{"no volume with sockets", with(container("api"), kms), "api", nil, []string{"2"}, map[string]string{}},
	} {
		t.Run(tt.name, tt.check)
	}
}

func TestLogCommandsOfSeveralPlugins(t *testing.T) {
	api, kms := container("api", "sockets"), container("kms", "sockets")
	two := []corev1.Container{container("kms-new", "sockets"), container("kms-old", "sockets")}
	command := two[0]
	command.Command = []string{"plugin", "--listen=/s/kms-2.sock"}
	environment := two[1]
	environment.Env = []corev1.EnvVar{{Name: "LISTEN", Value: "unix:///s/kms-1.sock"}}
	for _, tt := range []logCommands{
		{"two keys of one plugin", with(api, kms), "api", nil, []string{"2", "1"},
			map[string]string{"2": "oc logs -n ns api-a -c kms", "1": "oc logs -n ns api-a -c kms"}},
		{"two plugins by their arguments",
			with(api, withArgs(two[0], "--listen", "unix:///s/kms-2.sock"), withArgs(two[1], "--listen=/s/kms-1.sock")), "api",
			nil, []string{"2", "1"},
			map[string]string{"2": "oc logs -n ns api-a -c kms-new", "1": "oc logs -n ns api-a -c kms-old"}},
		{"two plugins by command and environment", with(api, command, environment), "api", nil, []string{"2", "1"},
			map[string]string{"2": "oc logs -n ns api-a -c kms-new", "1": "oc logs -n ns api-a -c kms-old"}},
		{"the API server itself has the sockets in its arguments",
			with(withArgs(api, "kms-2.sock"), two[0], withArgs(two[1], "kms-2.sock")), "api", nil, []string{"2"},
			map[string]string{"2": "oc logs -n ns api-a -c kms-old"}},
		{"two plugins without arguments", with(api, two[0], two[1]), "api", nil, []string{"2", "1"}, map[string]string{}},
		{"kms-1 is not kms-11", with(api, withArgs(two[0], "kms-11.sock"), withArgs(two[1], "kms-1.sock")), "api", nil,
			[]string{"1", "11"},
			map[string]string{"1": "oc logs -n ns api-a -c kms-old", "11": "oc logs -n ns api-a -c kms-new"}},
	} {
		t.Run(tt.name, tt.check)
	}
}

func pull(name string) corev1.ContainerStatus { return waiting(name, "ImagePullBackOff") }

func crash(name string) corev1.ContainerStatus {
	return after(waiting(name, "CrashLoopBackOff"), 3, 1, "no socket")
}

// faulty is an API server's pod with a plugin, a sidecar and another container.
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

func fault(reason, container, why, look string) rollup.Finding {
	return rollup.Finding{Reason: reason, Node: "a", Text: "container " + container + " cannot start", Detail: why,
		Look: look}
}

func TestFaults(t *testing.T) {
	refused := companionWith(corev1.ContainerStatus{})
	refused.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "no memory"}
	const (
		plugin, reporter = contract.PluginNotRunning, contract.ReporterNotRunning
		describe, logs   = "kubectl describe -n ns pod api-a", "kubectl logs -n ns api-a -c kms --previous"
	)
	for _, tt := range []struct {
		name     string
		pod      *corev1.Pod
		reporter *corev1.Pod
		want     []rollup.Finding
	}{
		{"all run", faulty(status(running("kms", time.Hour))), companionWith(running("kms-health", time.Hour)), nil},
		{"a plugin's image", faulty(status(pull("kms"))), nil, []rollup.Finding{
			fault(plugin, "kms", "ImagePullBackOff", describe)}},
		{"a plugin crashes", faulty(status(crash("kms"))), nil, []rollup.Finding{
			fault(plugin, "kms", "CrashLoopBackOff, exit code 1: no socket", logs)}},
		{"between crashes it is evaluated again", faulty(status(after(running("kms", time.Second), 3, 1, ""))), nil,
			[]rollup.Finding{
				fault(plugin, "kms", "CrashLoopBackOff, exit code 1", logs)}},
		{"restarted, and its image can no longer be pulled", faulty(status(after(pull("kms"), 1, 1, ""))), nil,
			[]rollup.Finding{
				fault(plugin, "kms", "ImagePullBackOff", describe)}},
		{"the sidecar", faulty(status(pull("kms-health"))), nil, []rollup.Finding{
			fault(reporter, "kms-health", "ImagePullBackOff", describe)}},
		{"the API server itself, and a stranger", faulty(status(crash("api")), status(pull("other"))), nil, nil},
		{"init containers first", faulty(status(pull("kms")), inInit(pull("kms-health-reporter"))), nil, []rollup.Finding{
			fault(reporter, "kms-health-reporter", "ImagePullBackOff", describe),
			fault(plugin, "kms", "ImagePullBackOff", describe)}},
		{"an init container that shares the sockets' volume has completed, also after two reboots",
			faulty(inInit(after(ended("setup", 0, time.Hour), 2, 0, ""))), nil, nil},
		{"a stranger's init container",
			faulty(func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{pull("setup")} }), nil, nil},
		{"a companion", faulty(), companionWith(pull("kms-health")), []rollup.Finding{
			fault(reporter, "kms-health", "ImagePullBackOff",
				"kubectl describe -n kms-health pod kms-health-api-0a1b")}},
		{"a companion that a kubelet refused", faulty(), refused, []rollup.Finding{
			fault(reporter, "kms-health", "Evicted: no memory", "kubectl describe -n kms-health pod kms-health-api-0a1b")}},
		{"a plugin and a companion", faulty(status(pull("kms"))), companionWith(crash("kms-health")), []rollup.Finding{
			fault(plugin, "kms", "ImagePullBackOff", describe),
			fault(reporter, "kms-health", "CrashLoopBackOff, exit code 1: no socket",
				"kubectl logs -n kms-health kms-health-api-0a1b -c kms-health --previous")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of, again := withKeys("2").but(func(t *delivery.Snapshot) { t.Tool = "kubectl" }), time.Time{}
			got := newBeside(&of.Snapshot, tt.pod, of.State.Live, tt.reporter).faults(now, func(at time.Time) {
				if !at.IsZero() {
					again = at
				}
			})
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if want := strings.HasPrefix(tt.name, "between crashes"); again.Equal(now.Add(29*time.Second)) != want {
				t.Errorf("again at %s", again)
			}
		})
	}
}

// saying is a container that waits for a reason, with a message.
func saying(reason, message string) corev1.ContainerStatus {
	s := waiting("kms", reason)
	s.State.Waiting.Message = message
	return s
}

// exited ended a second ago; it had run for that long.
func exited(code int32, ran time.Duration) corev1.ContainerStatus {
	s := ended("kms", code, time.Second)
	s.State.Terminated.StartedAt = ago(time.Second + ran)
	return s
}

// ranFor sets for how long a container had run before its last restart.
func ranFor(d time.Duration, s corev1.ContainerStatus) corev1.ContainerStatus {
	s.LastTerminationState.Terminated.StartedAt = ago(time.Minute + d)
	return s
}

// unseen is a container whose end was not seen.
func unseen(s corev1.ContainerStatus, reason string) corev1.ContainerStatus {
	s.RestartCount = 2
	if s.State.Terminated != nil {
		s.State.Terminated.Reason = reason
	} else {
		s.LastTerminationState.Terminated.Reason = reason
	}
	return s
}

func TestContainerThatCannotStart(t *testing.T) {
	const loop = "CrashLoopBackOff, exit code "
	runs := func(since time.Duration) corev1.ContainerStatus { return running("kms", since) }
	for _, tt := range []struct {
		name   string
		status corev1.ContainerStatus
		want   string
		until  time.Duration // from now
	}{
		{"nothing is known", corev1.ContainerStatus{}, "", 0},
		{"it runs", runs(time.Second), "", 0},
		{"waiting for no reason", saying("", ""), "", 0},
		{"being created", saying("ContainerCreating", ""), "", 0},
		{"waiting for init containers", saying("PodInitializing", ""), "", 0},
		{"no image, no message", saying("ErrImagePull", ""), "ImagePullBackOff", 0},
		{"no image, in back-off: the cause alone",
			saying("ImagePullBackOff", `Back-off pulling "x": ErrImagePull: not found`), "ImagePullBackOff: not found", 0},
		{"no image, at a try: the same text", saying("ErrImagePull", "not found"), "ImagePullBackOff: not found", 0},
		{"a Secret is missing", saying("CreateContainerConfigError", `secret "x" not found`),
			`CreateContainerConfigError: secret "x" not found`, 0},
		{"waiting after a crash: without the kubelet's seconds",
			after(saying("CrashLoopBackOff", "back-off 10s"), 2, 137, ""), loop + "137", 0},
		{"waiting after a crash of which nothing is known", saying("CrashLoopBackOff", ""), "CrashLoopBackOff", 0},
		{"the last line of its message", after(saying("CrashLoopBackOff", ""), 2, 1, "stack\nno token\n"),
			loop + "1: no token", 0},
		{"it ended again and again without an error", after(saying("CrashLoopBackOff", ""), 2, 0, ""), loop + "0", 0},

		{"it crashed once, and is started again at once", exited(1, time.Second), "", 0},
		{"it crashed again", after(exited(2, time.Second), 1, 1, ""), loop + "2", 0},
		{"its end was not seen, after a power cut", unseen(exited(255, time.Second), "Unknown"), "", 0},
		{"its end was not seen, by the kubelet", unseen(exited(137, time.Second), "ContainerStatusUnknown"), "", 0},
		{"it runs after an end that was not seen", unseen(after(runs(time.Second), 2, 255, ""), "Unknown"), "", 0},
		{"it ran for long, and ended with its node", after(exited(255, time.Hour), 9, 1, ""), "", 0},
		{"its start is not known, as after the loss of its node", after(ended("kms", 137, time.Second), 9, 1, ""), "", 0},
		{"an init container completed after two reboots", after(exited(0, time.Second), 2, 0, ""), "", 0},

		{"it runs after its first crash", after(runs(time.Second), 1, 1, ""), "", 0},
		{"it runs after a second crash", after(runs(time.Second), 2, 1, "refused"), loop + "1: refused", 29 * time.Second},
		{"it runs for a nanosecond too little", after(runs(calm-1), 2, 1, ""), loop + "1", 1},
		{"it runs for long enough", after(runs(calm), 2, 1, ""), "", 0},
		{"it ran for long, ended with its node, and runs", ranFor(time.Hour, after(runs(time.Second), 9, 255, "")), "", 0},
	} {
		why, until := cannotStart(&tt.status, now)
		want := time.Time{}
		if tt.until > 0 {
			want = now.Add(tt.until)
		}
		if why != tt.want || !until.Equal(want) {
			t.Errorf("%s: %q until %s, want %q until %s", tt.name, why, until, tt.want, want)
		}
	}
}
