package pluginhealthcontroller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

// TestMain removes the bound on how often errors are logged: it keeps the time of the
// last one, and synctest's clock starts long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

var errAway = errors.New("connection refused")

var cluster = contract.ResourceOf(string(v1alpha1.ResourceKubeAPIServers)).GVR()

// fixture is a fake API with nodes a and b, each with an API server, and a running controller. It records the
// controller's writes without applying them: a test decides what the watch shows, and when. The clock is synctest's.
type fixture struct {
	*testing.T
	start  time.Time
	client *dynamicfake.FakeDynamicClient
	*Controller
	version   int
	ahead     int // by how much the version of a write is ahead of the watch
	newest    int // the version of the last write
	ctx       context.Context
	sources   *informers.Cluster
	published *informers.Target           // nil: none
	reports   map[string][]contract.Entry // of the operator's reporters, by node
	stamps    map[string]string           // when an API server stored them, by its clock; empty: when they were checked
	shown     []any                       // what the watch shows of the roll-up

	blind atomic.Bool // while true, watches show nothing

	mu       sync.Mutex
	writes   []request
	events   []string
	changes  int
	fails    error                                 // the response to writes
	conflict error                                 // the response to an apply of KMSPluginsDegraded without force
	silence  time.Time                             // when a request last had no response
	lists    map[schema.GroupVersionResource]error // the response to lists and watches
	watched  map[schema.GroupVersionResource][]apiwatch.Interface
}

// request is one write request.
type request struct {
	at    time.Duration // since the start
	kind  types.PatchType
	body  string
	apply []any // the conditions of an apply

	failed bool
}

var listKinds = map[schema.GroupVersionResource]string{
	cluster: "KubeAPIServerList", informers.Pods: "PodList", informers.Nodes: "NodeList", informers.Namespaces: "NamespaceList",
	informers.ClusterRoles: "ClusterRoleList", informers.ClusterBindings: "ClusterRoleBindingList",
	informers.Policies: "ValidatingAdmissionPolicyList", informers.PolicyBindings: "ValidatingAdmissionPolicyBindingList",
	informers.Events: "EventList", informers.DaemonSets: "DaemonSetList", informers.ConfigMaps: "ConfigMapList",
	informers.ServiceAccounts: "ServiceAccountList",
}

// withFixture runs a test with a controller of one target.
func withFixture(t *testing.T, test func(s *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &fixture{T: t, start: time.Now(), version: 100, reports: map[string][]contract.Entry{},
			lists:   map[schema.GroupVersionResource]error{},
			watched: map[schema.GroupVersionResource][]apiwatch.Interface{}}
		s.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds)
		s.client.PrependReactor("patch", "*", s.write)
		s.client.PrependReactor("list", "*", func(a clienttesting.Action) (_ bool, _ runtime.Object, err error) {
			s.locked(func() { err = s.lists[a.GetResource()] })
			return err != nil, nil, err
		})
		s.client.PrependWatchReactor("*", s.watch)
		for _, name := range []string{"a", "b"} {
			s.add(informers.Nodes, "", nodeObject(name))
			s.addPod(name)
		}
		s.Controller = New(Options{
			Client: s.client, Registry: prometheus.NewRegistry(), Now: time.Now,
			Unanswered: func() (at time.Time) { s.locked(func() { at = s.silence }); return at },
			Event:      func(_, _, reason, _ string) { s.locked(func() { s.events = append(s.events, reason) }) },
			Queue:      syncqueue.New("write"), Reporters: queue(func() {}),
			ClusterOperator: queue(func() { s.locked(func() { s.changes++ }) }),
		})
		s.ctx = ctx
		s.sources = informers.NewCluster(ctx,
			informers.ClusterOptions{Client: s.client, Resources: s.client, Namespace: "kms-health",
				Reporters: queue(func() {}), Health: queue(func() { s.Queue.Enqueue("api") })})
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { s.Controller.Run(ctx) })
		test(s)
	})
}

// locked calls a function that uses what mu guards.
func (s *fixture) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// queue calls a function for each key.
type queue func()

// Enqueue implements informers.Queue.
func (q queue) Enqueue(string) { q() }

// set publishes a target, whose informers are started once.
func (s *fixture) set(t *target) {
	if s.published == nil {
		s.published = informers.NewTarget(s.ctx, s.sources, &t.APIServer)
	}
	p := t.Snapshot
	p.Sources = s.published
	s.Controller.Set(p)
}

// sets publishes a target, and waits until that is handled.
func (s *fixture) sets(t *target) {
	s.set(t)
	s.settled()
}

// startUp publishes a target whose nodes have reported.
func (s *fixture) startUp() {
	s.Helper()
	s.showReports("a", "b")
	s.set(withKeys("2"))
}

// remove removes the target and its sources.
func (s *fixture) remove() {
	s.published.Stop()
	s.published = nil
	s.Controller.Remove("api")
}

// write records a write request.
func (s *fixture) write(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	w := request{at: time.Since(s.start), kind: patch.GetPatchType(), body: string(patch.GetPatch())}
	if w.kind == types.ApplyPatchType {
		var body unstructured.Unstructured
		if err := json.Unmarshal(patch.GetPatch(), &body.Object); err != nil {
			s.Error(err)
		}
		w.apply, _, _ = unstructured.NestedSlice(body.Object, "status", "conditions")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.kind == types.JSONPatchType && s.version < s.newest { // the patch has an outdated resourceVersion
		return true, nil, apierrors.NewConflict(cluster.GroupResource(), "cluster", nil)
	}
	w.failed = s.fails != nil
	s.writes = append(s.writes, w)
	if s.fails != nil {
		return true, nil, s.fails
	}
	if force := patch.(clienttesting.PatchActionImpl).PatchOptions.Force; s.conflict != nil && w.kind == types.ApplyPatchType && !*force &&
		degraded(w.apply) != "" {
		return true, nil, s.conflict
	}
	s.newest = s.version + s.ahead
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetResourceVersion(fmt.Sprint(s.newest))
	return true, o, nil
}

func (s *fixture) add(resource schema.GroupVersionResource, namespace string, o map[string]any) {
	s.Helper()
	if err := s.client.Tracker().Create(resource, &unstructured.Unstructured{Object: o}, namespace); err != nil {
		s.Fatal(err)
	}
}

// interval is the interval in the reports.
const interval = 10 * time.Second

// report makes nodes report that key 2 was checked now, and is healthy. The next show delivers it.
func (s *fixture) report(nodes ...string) {
	checked := s.Now().Truncate(time.Second) // as entries have it
	for _, node := range nodes {
		s.reports[node] = []contract.Entry{{KeyID: "2", KEKID: "k-7", Status: contract.Healthy, LastChecked: checked,
			Interval: interval}}
	}
}

// show makes the watch deliver the resource with the fixture's reports and roll-up.
func (s *fixture) show() {
	s.Helper()
	s.version++
	conditions := slices.Clone(s.shown)
	managed := []any{}
	for _, node := range slices.Sorted(maps.Keys(s.reports)) {
		message, err := contract.EncodeMessage(s.reports[node])
		if err != nil {
			s.Fatal(err)
		}
		at := s.reports[node][0].LastChecked.UTC().Format(time.RFC3339)
		conditions = append(conditions,
			map[string]any{"type": contract.ConditionType(node), "status": "True", "message": message, "lastTransitionTime": at})
		managed = append(managed,
			map[string]any{"manager": contract.ConditionManager(node), "time": cmp.Or(s.stamps[node], at), "fieldsV1": map[string]any{
				"f:status": map[string]any{"f:conditions": map[string]any{fmt.Sprintf(`k:{"type":%q}`,
					contract.ConditionType(node)): map[string]any{}}},
			}})
	}
	o := map[string]any{
		"kind": "KubeAPIServer", "apiVersion": "operator.openshift.io/v1",
		"metadata": map[string]any{"name": "cluster", "resourceVersion": fmt.Sprint(s.version), "managedFields": managed},
		"status":   map[string]any{"conditions": conditions},
	}
	if s.version == 101 || s.version == 5000001 {
		s.add(cluster, "", o)
	} else if err := s.client.Tracker().Update(cluster, &unstructured.Unstructured{Object: o}, ""); err != nil {
		s.Error(err)
	}
	synctest.Wait()
}

// showWritten makes the watch deliver what was applied last.
func (s *fixture) showWritten() {
	s.Helper()
	all := s.written()
	at := len(all) - 1
	for at >= 0 && all[at].kind != types.ApplyPatchType {
		at--
	}
	if at < 0 {
		s.Fatal("nothing was applied")
	}
	s.shown = all[at].apply
	s.show()
}

// until advances the clock to a time since the start.
func (s *fixture) until(at time.Duration) {
	time.Sleep(time.Until(s.start.Add(at)))
	synctest.Wait()
}

// now is the time since the start.
func (s *fixture) now() time.Duration { return time.Since(s.start) }

// pass advances the clock by some time.
func (s *fixture) pass(d time.Duration) { s.until(s.now() + d) }

// settled waits until what was shown is handled.
func (s *fixture) settled() { s.pass(500 * time.Millisecond) }

// shows makes the watch deliver the resource, and waits until that is handled.
func (s *fixture) shows() {
	s.Helper()
	s.show()
	s.settled()
}

// showReports makes nodes report, and the watch deliver that.
func (s *fixture) showReports(nodes ...string) {
	s.Helper()
	s.report(nodes...)
	s.show()
}

func (s *fixture) written() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func (s *fixture) failing(err error) { s.locked(func() { s.fails = err }) }

// listing sets the response to lists of a resource.
func (s *fixture) listing(resource schema.GroupVersionResource, err error) {
	s.locked(func() { s.lists[resource] = err })
}

// watch records each watch, so that refuse can end it. Events get copies of the tracker's objects, because informers
// change what they receive.
func (s *fixture) watch(a clienttesting.Action) (bool, apiwatch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lists[a.GetResource()]; err != nil {
		return true, nil, err
	}
	w, err := s.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
	if err != nil {
		return true, nil, err
	}
	s.watched[a.GetResource()] = append(s.watched[a.GetResource()], w)
	return true, apiwatch.Filter(w, func(e apiwatch.Event) (apiwatch.Event, bool) {
		e.Object = e.Object.DeepCopyObject()
		return e, !s.blind.Load()
	}), nil
}

// away simulates an unreachable API server for the operator resource. listing with nil ends that.
func (s *fixture) away() { s.refuse(cluster, errAway) }

// refuse ends the watches of a resource, and answers its lists and watches with an error.
func (s *fixture) refuse(resource schema.GroupVersionResource, err error) {
	s.listing(resource, err)
	var all []apiwatch.Interface
	s.locked(func() { all = s.watched[resource] })
	for _, w := range all {
		w.Stop()
	}
	synctest.Wait()
}

// wantWrites requires a number of writes since the start, and returns the last.
func (s *fixture) wantWrites(n int, when string) request {
	s.Helper()
	return s.want(s.written(), n, when)
}

func (s *fixture) want(all []request, n int, when string) request {
	s.Helper()
	if len(all) != n {
		s.Fatalf("%s: %d writes, want %d: %+v", when, len(all), n, all)
	}
	if n == 0 {
		return request{}
	}
	return all[n-1]
}

// wantVerdict requires a number of writes since the start, the last one with this KMSPluginsDegraded. It returns that.
func (s *fixture) wantVerdict(n int, verdict, when string) request {
	s.Helper()
	s.wantWrites(n, when)
	return s.wantLast(verdict, when)
}

// wantLast requires the last write to have this KMSPluginsDegraded, and returns it.
func (s *fixture) wantLast(verdict, when string) request {
	s.Helper()
	w := s.wantWrites(len(s.written()), when)
	if degraded(w.apply) != verdict {
		s.Errorf("%s, at %s: want %s, written: %s", when, w.at, verdict, w.body)
	}
	return w
}

// degraded is the condition Degraded in a write or in the watch.
func degraded(conditions []any) string {
	for _, c := range conditions {
		if fields := c.(map[string]any); fields["type"] == "KMSPluginsDegraded" {
			return fmt.Sprint(fields["status"], " ", fields["reason"])
		}
	}
	return ""
}
