package reportercontroller

import (
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
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// setPhase sets the phase of the reporters' pods, and when they were created.
func setPhase(s *Snapshot, phase corev1.PodPhase, created time.Time) {
	for _, o := range s.own("Pod") {
		_ = unstructured.SetNestedField(o.Object, string(phase), "status", "phase")
		if s.Seen == nil {
			s.Seen = map[types.UID]time.Duration{}
		}
		s.Seen[o.GetUID()] = testTime.Sub(created)
	}
}

func TestPodThatHasEndedIsReplacedAfterAMoment(t *testing.T) {
	companion := func(t *testing.T) *Snapshot {
		first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"))))
		return fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), delivered(t, first))
	}
	for name, c := range map[string]struct {
		snapshot func(*testing.T) *Snapshot
		phase    corev1.PodPhase
		age      time.Duration
		replaced bool
	}{
		"a companion that runs":       {companion, corev1.PodRunning, time.Hour, false},
		"one that failed, younger":    {companion, corev1.PodFailed, 29 * time.Second, false},
		"one that failed, 30 s old":   {companion, corev1.PodFailed, 30 * time.Second, true},
		"one that failed, older":      {companion, corev1.PodFailed, time.Hour, true},
		"one that succeeded, older":   {companion, corev1.PodSucceeded, time.Hour, true},
		"one that succeeded, younger": {companion, corev1.PodSucceeded, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.snapshot(t)
			setPhase(s, c.phase, testTime.Add(-c.age))
			plan := planOf(t, s)
			if replaced := len(plan.Delete) == 1 && plan.Delete[0] == s.own("Pod")[0]; replaced != c.replaced ||
				len(workloads(plan)) != 1 {
				t.Errorf("%s deleted, %s wanted", names(plan.Delete), names(workloads(plan)))
			}
		})
	}
	s := companion(t)
	setPhase(s, corev1.PodFailed, testTime.Add(-time.Hour))
	now := metav1.NewTime(testTime)
	s.own("Pod")[0].SetDeletionTimestamp(&now)
	if plan := planOf(t, s); len(plan.Delete) > 0 {
		t.Errorf("%s, which is being deleted, is deleted again", names(plan.Delete))
	}
}

// A static pod whose manifest was moved away and back has the same UID, but new volumes.
func TestCompanionThatReachesNoPluginOfAPodThatWasMadeAgainIsReplaced(t *testing.T) {
	began := time.Unix(1e9, 0).Add(-time.Hour)
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
	for name, c := range map[string]struct {
		companion, init, servers []int         // start times of containers, in seconds; 0: does not run
		reported                 time.Duration // time since the companion last reported
		replaced                 bool
		error                    contract.Reason // the plugin's reason in the report
		runs                     time.Duration   // for how long the API server's container has run
	}{
		"made again":                            {[]int{1}, nil, []int{2, 3}, time.Hour, true, "", startsWithin},
		"made again, and its plugin":            {[]int{1}, []int{2}, []int{3}, time.Hour, true, "", startsWithin},
		"made again, and the companion reports": {[]int{1}, nil, []int{2, 3}, time.Minute, false, "", startsWithin},
		"the companion was started again":       {[]int{4}, nil, []int{2, 3}, time.Hour, false, "", startsWithin},
		"within the same second":                {[]int{2}, nil, []int{2, 3}, time.Hour, false, "", startsWithin},
		"one container was started again":       {[]int{2}, nil, []int{1, 3}, time.Hour, false, "", startsWithin},
		"the plugin was not":                    {[]int{2}, []int{1}, []int{3}, time.Hour, false, "", startsWithin},
		"the companion does not run":            {[]int{0}, nil, []int{2, 3}, time.Hour, false, "", startsWithin},
		"the API server does not run":           {[]int{1}, nil, []int{0}, time.Hour, false, "", startsWithin},
		// The kubelet unmounts an emptyDir in memory (teardownTmpfsOrHugetlbfs), but a companion keeps the former one.
		"made again, and no socket is there": {[]int{1}, nil, []int{2, 3}, time.Minute, true, contract.SocketMissing, startsWithin},
		"made again, and nothing listens":    {[]int{1}, nil, []int{2, 3}, time.Minute, true, contract.ConnectFailed, startsWithin},
		"made again, and the plugin answers": {[]int{1}, nil, []int{2, 3}, time.Minute, false, contract.Timeout, startsWithin},
		"no socket is there":                 {[]int{4}, nil, []int{2, 3}, time.Minute, false, contract.SocketMissing, startsWithin},
		"made again a moment ago":            {[]int{1}, nil, []int{2, 3}, time.Minute, false, contract.SocketMissing, startsWithin - 1},
		// A starting kubelet first shows the static pods, which it started before it reached an API server.
		"its node was restarted a moment ago": {[]int{1}, nil, []int{2, 3}, time.Hour, false, "", startsWithin - 1},
		"made again, and a plugin ended":      {[]int{1}, nil, []int{2, 3, 0}, time.Minute, false, contract.SocketMissing, startsWithin},
		// The node's clock was set back between the starts.
		"the companion is the one of now, and finds no socket": {[]int{1}, nil, []int{2, 3}, time.Minute, false, contract.SocketMissing, 2 * time.Hour},
		"the companion is the one of now, and does not report": {[]int{1}, nil, []int{2, 3}, time.Hour, false, "", 2 * time.Hour},
	} {
		server := apiPod("a", "1", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = running(c.init...), running(c.servers...)
		})
		first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, pods(server)))
		s := fixture(t, v1alpha1.ModeCompanionPod, pods(server), delivered(t, first))
		setPhase(s, corev1.PodRunning, began)
		pod := informers.As[corev1.Pod](s.own("Pod")[0]).DeepCopy()
		pod.Status.ContainerStatuses = running(c.companion...)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			t.Fatal(err)
		}
		s.own("Pod")[0].Object["status"] = object["status"]
		s.Resource = &operatorstatus.Status{Reports: []operatorstatus.Report{
			reportOf("b", "another", testTime), reportOf("a", string(pod.UID), testTime)}}
		s.Seen["containerd://1"] = c.runs
		s.State.Silent = map[string]rollup.Silence{"a": {For: int64(c.reported / time.Second)}}
		if c.error != "" {
			e := &s.Resource.Reports[1].Entries[0]
			e.Status, e.Reason = contract.Error, c.error
		}
		plan := planOf(t, s)
		if replaced := names(plan.Delete) == "Pod/"+pod.Name; replaced != c.replaced || len(workloads(plan)) != 1 {
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
		o := ownObject("DaemonSet")
		o.SetNamespace(s.Namespace)
		o.SetGeneration(2)
		o.Object["status"] = map[string]any{"observedGeneration": observed, "desiredNumberScheduled": wanted,
			"currentNumberScheduled": exist, "updatedNumberScheduled": updated}
		s.Own = append(s.Own, o)
	}
}

// companion adds an existing companion in a phase.
func companion(phase corev1.PodPhase) func(*Snapshot) {
	return func(s *Snapshot) {
		o := ownObject("Pod")
		o.SetNamespace(s.Namespace)
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
func rollout(paused bool, updated, all int32) func(*Snapshot) {
	return func(s *Snapshot) {
		inDeployment(s)
		s.Deployment = deployment(1)
		s.Deployment.Spec.Paused = paused
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
			func(s *Snapshot) { s.own("DaemonSet")[0].SetDeletionTimestamp(&metav1.Time{Time: testTime}) }}, ok, ""},
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
		"a DaemonSet that is rolled out": {agents, []change{onHosts, daemonSet(2, 3, 3, 2)}, waits, "2 of 3 pods are updated"},
		"a DaemonSet with all pods":      {agents, []change{onHosts, daemonSet(2, 3, 3, 3)}, ok, ""},
		"a DaemonSet with its only pod":  {agents, []change{onHosts, daemonSet(2, 1, 1, 1)}, ok, ""},
		"no pod with the container":      {sidecars, []change{one}, none, contract.ReporterContainer},
		"a pod with the container": {sidecars, []change{with}, ok,
			"its owner brings the credentials in Secret ns/kms-health"},
		"the container in 1 of 2 pods": {sidecars, []change{half}, waits, "1 of 2 pods in namespace ns have"},
		"no pod at all":                {sidecars, nil, none, "no pod of the API server runs in namespace ns"},
		"a paused Deployment without it": {sidecars, []change{one, rollout(true, 0, 1)},
			contract.DeploymentPaused, "0 of its 1 pods"},
		"a paused Deployment with it in some pods": {sidecars, []change{half, rollout(true, 1, 2)},
			contract.DeploymentPaused, "1 of its 2 pods"},
		"a paused Deployment with it in all pods": {sidecars, []change{with, rollout(true, 1, 1)}, ok, ""},
		"a Deployment that is scaled to zero":     {sidecars, []change{rollout(false, 0, 0)}, none, "namespace ns"},
		"a Deployment before its rollout": {sidecars, []change{one, rollout(false, 0, 1)}, waits,
			"0 of 1 pods in namespace ns"},
		"a Deployment whose rollout is stuck": {sidecars, []change{both, rollout(false, 1, 3)}, waits,
			"1 of 3 pods are updated"},
		"a Deployment that is rolled out": {sidecars, []change{both, rollout(false, 2, 2)}, ok, ""},
		"a Deployment whose change was not observed yet": {sidecars, []change{both, rollout(false, 2, 2),
			func(s *Snapshot) { s.Deployment.Generation = 2 }}, waits, "kube-controller-manager"},
	} {
		t.Run(name, func(t *testing.T) {
			got := planOf(t, fixture(t, c.mode, c.change...)).Status
			if got.Reason != c.want || !strings.Contains(got.Message, c.part) {
				t.Errorf("%+v, want %s with %q", got, c.want, c.part)
			}
		})
	}
}

// reportOf returns a node's report of a check at a time. by is the reporter's UID; empty: the report names none.
func reportOf(node, by string, at time.Time) operatorstatus.Report {
	return operatorstatus.Report{
		Node: node, Form: operatorstatus.FormCondition,
		Entries: []contract.Entry{{KeyID: "1", Status: contract.Healthy, LastChecked: at, Reporter: by}},
	}
}

func TestReporterHasTakenOverWhenTheReportNamesIt(t *testing.T) {
	began := time.Unix(1e9, 0)
	unreadable, typed := reportOf("a", "u1", began), reportOf("a", "u1", began)
	unreadable.Entries, typed.Form = nil, operatorstatus.FormTyped
	for name, c := range map[string]struct {
		report operatorstatus.Report
		want   bool
	}{
		"it names it":                                  {reportOf("a", "u1", began), true},
		"its node's clock is 4 seconds behind":         {reportOf("a", "u1", began.Add(-4*time.Second)), true},
		"its node's clock is an hour behind":           {reportOf("a", "u1", began.Add(-time.Hour)), true},
		"the one before goes on":                       {reportOf("a", "u0", began.Add(time.Minute)), false},
		"another node's, and its own has none":         {reportOf("b", "u0", began), true},
		"set up by hand":                               {reportOf("a", "", began), false},
		"unreadable":                                   {unreadable, false},
		"typed reports, which are a third-party one's": {typed, true},
	} {
		p := &planner{Snapshot: fixture(t, v1alpha1.ModeSidecar, pods(apiPod("a", "u1", withReporter)))}
		p.Resource = &operatorstatus.Status{Reports: []operatorstatus.Report{c.report}}
		if got := p.takenOverOn("a"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if p.Pods = nil; p.takenOverOn("a") {
			t.Errorf("%s: no reporter runs", name)
		}
	}
}
