package pluginhealthcontroller

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Clocks of nodes and of API servers that are wrong by up to a month, always or from some time on, change no condition
// and no time of a change. Each history happens twice: with right clocks and with wrong ones.
func TestWrongClocksChangeNoConditionThatIsWritten(t *testing.T) {
	const groups, histories = 2, 100
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(klog.CaptureState().Restore)
	klog.SetLogger(logr.Discard()) // it would log each failed write
	for group := range uint64(groups) {
		t.Run(fmt.Sprint("group ", group), func(t *testing.T) {
			t.Parallel()
			var all []string
			for i := range uint64(histories) {
				number := group*histories + i
				right, happened := conditionsOf(t, seed, number, false)
				wrong, _ := conditionsOf(t, seed, number, true)
				if d := cmp.Diff(right, wrong); d != "" {
					t.Fatalf("seeds %d, %d: with right clocks (-) and wrong ones (+):\n%s\nit happened:\n%s", seed, number, d,
						strings.Join(happened, "\n"))
				}
				all = append(all, right...)
			}
			for _, reason := range []string{contract.AsExpected, contract.PluginError, contract.PluginUnhealthy,
				contract.PluginNotRunning, contract.ReporterStale, contract.ReporterNotRunning, contract.SeveralPods,
				contract.Settling, contract.KeysDiffer} {
				if !slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, " "+reason+": ") }) {
					t.Errorf("seed %d: no condition is %s, so this tests too little", seed, reason)
				}
			}
		})
	}
}

// conditionsOf returns the conditions that are written in a history, each time that they change, and what happened.
func conditionsOf(t *testing.T, seed, number uint64, wrong bool) (written, happened []string) {
	t.Helper()
	withFixture(t, func(s *fixture) {
		h := newHistory(s, seed, number, wrong)
		for range 12 + h.dice.IntN(8) {
			h.step()
		}
		written, happened = h.conditions(), h.happened
	})
	return written, happened
}

// machines have their own clocks. The first API server is the one that answers the operator.
var machines = []string{"a", "b", "API server 1", "API server 2"}

// agents is the namespace of the agents.
const agents = "kms-health"

// history is a random sequence of what happens to two nodes with an API server and an agent each.
type history struct {
	*fixture
	dice     *rand.Rand // for what happens, which never depends on the clocks
	happened []string
	starts   int                       // after how many steps the operator starts
	fails    bool                      // writes may fail; then the clock that answers has no steps: each may cause a write
	interval time.Duration             // of reports
	last     map[string]contract.Entry // by node
	pods     map[string][]*corev1.Pod  // by namespace and node, the first one first
	made     int                       // pods and containers

	errors map[string]time.Duration // of the machines' clocks, under mu
	steps  *rand.Rand               // for later changes of errors; nil: they are constant
}

func newHistory(s *fixture, seed, number uint64, wrong bool) *history {
	h := &history{fixture: s, dice: rand.New(rand.NewPCG(seed, number)), last: map[string]contract.Entry{},
		pods: map[string][]*corev1.Pod{}, errors: map[string]time.Duration{}}
	h.starts, h.fails, h.interval = h.dice.IntN(5), h.chance(50), h.seconds(10, 30, 60)
	stepping, clocks := h.chance(50), rand.New(rand.NewPCG(seed+1, number))
	for _, machine := range machines {
		if wrong {
			h.errors[machine] = randomError(clocks)
		}
	}
	if wrong && stepping {
		h.steps = clocks
	}
	s.Controller.Now = func() time.Time { return h.by(machines[2]) }
	s.ahead, s.stamps = 1, map[string]string{}
	for _, node := range machines[:2] {
		s.deletePod("ns", "api-"+node)
		h.addPod(node, "ns", "api", "kms")
		h.addPod(node, agents, contract.ReporterContainer)
		h.last[node] = contract.Entry{KeyID: "2", KEKID: "k-7", Status: contract.Healthy, Since: h.by(node)}
	}
	h.reported(machines[:2]...)
	return h
}

// randomError returns whole seconds, as times in objects have them.
func randomError(dice *rand.Rand) time.Duration {
	const month = 30 * 24 * 60 * 60
	return time.Duration(dice.IntN(2*month+1)-month) * time.Second
}

func (h *history) chance(percent int) bool { return h.dice.IntN(100) < percent }

func pick[T any](h *history, from ...T) T { return from[h.dice.IntN(len(from))] }

func (h *history) seconds(from ...int) time.Duration {
	return time.Duration(pick(h, from...)) * time.Second
}

// by is the time by a machine's clock.
func (h *history) by(machine string) (at time.Time) {
	h.locked(func() { at = time.Now().Add(h.errors[machine]) })
	return at
}

// stamp is the same as objects have it.
func (h *history) stamp(machine string) string { return h.by(machine).UTC().Format(time.RFC3339) }

// step makes nodes report, something happen, and time pass.
func (h *history) step() {
	for _, machine := range machines {
		if h.steps != nil && !(h.fails && machine == machines[2]) && h.steps.IntN(100) < 15 {
			by := randomError(h.steps)
			h.locked(func() { h.errors[machine] = by })
		}
	}
	if h.starts--; h.starts == -1 {
		h.set(withKeys("2"))
	}
	var reporting []string
	for _, node := range machines[:2] {
		if h.chance(70) {
			reporting = append(reporting, node)
		}
	}
	h.reported(reporting...)
	what := h.happens(pick(h, machines[:2]...))
	pause := h.seconds(1, 5, 5, 20, 20, 45, 100, 250, 400)
	h.happened = append(h.happened, fmt.Sprintf("%s: %v report; %s; then %s pass", h.now(), reporting, what, pause))
	h.settled()
	h.pass(pause)
}

// reported delivers reports of nodes by their latest agents, and what was written.
func (h *history) reported(nodes ...string) {
	for _, node := range nodes {
		e := h.last[node]
		e.LastChecked, e.Interval, e.Socket = h.by(node).Truncate(time.Second), h.interval, "/var/run/kmsplugin/kms-2.sock"
		e.Reporter = string(h.pods[agents+node][len(h.pods[agents+node])-1].UID)
		h.reports[node] = []contract.Entry{e}
		h.stamps[node] = h.stamp(pick(h, machines[2:]...))
	}
	for _, w := range h.written() {
		if w.apply != nil && !w.failed {
			h.shown = w.apply
		}
	}
	h.shows()
}

// happens makes one thing happen, mostly on this node, and returns what.
func (h *history) happens(node string) string {
	pods, reporters := h.pods["ns"+node], h.pods[agents+node]
	switch h.dice.IntN(15) {
	case 0, 1, 2:
		e := contract.Entry{KeyID: "2", KEKID: "k-7", Status: pick(h, contract.Healthy, contract.Unhealthy, contract.Error)}
		switch e.Since, e.RoundTrip = h.by(node), h.by(node); {
		case e.Status == contract.Error:
			e.KEKID, e.Reason = "", pick(h, contract.Timeout, contract.SocketMissing)
		case h.chance(30):
			e.KEKID = "k-8"
		}
		h.last[node] = e
		h.reported(node)
		return fmt.Sprintf("the plugin on %s is %s %s with %q", node, e.Status, e.Reason, e.KEKID)
	case 3, 4:
		if len(pods) == 0 || len(pods) == 1 && h.chance(70) {
			return h.addPod(node, "ns", "api", "kms")
		}
		return h.end("ns", node)
	case 5:
		if len(reporters) == 1 {
			return h.addPod(node, agents, contract.ReporterContainer)
		}
		return h.end(agents, node)
	case 6, 12, 13:
		if len(pods) > 0 {
			return h.restarts(pick(h, pods...), pick(h, "api", "kms", "kms"))
		}
	case 7, 14:
		return h.restarts(pick(h, reporters...), contract.ReporterContainer)
	case 8:
		ready := pick(h, "True", "False", "Unknown")
		o := nodeObject(node)
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready,
			"lastHeartbeatTime": h.stamp(node), "lastTransitionTime": h.stamp(machines[3])}}}
		h.put(informers.Nodes, "", &unstructured.Unstructured{Object: o})
		return fmt.Sprintf("Ready of Node %s is %s", node, ready)
	case 9:
		away := h.chance(50) && h.fails
		if h.failing(nil); away {
			h.failing(errAway)
		}
		return fmt.Sprint("writes fail: ", away)
	case 10:
		return h.unreachable()
	case 11:
		return h.restartOperator()
	}
	return "nothing"
}

func (h *history) restartOperator() string {
	if h.published == nil {
		return "nothing"
	}
	h.reported() // a new process reads what was written
	silent := h.Verdict("api").Silent
	h.remove()
	h.set(withKeys("2").but(func(t *delivery.Snapshot) { t.State.Silent = silent }))
	return "the operator restarts"
}

func (h *history) unreachable() string {
	h.unanswered()
	if h.published == nil || h.chance(50) {
		return "a request without an answer"
	}
	h.reported(machines[:2]...) // else the controller may have asked for a list, which only comes after a random time
	h.away()
	h.pass(h.seconds(3, 30, 600))
	h.listing(cluster, nil)
	h.published.Resource.Relist()
	return "the API server is away until now"
}

// addPod adds a pod with running containers. Which API server creates it, is random, and so is its place by name.
func (h *history) addPod(node, namespace string, containers ...string) string {
	h.made++
	p := pod(node, named(fmt.Sprintf("%s-%d-%d", node, h.dice.IntN(100), h.made)))
	p.Namespace, p.UID = namespace, types.UID(fmt.Sprintf("%08d-2222-3333-4444-555555555555", h.made))
	p.CreationTimestamp = metav1.NewTime(h.by(pick(h, machines[2:]...)))
	p.Spec.Volumes = []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}}}}
	if namespace == agents {
		p.Labels = map[string]string{contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: "api",
			contract.ModeLabel: string(v1alpha1.ModeDaemonSet)}
	}
	for _, name := range containers {
		h.made++
		s := running(name, 0)
		s.ContainerID, s.State.Running.StartedAt = fmt.Sprint(h.made), metav1.NewTime(h.by(node))
		status(s)(p)
	}
	h.pods[namespace+node] = append(h.pods[namespace+node], p)
	h.put(informers.Pods, namespace, p)
	return "another pod " + p.Name
}

// end deletes the first pod of a node, or removes it after that.
func (h *history) end(namespace, node string) string {
	p := h.pods[namespace+node][0]
	if p.DeletionTimestamp != nil {
		h.pods[namespace+node] = h.pods[namespace+node][1:]
		h.deletePod(namespace, p.Name)
		return p.Name + " is gone"
	}
	at := metav1.NewTime(h.by(pick(h, machines[2:]...)))
	p.DeletionTimestamp = &at
	h.put(informers.Pods, namespace, p)
	return p.Name + " is being deleted"
}

// restarts makes a container end, wait or run.
func (h *history) restarts(p *corev1.Pod, container string) string {
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	s, by := &p.Status.ContainerStatuses[at], metav1.NewTime(h.by(p.Spec.NodeName))
	last := s.LastTerminationState
	if was := s.State.Running; was != nil {
		last.Terminated = &corev1.ContainerStateTerminated{ExitCode: h.dice.Int32N(2), Reason: "Error",
			StartedAt: was.StartedAt, FinishedAt: by}
		s.RestartCount++
	} else if s.State.Terminated != nil {
		last = s.State
	}
	what := pick(h, crashLoop, crashLoop, "ImagePullBackOff", "ended", "runs")
	if s.State.Waiting != nil && h.chance(70) {
		what = "runs"
	}
	s.State, s.LastTerminationState = corev1.ContainerState{}, last
	switch what {
	case "ended":
		s.State = corev1.ContainerState{Terminated: last.Terminated}
	case "runs":
		h.made++
		s.ContainerID = fmt.Sprint(h.made)
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: by}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: what}
	}
	h.put(informers.Pods, p.Namespace, p)
	return fmt.Sprintf("container %s of %s: %s", container, p.Name, what)
}

// put creates or updates an object.
func (h *history) put(resource schema.GroupVersionResource, namespace string, object any) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	u := &unstructured.Unstructured{Object: o}
	if err == nil && h.client.Tracker().Update(resource, u, namespace) != nil {
		err = h.client.Tracker().Create(resource, u, namespace)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// agreedSince is a time in the message of KMSWriteKeyAgreed. It is by the API server's clock, as lastTransitionTime is.
var agreedSince = regexp.MustCompile(`"since":"[^"]*"`)

// conditions returns the conditions that were written, each time that they changed, without their own times.
func (h *history) conditions() (all []string) {
	before := ""
	for _, w := range h.written() {
		text := ""
		for _, c := range w.apply {
			f := c.(map[string]any)
			message := fmt.Sprint(f["message"])
			if f["type"] == contract.WriteKeyAgreed && f["status"] == operatorstatus.True {
				message = agreedSince.ReplaceAllString(message, "")
			}
			text += fmt.Sprintf("%s %s %s: %s\n", f["type"], f["status"], f["reason"], message)
		}
		if w.apply != nil && text != before {
			all = append(all, fmt.Sprint(w.at, "\n", text))
			before = text
		}
	}
	return all
}
