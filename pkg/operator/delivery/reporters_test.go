package delivery

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// setPhase sets the phase of the reporters' pods, and when they were created.
func setPhase(s *Snapshot, phase corev1.PodPhase, created time.Time) {
	for _, o := range s.own("Pod") {
		_ = unstructured.SetNestedField(o.Object, string(phase), "status", "phase")
		o.SetCreationTimestamp(metav1.NewTime(created))
	}
}

func TestPodThatHasEndedIsReplacedAfterAMoment(t *testing.T) {
	companion := func(t *testing.T) *Snapshot {
		first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1"))))
		return fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), delivered(t, first))
	}
	imageProof := func(t *testing.T) *Snapshot {
		withDeployment := func(s *Snapshot) { s.Deployment = deployment(1) }
		first := planOf(t, fixture(t, v1alpha1.DeliveryDeployment, pods(apiPod("a", "1")), withDeployment))
		return fixture(t, v1alpha1.DeliveryDeployment, pods(apiPod("a", "1")), delivered(t, first), withDeployment)
	}
	for name, c := range map[string]struct {
		snapshot func(*testing.T) *Snapshot
		phase    corev1.PodPhase
		age      time.Duration
		replaced bool
		requeue  time.Duration // zero: not for this
	}{
		"a companion that runs":               {companion, corev1.PodRunning, time.Hour, false, 0},
		"one that failed, younger":            {companion, corev1.PodFailed, 29 * time.Second, false, time.Second},
		"one that failed, 30 s old":           {companion, corev1.PodFailed, 30 * time.Second, true, 0},
		"one that failed, older":              {companion, corev1.PodFailed, time.Hour, true, 0},
		"one that succeeded, older":           {companion, corev1.PodSucceeded, time.Hour, true, 0},
		"one that succeeded, younger":         {companion, corev1.PodSucceeded, time.Second, false, 29 * time.Second},
		"an image proof that failed":          {imageProof, corev1.PodFailed, time.Hour, true, 0},
		"an image proof that failed, younger": {imageProof, corev1.PodFailed, time.Second, false, 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.snapshot(t)
			setPhase(s, c.phase, s.Now.Add(-c.age))
			plan := planOf(t, s)
			if replaced := len(plan.Delete) == 1 && plan.Delete[0] == s.own("Pod")[0]; replaced != c.replaced || len(plan.Workloads) != 1 {
				t.Errorf("%s deleted, %s wanted", names(plan.Delete), names(plan.Workloads))
			}
			if c.requeue > 0 && !plan.Requeue.Equal(s.Now.Add(c.requeue)) {
				t.Errorf("requeue at %s, want %s", plan.Requeue, s.Now.Add(c.requeue))
			}
		})
	}
	s := companion(t)
	setPhase(s, corev1.PodFailed, s.Now.Add(-time.Hour))
	now := metav1.NewTime(s.Now)
	s.own("Pod")[0].SetDeletionTimestamp(&now)
	if plan := planOf(t, s); len(plan.Delete) > 0 {
		t.Errorf("%s, which is being deleted, is deleted again", names(plan.Delete))
	}
	s = imageProof(t)
	setPhase(s, corev1.PodSucceeded, s.Now.Add(-time.Hour))
	if plan := planOf(t, s); plan.Inject == nil {
		t.Errorf("an image proof that succeeded proves nothing: %+v", plan.Status)
	}
}

// withReporter adds the reporter's container to a pod.
func withReporter(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: podspec.ContainerName, VolumeMounts: []corev1.VolumeMount{{Name: podspec.ConfigVolume, MountPath: podspec.ConfigFolder}},
	})
}

func TestDeliveryWithoutReportersIsReported(t *testing.T) {
	daemonSet := func(generation, observed, scheduled int64) func(*Snapshot) {
		return func(s *Snapshot) {
			o := ownObject("DaemonSet")
			o.SetGeneration(generation)
			_ = unstructured.SetNestedField(o.Object, observed, "status", "observedGeneration")
			_ = unstructured.SetNestedField(o.Object, scheduled, "status", "desiredNumberScheduled")
			o.SetNamespace(s.Namespace)
			s.Own = append(s.Own, o)
		}
	}
	paused := func(s *Snapshot) {
		s.Deployment, s.State.Proven = deployment(1), s.Config.Image
		s.Deployment.Spec.Paused = true
	}
	resumed := func(s *Snapshot) { paused(s); s.Deployment.Spec.Paused = false }
	onHosts := pods(apiPod("a", "1", onHost))
	for name, c := range map[string]struct {
		delivery v1alpha1.Delivery
		change   []func(*Snapshot)
		want     Reason // empty: neither NoReporters nor DeploymentPaused
		part     string
	}{
		"a DaemonSet that selects no node":         {v1alpha1.DeliveryDaemonSet, []func(*Snapshot){onHosts, daemonSet(2, 2, 0)}, NoReporters, "selects no node"},
		"a DaemonSet that was not observed yet":    {v1alpha1.DeliveryDaemonSet, []func(*Snapshot){onHosts, daemonSet(2, 1, 0)}, "", ""},
		"a DaemonSet that selects nodes":           {v1alpha1.DeliveryDaemonSet, []func(*Snapshot){onHosts, daemonSet(2, 2, 1)}, "", ""},
		"no pod with the container":                {v1alpha1.DeliveryExternal, []func(*Snapshot){pods(apiPod("a", "1"))}, NoReporters, podspec.ContainerName},
		"a pod with the container":                 {v1alpha1.DeliveryExternal, []func(*Snapshot){pods(apiPod("a", "1", withReporter))}, "", ""},
		"no pod at all":                            {v1alpha1.DeliveryExternal, nil, NoReporters, "namespace ns"},
		"a paused Deployment without it":           {v1alpha1.DeliveryDeployment, []func(*Snapshot){pods(apiPod("a", "1")), paused}, DeploymentPaused, "0 of its 1 pods"},
		"a paused Deployment with it in some pods": {v1alpha1.DeliveryDeployment, []func(*Snapshot){pods(apiPod("a", "1"), apiPod("b", "2", withReporter)), paused}, DeploymentPaused, "1 of its 2 pods"},
		"a paused Deployment with it in all pods":  {v1alpha1.DeliveryDeployment, []func(*Snapshot){pods(apiPod("a", "1", withReporter)), paused}, "", ""},
		"a Deployment that is not paused":          {v1alpha1.DeliveryDeployment, []func(*Snapshot){pods(apiPod("a", "1")), resumed}, "", ""},
		"a Deployment that is scaled to zero":      {v1alpha1.DeliveryDeployment, []func(*Snapshot){resumed}, NoReporters, "namespace ns"},
	} {
		t.Run(name, func(t *testing.T) {
			got := planOf(t, fixture(t, c.delivery, c.change...)).Status
			if c.want == "" && (got.Reason == NoReporters || got.Reason == DeploymentPaused) {
				t.Errorf("%+v", got)
			}
			if c.want != "" && (got.Reason != c.want || !strings.Contains(got.Message, c.part)) {
				t.Errorf("%+v, want %s with %q", got, c.want, c.part)
			}
		})
	}
}

func TestReportersThatNeverWroteAreReported(t *testing.T) {
	const wait = firstReport + 4*10*time.Second
	onHosts := []*corev1.Pod{apiPod("a", "1"), apiPod("b", "2")}
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, pods(onHosts...)))
	for name, c := range map[string]struct {
		age    time.Duration
		report operatorcr.Form // of node a; empty: none
		want   string          // nodes; empty: none
	}{
		"young":                       {wait - time.Second, "", ""},
		"old, and neither wrote":      {wait, "", "[a b]"},
		"old, and one wrote":          {wait, operatorcr.FormCondition, "[b]"},
		"old, and one wrote elements": {time.Hour, operatorcr.FormTyped, "[b]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.DeliveryCompanion, pods(onHosts...), delivered(t, first))
			s.Config.Probe.Interval.Duration = 10 * time.Second
			setPhase(s, corev1.PodRunning, s.Now.Add(-c.age))
			s.Resource = &operatorcr.Status{Reports: []operatorcr.Report{{Node: "b", Form: operatorcr.FormCondition, Written: s.Now.Add(-2 * time.Hour)}}} // of an earlier reporter
			if c.report != "" {
				s.Resource.Reports = append(s.Resource.Reports, operatorcr.Report{Node: "a", Form: c.report, Written: s.Now.Add(-c.age + time.Second)})
			}
			plan := planOf(t, s)
			if (plan.Status.Reason == ReportersNotWriting) != (c.want != "") || !strings.Contains(plan.Status.Message, c.want) {
				t.Errorf("%+v", plan.Status)
			}
			if c.want == "" && !plan.Requeue.Equal(s.Now.Add(time.Second)) {
				t.Errorf("requeue at %s", plan.Requeue)
			}
			if s.Resource = nil; planOf(t, s).Status.Reason == ReportersNotWriting {
				t.Error("reported without an operator resource")
			}
		})
	}
}

func TestNewReporterIsRecognizedByTheClockOfTheAPIServer(t *testing.T) {
	began := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		clock   time.Duration // of the node, ahead of that of the API server
		first   time.Duration // when it first wrote its condition, after began
		checked time.Duration // when its plugins were last checked, after began
		want    bool
	}{
		"it wrote after":                                                      {0, 10 * time.Second, time.Minute, true},
		"it wrote in the same second":                                         {0, 0, time.Minute, true},
		"the one before wrote":                                                {0, -time.Hour, time.Minute, false},
		"it wrote after, its clock is 5 minutes behind":                       {-5 * time.Minute, 10 * time.Second, time.Minute, true},
		"the one before wrote, its clock is 5 minutes behind":                 {-5 * time.Minute, -time.Minute, time.Minute, false},
		"it wrote after, its clock is 8 seconds behind":                       {-8 * time.Second, 3 * time.Second, time.Minute, true},
		"it wrote after, its clock is 5 minutes ahead":                        {5 * time.Minute, 10 * time.Second, time.Minute, true},
		"the one before wrote a minute earlier, its clock is 5 minutes ahead": {5 * time.Minute, -time.Minute, time.Minute, false},
		"the one before wrote a minute earlier, its clock is a second ahead":  {time.Second, -time.Minute, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := operatorcr.Report{
				Node: "a", Form: operatorcr.FormCondition, Since: began.Add(c.first + c.clock), Written: began.Add(c.checked + time.Second),
				Entries: []health.Entry{{LastChecked: began.Add(c.checked - time.Minute + c.clock)}, {LastChecked: began.Add(c.checked + c.clock)}},
			}
			typed := operatorcr.Report{Node: "a", Form: operatorcr.FormTyped, Written: began.Add(time.Hour)}
			if got := beganSince(&operatorcr.Status{Reports: []operatorcr.Report{typed, r}}, "a", began); got != c.want {
				t.Error(got)
			}
			if beganSince(&operatorcr.Status{Reports: []operatorcr.Report{typed, r}}, "b", began) {
				t.Error("it is that of another node")
			}
		})
	}
}
