package reportercontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/must"
)

// setPhase sets the phase of the reporters' pods, and how long they have been seen.
func setPhase(s *Snapshot, phase corev1.PodPhase, age time.Duration) {
	s.Seen = map[types.UID]time.Duration{}
	for _, o := range s.own("Pod") {
		_ = unstructured.SetNestedField(o.Object, string(phase), "status", "phase")
		s.Seen[o.GetUID()] = age
	}
}

func TestPodThatHasEndedIsReplacedAfterAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		phase              corev1.PodPhase
		age                time.Duration
		deleting, replaced bool
	}{
		"one that runs":               {corev1.PodRunning, time.Hour, false, false},
		"one that failed, younger":    {corev1.PodFailed, replaceAfter - 1, false, false},
		"one that failed, 30 s old":   {corev1.PodFailed, replaceAfter, false, true},
		"one that failed, older":      {corev1.PodFailed, time.Hour, false, true},
		"one that succeeded, older":   {corev1.PodSucceeded, time.Hour, false, true},
		"one that succeeded, younger": {corev1.PodSucceeded, time.Second, false, false},
		"one that is being deleted":   {corev1.PodFailed, time.Hour, true, false},
	} {
		s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")))
		setPhase(s, c.phase, c.age)
		companion := s.own("Pod")[0]
		if c.deleting {
			companion.SetDeletionTimestamp(&now)
		}
		plan := ComputePlan(s)
		if replaced := slices.Contains(plan.Delete, companion); replaced != c.replaced || len(plan.Delete) > 1 ||
			len(workloads(plan)) != 1 {
			t.Errorf("%s: %s deleted, %s wanted", name, names(plan.Delete), names(workloads(plan)))
		}
	}
}

// A static pod whose manifest was moved away and back has the same UID, but new volumes.
func TestCompanionThatReachesNoPluginOfAPodThatWasMadeAgainIsReplaced(t *testing.T) {
	began := time.Unix(1e9, 0)
	running := func(ats ...int) (all []corev1.ContainerStatus) {
		for _, at := range ats {
			s := corev1.ContainerStatus{Name: "api", ContainerID: "containerd://1"}
			if at != 0 {
				s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began.Add(time.Duration(at) * time.Second))}
			}
			all = append(all, s)
		}
		return all
	}
	type starts = []int // of containers, in seconds; 0: does not run
	const stale, fresh = time.Hour, time.Minute
	for name, c := range map[string]struct {
		companion, init, servers starts
		unchanged                time.Duration   // of the companion's report
		reason                   contract.Reason // of the plugin's error in it
		runs                     time.Duration   // for how long the API server's container has been seen
		replaced                 bool
		other                    bool // the silence is that of an earlier report
	}{
		"made again":                            {starts{1}, nil, starts{2, 3}, stale, "", startsWithin, true, false},
		"made again, and it reports anew":       {starts{1}, nil, starts{2, 3}, stale, "", startsWithin, false, true},
		"made again, and its plugin":            {starts{1}, starts{2}, starts{3}, stale, "", startsWithin, true, false},
		"made again, and the companion reports": {starts{1}, nil, starts{2, 3}, fresh, "", startsWithin, false, false},
		"the companion was started again":       {starts{4}, nil, starts{2, 3}, stale, "", startsWithin, false, false},
		"within the same second":                {starts{2}, nil, starts{2, 3}, stale, "", startsWithin, false, false},
		"one container was started again":       {starts{2}, nil, starts{1, 3}, stale, "", startsWithin, false, false},
		"the plugin was not":                    {starts{2}, starts{1}, starts{3}, stale, "", startsWithin, false, false},
		"the companion does not run":            {starts{0}, nil, starts{2, 3}, stale, "", startsWithin, false, false},
		"the API server does not run":           {starts{1}, nil, starts{0}, stale, "", startsWithin, false, false},
		// The kubelet unmounts an emptyDir in memory (teardownTmpfsOrHugetlbfs), but a companion keeps the former one.
		"made again, and no socket is there": {starts{1}, nil, starts{2, 3}, fresh, contract.SocketMissing, startsWithin, true, false},
		"made again, and nothing listens":    {starts{1}, nil, starts{2, 3}, fresh, contract.ConnectFailed, startsWithin, true, false},
		"made again, and the plugin answers": {starts{1}, nil, starts{2, 3}, fresh, contract.Timeout, startsWithin, false, false},
		"no socket is there":                 {starts{4}, nil, starts{2, 3}, fresh, contract.SocketMissing, startsWithin, false, false},
		"made again a moment ago":            {starts{1}, nil, starts{2, 3}, fresh, contract.SocketMissing, startsWithin - 1, false, false},
		// A starting kubelet first shows the static pods, which it started before it reached an API server.
		"its node was restarted a moment ago": {starts{1}, nil, starts{2, 3}, stale, "", startsWithin - 1, false, false},
		"made again, and a plugin ended":      {starts{1}, nil, starts{2, 3, 0}, fresh, contract.SocketMissing, startsWithin, false, false},
		// The node's clock was set back between the starts.
		"the companion is the one of now, and finds no socket": {starts{1}, nil, starts{2, 3}, fresh, contract.SocketMissing,
			2 * time.Hour, false, false},
		"the companion is the one of now, and does not report": {starts{1}, nil, starts{2, 3}, stale, "", 2 * time.Hour, false, false},
	} {
		s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = running(c.init...), running(c.servers...)
		})), reports(reportOf("b", "another"), reportOf("a", "companion-a")))
		setPhase(s, corev1.PodRunning, time.Hour)
		companion := s.own("Pod")[0]
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodStatus{ContainerStatuses: running(c.companion...)})
		must.Succeed(t, err)
		companion.Object["status"] = status
		s.Seen["containerd://1"] = c.runs
		entries := s.Resource.Reports[1].Entries
		if c.reason != "" {
			entries[0].Status, entries[0].Reason = contract.Error, c.reason
		}
		of := rollup.HashOf(entries)
		if c.other {
			of = "that of an earlier report"
		}
		s.State.Silent = map[string]rollup.Silence{"a": {Report: of, For: int64(c.unchanged / time.Second)}}
		plan := ComputePlan(s)
		if replaced := slices.Contains(plan.Delete, companion); replaced != c.replaced || len(workloads(plan)) != 1 {
			t.Errorf("%s: %q deleted, %s wanted", name, names(plan.Delete), names(workloads(plan)))
		}
	}
}

// withReporter adds the reporter's container to a pod.
func withReporter(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: contract.ReporterContainer, VolumeMounts: []corev1.VolumeMount{{Name: objects.ConfigVolume,
			MountPath: objects.ConfigFolder}},
	})
}

// daemonSet adds a DaemonSet with an observed generation, and numbers of wanted, existing and updated pods.
func daemonSet(observed, wanted, exist, updated int64) func(*Snapshot) {
	return func(s *Snapshot) {
		o := ownObject("DaemonSet", s.Namespace)
		o.SetGeneration(2)
		o.Object["status"] = map[string]any{"observedGeneration": observed, "desiredNumberScheduled": wanted,
			"currentNumberScheduled": exist, "updatedNumberScheduled": updated}
		s.Own = append(s.Own, o)
	}
}

// companion adds an existing companion in a phase.
func companion(phase corev1.PodPhase) func(*Snapshot) {
	return func(s *Snapshot) {
		o := ownObject("Pod", s.Namespace)
		o.SetName("companion")
		o.SetUID("Pod")
		o.Object["spec"], o.Object["status"] = map[string]any{"nodeName": "a"}, map[string]any{"phase": string(phase)}
		s.Own = append(s.Own, o)
	}
}

// failed adds an Event about an object whose UID is its kind.
func failed(kind types.UID, why string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.own(string(kind))[0].SetUID(kind)
		s.Failures = map[types.UID]string{kind: why}
	}
}

// rollout sets the status of the Deployment that gets the reporter's container.
func rollout(updated, all int32) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Target.Deployment, s.Deployment = "apiserver", deployment(1)
		s.Deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: updated, Replicas: all}
	}
}

// An incomplete delivery must not be reported as delivered. Progressing becomes ProgressDeadlineExceeded or
// ReportsMissing later (package rollup).
func TestWhatIsMissingOfADeliveryIsReported(t *testing.T) {
	type change = func(*Snapshot)
	onHosts, one := pods(apiPod("a", "1", onHost)), pods(apiPod("a", "1"))
	with, half := pods(apiPod("a", "1", withReporter)), pods(apiPod("a", "1", withReporter), apiPod("b", "2"))
	both := pods(apiPod("a", "1", withReporter), apiPod("b", "2", withReporter))
	const agents, companions, sidecars = v1alpha1.ModeDaemonSet, v1alpha1.ModeCompanionPod, v1alpha1.ModeSidecar
	const none, waits, ok = contract.NoReporters, contract.Progressing, contract.AsExpected
	for name, c := range map[string]struct {
		mode   v1alpha1.Mode
		change []change
		want   delivery.Reason
		part   string
	}{
		"a DaemonSet that selects no node": {agents, []change{onHosts, daemonSet(2, 0, 0, 0)}, none, "selects no node"},
		"a DaemonSet whose change was not observed yet": {agents, []change{onHosts, daemonSet(1, 3, 3, 3)}, waits,
			"kube-controller-manager"},
		"a DaemonSet that is being deleted": {agents, []change{onHosts, daemonSet(2, 0, 0, 0),
			func(s *Snapshot) { s.own("DaemonSet")[0].SetDeletionTimestamp(&now) }}, ok, ""},
		"a DaemonSet that nothing has observed": {agents, []change{onHosts, daemonSet(0, 0, 0, 0),
			func(s *Snapshot) { s.own("DaemonSet")[0].SetGeneration(0) }}, ok, ""},
		"a DaemonSet whose pods admission denies": {agents, []change{onHosts, daemonSet(2, 3, 0, 0)}, waits, "has 0 of 3 pods"},
		"a DaemonSet whose pods are denied, as an Event has it": {agents, []change{onHosts, daemonSet(2, 3, 0, 0),
			failed("DaemonSet", "exceeded quota: pods")}, waits, "has 0 of 3 pods: exceeded quota: pods"},
		"a companion that cannot mount a folder": {companions, []change{one, companion(corev1.PodPending),
			failed("Pod", "hostPath type check failed: /run/kms is not a directory")}, waits,
			"Pod kms-health/companion on node a does not start: hostPath type check failed: /run/kms"},
		"a companion that mounted it since": {companions, []change{one, companion(corev1.PodRunning),
			failed("Pod", "not a directory")}, ok, ""},
		"a DaemonSet that is rolled out":      {agents, []change{onHosts, daemonSet(2, 3, 3, 2)}, waits, "2 of 3 pods are updated"},
		"a DaemonSet with all pods":           {agents, []change{onHosts, daemonSet(2, 3, 3, 3)}, ok, ""},
		"a DaemonSet with its only pod":       {agents, []change{onHosts, daemonSet(2, 1, 1, 1)}, ok, ""},
		"no pod with the container":           {sidecars, []change{one}, none, contract.ReporterContainer},
		"a pod with the container":            {sidecars, []change{with}, ok, ""},
		"the container in 1 of 2 pods":        {sidecars, []change{half}, waits, "1 of 2 pods in namespace ns have"},
		"no pod at all":                       {sidecars, nil, none, "no pod of the API server runs in namespace ns"},
		"a Deployment that is scaled to zero": {sidecars, []change{rollout(0, 0)}, none, "namespace ns"},
		"a Deployment before its rollout":     {sidecars, []change{one, rollout(0, 1)}, waits, "0 of 1 pods in namespace ns"},
		"a Deployment with it in some pods":   {sidecars, []change{half, rollout(1, 2)}, waits, "1 of 2 pods in namespace ns"},
		"a Deployment whose rollout is stuck": {sidecars, []change{both, rollout(1, 3)}, waits, "1 of 3 pods are updated"},
		"a Deployment that is rolled out":     {sidecars, []change{both, rollout(2, 2)}, ok, ""},
		"a Deployment whose change was not observed yet": {sidecars, []change{both, rollout(2, 2),
			func(s *Snapshot) { s.Deployment.Generation = 2 }}, waits, "kube-controller-manager"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ComputePlan(fixture(t, c.mode, c.change...)).Status
			if got.Reason != c.want || !strings.Contains(got.Message, c.part) {
				t.Errorf("%+v, want %s with %q", got, c.want, c.part)
			}
		})
	}
}

func TestReporterHasTakenOverWhenTheReportNamesIt(t *testing.T) {
	unreadable, typed := reportOf("a", "u1"), reportOf("a", "u1")
	unreadable.Entries, typed.Form = nil, operatorstatus.FormTyped
	for name, c := range map[string]struct {
		report operatorstatus.Report
		want   bool
	}{
		"it names it":                                  {reportOf("a", "u1"), true},
		"the one before goes on":                       {reportOf("a", "u0"), false},
		"another node's, and its own has none":         {reportOf("b", "u0"), true},
		"set up by hand":                               {reportOf("a", ""), false},
		"unreadable":                                   {unreadable, false},
		"typed reports, which are a third-party one's": {typed, true},
	} {
		p := &planner{Snapshot: fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "u1", withReporter)), reports(c.report))}
		if got := p.takenOverOn("a"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if p.Pods = nil; p.takenOverOn("a") {
			t.Errorf("%s: no reporter runs", name)
		}
	}
}
