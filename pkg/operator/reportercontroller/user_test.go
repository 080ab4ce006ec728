package reportercontroller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// runsAs makes the node report that the API server's container runs as a user.
func runsAs(uid int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: uid, GID: uid}}
	}
}

// notStarted is a pod whose container was not created yet.
func notStarted(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }

// userOf returns the user of the reporter in a pod or DaemonSet.
func userOf(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	spec := informers.As[corev1.Pod](o).Spec
	if o.GetKind() == "DaemonSet" {
		spec = informers.As[appsv1.DaemonSet](o).Spec.Template.Spec
	}
	user, has := reporterUser(&spec)
	if is := *spec.Containers[0].SecurityContext; !has || *is.RunAsUser != user.UID || *is.RunAsGroup != user.GID {
		t.Errorf("%s runs as %d:%d, and names %s", o.GetName(), *is.RunAsUser, *is.RunAsGroup, user)
	}
	return user.String()
}

func seen(ages map[types.UID]time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.Seen = ages }
}

func TestCompanionIsMadeOnceTheUserIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		seen time.Duration
		want string
	}{
		"a container that runs":           {apiPod("a", "1", runsAs(7)), 0, "7:7 groups 7"},
		"a node that reports no user":     {apiPod("a", "1"), 0, contract.Root.String()},
		"no container, seen first":        {apiPod("a", "1", notStarted), 0, ""},
		"no container for 59 s":           {apiPod("a", "1", notStarted), startsWithin - time.Second, ""},
		"no container for a minute":       {apiPod("a", "1", notStarted), startsWithin, contract.Root.String()},
		"another of its containers is up": {apiPod("a", "1", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "kms" }), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(c.pod), seen(map[types.UID]time.Duration{"1": c.seen}),
				configSource(v1alpha1.ConfigSourceConfigMap)))
			got := ""
			for _, o := range workloads(plan) {
				got += userOf(t, o)
			}
			if got != c.want || len(ofKind(plan.Apply, "ConfigMap")) != 1 || plan.Status.Reason.NeedsAction() {
				t.Errorf("got %q, %+v, want %q", got, plan.Status, c.want)
			}
		})
	}
}

// A companion is not replaced if the user of the same API server pod becomes known later.
func TestCompanionIsNotReplacedForItsUser(t *testing.T) {
	begin := func(pod *corev1.Pod) *Snapshot {
		s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", notStarted)), seen(map[types.UID]time.Duration{"1": startsWithin}))
		s.Pods = []*corev1.Pod{pod}
		return s
	}
	made := begin(nil).own("Pod")[0]
	const user = "7:7 groups 7"
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		change func(*Snapshot)
		same   bool   // the companion stays
		user   string // else that of the next
	}{
		"the user becomes known": {apiPod("a", "1", runsAs(7)), func(*Snapshot) {}, true, ""},
		// A restarted operator has not yet seen for a minute that the container is missing.
		"a restart of the operator": {apiPod("a", "1", notStarted), func(s *Snapshot) { s.Seen = nil }, true, ""},
		"a new image": {apiPod("a", "1", runsAs(7)), func(s *Snapshot) { s.Config.Image = "reporter:2" }, false,
			contract.Root.String()},
		"a new pod of the API server": {apiPod("a", "2", runsAs(7)), func(*Snapshot) {}, false, user},
		// Companions of earlier versions name no user. They are replaced like companions with any other difference.
		"a companion that names no user": {apiPod("a", "1", runsAs(7)), func(s *Snapshot) {
			containers, _, _ := unstructured.NestedSlice(s.own("Pod")[0].Object, "spec", "containers")
			delete(containers[0].(map[string]any), "env")
			_ = unstructured.SetNestedSlice(s.own("Pod")[0].Object, containers, "spec", "containers")
		}, false, user},
	} {
		s := begin(c.pod)
		c.change(s)
		plan := ComputePlan(s)
		next := workloads(plan)[0]
		if same := next.GetName() == made.GetName(); same != c.same || same && len(plan.Delete) > 0 ||
			!same && userOf(t, next) != c.user {
			t.Errorf("%s: %s made, of %s, %s deleted", name, next.GetName(), userOf(t, next), names(plan.Delete))
		}
	}
}

func TestAgentsHaveTheUserOfThePodThatWasSeenLast(t *testing.T) {
	type list = []*corev1.Pod
	type ages = map[types.UID]time.Duration
	root := contract.Root.String()
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	a, b := apiPod("a", "1", onHost, runsAs(7)), apiPod("b", "2", onHost, runsAs(8))
	const seven, eight = "7:7 groups 7", "8:8 groups 8"
	an := ages{"1": time.Hour}
	for name, c := range map[string]struct {
		before, pods list // before: the pods for which the agents were created
		ages         ages
		want         string
		differs      string // the difference that the condition names
	}{
		"no pod":                   {nil, nil, nil, root, ""},
		"no pod now":               {list{a}, nil, nil, seven, ""},
		"one pod":                  {nil, list{a}, nil, seven, ""},
		"equal pods":               {nil, list{a, apiPod("c", "3", onHost, runsAs(7))}, nil, seven, ""},
		"the second was seen last": {list{a}, list{a, b}, an, eight, "pod ns/api-a-1 runs as 7:7 groups 7, and the agents as 8:8 groups 8"},
		"the first was seen last":  {list{b}, list{a, b}, ages{"2": time.Hour}, seven, "pod ns/api-b-2 runs as 8:8 groups 8"},
		"both, when it starts":     {list{b}, list{a, b}, nil, eight, "pod ns/api-a-1 runs as 7:7 groups 7"},
		"both, without agents":     {nil, list{a, b}, nil, seven, "pod ns/api-b-2 runs as 8:8 groups 8"},
		"the other terminates":     {list{a}, list{a, apiPod("b", "2", onHost, runsAs(8), terminating)}, an, seven, ""},
		"the other does not run":   {list{a}, list{a, apiPod("b", "2", onHost, notStarted)}, an, seven, ""},
		"its container is gone":    {list{a}, list{apiPod("a", "1", onHost, notStarted)}, an, seven, ""},
		"none for a minute, without agents": {nil, list{apiPod("a", "1", onHost, notStarted, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(9))}
		})}, ages{"1": startsWithin}, "9:0 groups 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.ModeDaemonSet, pods(c.pods...), seen(c.ages))
			if c.before != nil {
				delivered(ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, pods(c.before...))))(s)
			}
			plan := ComputePlan(s)
			if got := userOf(t, ofKind(plan.Apply, "DaemonSet")[0]); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if names := strings.Contains(plan.Status.Message, " runs as "); names != (c.differs != "") ||
				!strings.Contains(plan.Status.Message, c.differs) || names && plan.Status.Reason != contract.Progressing {
				t.Errorf("%+v", plan.Status)
			}
		})
	}
}

// A pod's creation time is by another machine's clock.
func TestPodIsAsOldAsThisProcessHasSeenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Registry: prometheus.NewRegistry(), Queue: syncqueue.New("deliver")})
		defer c.Queue.ShutDown()
		s, e := fixture(t, v1alpha1.ModeCompanionPod), &serverState{}
		a, b := apiPod("a", "1", notStarted), apiPod("b", "2", notStarted)
		sees := func(after, ofA, ofB time.Duration, pods ...*corev1.Pod) {
			t.Helper()
			time.Sleep(after)
			s.Pods = pods
			if c.observeAges(s, e); s.Seen["1"] != ofA || s.Seen["2"] != ofB || len(s.Seen) != len(pods) {
				t.Errorf("%v, want %s and %s", s.Seen, ofA, ofB)
			}
		}
		sees(0, 0, 0, a)
		sees(10*time.Second, 10*time.Second, 0, a, b)
		if synctest.Wait(); c.Queue.Len() != 0 {
			t.Error("synced again at once")
		}
		sees(startsWithin-10*time.Second, startsWithin, startsWithin-10*time.Second, a, b)
		if synctest.Wait(); c.Queue.Len() != 1 {
			t.Error("not synced when the first has had its minute")
		}
		sees(time.Second, 0, startsWithin-9*time.Second, b)
		sees(time.Second, 0, startsWithin-8*time.Second, a, b)
		if live := e.seenLive("0"); live != 2*time.Second+startsWithin {
			t.Errorf("the set that is first read is seen for %s, and not from the first look on", live)
		}
		s.Pods = []*corev1.Pod{apiPod("a", "1", servedBy("c"))}
		companion := ownObject("Pod", s.Namespace)
		companion.SetUID("own")
		s.Own = objectList{companion}
		for _, age := range []time.Duration{0, time.Minute} {
			c.observeAges(s, e)
			time.Sleep(time.Minute) // a read takes a while
			if live := e.seenLive("1"); s.Seen["c"] != age || s.Seen["own"] != age || live != age {
				t.Errorf("seen are %v, the live set for %s, want %s", s.Seen, live, age)
			}
		}
	})
}
