package reportercontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/test/harness/must"
)

// TestMain removes the bound on how often errors are logged: it keeps the time of the
// last one, and synctest's clock starts long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// noRollup is a roll-up with nothing left to remove.
type noRollup struct{}

func (noRollup) Set(delivery.Snapshot)           {}
func (noRollup) Remove(string)                   {}
func (noRollup) Verdict(string) delivery.Verdict { return delivery.Verdict{Done: true} }

// activeConfig is the configuration of a test.
type activeConfig struct {
	atomic.Pointer[v1alpha1.OperatorConfiguration]
}

func (a *activeConfig) Current() *v1alpha1.OperatorConfiguration { return a.Load() }

// noQueue is the queue of another controller, which does not run.
type noQueue struct{}

func (noQueue) Enqueue(string) {}

// requests is a fake API server that records a controller's requests. It has one operator resource, and a namespace.
type requests struct {
	*dynamicfake.FakeDynamicClient
	mu      sync.Mutex
	version int
	all     []string    // requests with applied statuses, and what was published to the roll-up
	step    func(i int) // called before each configuration; nil: nothing
}

// newRequests returns a fake API server. recorded is the state in a ClusterRole; nil: there is none.
func newRequests(recorded *delivery.State) *requests {
	stored := func(apiVersion, kind, name string) *unstructured.Unstructured {
		o := object(apiVersion, kind, "", name)
		o.SetUID(types.UID(name))
		o.SetResourceVersion("1")
		return o
	}
	objects := []runtime.Object{stored("operator.openshift.io/v1", "KubeAPIServer", contract.OperatorObject),
		stored("v1", "Namespace", "ns")}
	if recorded != nil {
		role := stored("rbac.authorization.k8s.io/v1", "ClusterRole", contract.ReporterName(kube))
		role.SetLabels(map[string]string{contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: kube})
		role.SetAnnotations(map[string]string{contract.StateAnnotation: recorded.String()})
		objects = append(objects, role)
	}
	r := &requests{FakeDynamicClient: newClient(objects...)}
	r.PrependReactor("*", "*", r.react)
	return r
}

// react records a request, and carries out an apply. An apply without a change keeps the resourceVersion.
func (r *requests) react(a clienttesting.Action) (bool, runtime.Object, error) {
	patch, applied := a.(clienttesting.PatchAction)
	if !applied {
		r.record(a.GetVerb() + " " + a.GetResource().Resource)
		return false, nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.GetPatch(), &o.Object); err != nil {
		return true, nil, err
	}
	status, _ := json.Marshal(o.Object["status"])
	r.record("apply " + a.GetResource().Resource + " " + string(status))
	o.SetNamespace(a.GetNamespace())
	live, err := r.Tracker().Get(a.GetResource(), a.GetNamespace(), patch.GetName())
	if err == nil {
		o.SetResourceVersion(live.(*unstructured.Unstructured).GetResourceVersion())
		if reflect.DeepEqual(o, live) {
			return true, o, nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	o.SetResourceVersion(strconv.Itoa(100 + r.version))
	if err != nil {
		return true, o, r.Tracker().Create(a.GetResource(), o, a.GetNamespace())
	}
	return true, o, r.Tracker().Update(a.GetResource(), o, a.GetNamespace())
}

func (r *requests) record(all ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, all...)
}

// nodeRollup records what the delivery publishes. It reads Nodes, which starts their informer.
type nodeRollup struct {
	noRollup
	*requests
}

func (r nodeRollup) Remove(name string) { r.record("removed " + name) }

func (r nodeRollup) Set(p delivery.Snapshot) {
	p.Sources.Cluster.Nodes.Get("", "a")
	r.record("status "+string(p.Status.Reason)+" "+p.Status.Message,
		fmt.Sprintf("published off %t, read %t", p.Off, p.LiveKnown),
		fmt.Sprintf("synced %t", p.Sources.Pods.HasSynced() && p.Sources.Resource.HasSynced()))
}

// run runs a controller, for ten minutes with each configuration, and returns the Events it recorded.
func (r *requests) run(t *testing.T, configurations ...string) (events []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		config, queue := &activeConfig{}, syncqueue.New("deliver")
		c := New(Options{
			Config: config, Queue: queue, HealthQueue: noQueue{}, ClusterOperator: noQueue{},
			Client: r, Resources: r, Core: kubernetesfake.NewClientset().CoreV1(),
			CA:        func() ([]byte, error) { return []byte("CA"), nil },
			TLS:       func() (v1alpha1.ServingTLS, string, bool) { return v1alpha1.ServingTLS{}, "", true },
			Namespace: "kms-health", OpenShift: true, Registry: prometheus.NewRegistry(),
			Now: time.Now, Health: nodeRollup{requests: r}, Event: func(_, _, reason, _ string) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, reason)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i, configuration := range configurations {
			decoded, err := v1alpha1.DecodeOperator([]byte("apiVersion: kmshealth.openshift.io/v1alpha1\n" +
				"kind: OperatorConfiguration\nimage: reporter:1\n" + configuration))
			must.Succeed(t, err)
			if r.step != nil {
				r.step(i)
			}
			config.Store(decoded)
			queue.Enqueue(syncqueue.All)
			if i == 0 {
				running.Go(func() { c.Run(ctx) })
			}
			time.Sleep(10 * time.Minute)
		}
		cancel()
		running.Wait()
	})
	return events
}

// with reports whether a record has all parts.
func (r *requests) with(parts ...string) bool {
	return slices.ContainsFunc(r.all, func(record string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(record, part) })
	})
}

// last returns the last record that has a prefix.
func (r *requests) last(prefix string) (found string) {
	for _, record := range r.all {
		if strings.HasPrefix(record, prefix) {
			found = record
		}
	}
	return found
}

// forbidLists refuses the lists of a kind in a namespace, for a time.
func (r *requests) forbidLists(kind schema.GroupVersionResource, namespace string, length time.Duration) {
	began := sync.OnceValue(time.Now)
	r.PrependReactor("list", kind.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		is := a.GetResource() == kind && a.GetNamespace() == namespace
		return is && time.Since(began()) < length, nil, noRight(kind.Resource)
	})
}

// refuseRecords refuses the ClusterRoles with the records, from a time on.
func (r *requests) refuseRecords(after time.Duration) {
	began := sync.OnceValue(time.Now)
	r.PrependReactor("patch", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return time.Since(began()) >= after, nil, noRight("clusterroles")
	})
}

// count returns how many records have a prefix.
func count(all []string, prefix string) (n int) {
	for _, request := range all {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

// kube is the name of the API server in oneTarget.
var kube = contract.ResourceOf(contract.KubeAPIServers).APIServer.Name

const oneTarget = `apiServers:
- {resource: kubeapiservers, namespace: ns, podSelector: {app: api}}
`

var (
	withPlugin = strings.Replace(oneTarget, "podSelector",
		`plugins: [{keyID: "1", endpoint: "unix:///run/kms/k.sock", role: Write}], podSelector`, 1)
	removed, noLonger = "managementState: Removed\n", "apiServers: []\n"
	sidecar           = strings.NewReplacer("podSelector", "mode: Sidecar, deployment: apiserver, podSelector")
	// recorded is the record of oneTarget.
	recorded = &delivery.State{Installation: "kms-health", Namespace: "ns", Resource: contract.KubeAPIServers}
)

func TestTargetWithNothingToDoIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct{ configuration, want string }{
		"KMS is off":      {oneTarget, "off true, read true"},
		"it is removed":   {oneTarget + removed, "off true, read false"},
		"it is unmanaged": {oneTarget + "managementState: Unmanaged\n", "off false, read false"},
	} {
		r := newRequests(nil)
		events := r.run(t, c.configuration)
		if !slices.Contains(r.all, "published "+c.want) || r.with("apply kubeapiservers") ||
			count(r.all, "list kubeapiservers") > 2 || len(events) > 3 {
			t.Errorf("%s: not only %s: %q, Events %q", name, c.want, r.all, events)
		}
	}
}

func TestMissingPolicyIsReported(t *testing.T) {
	r := newRequests(nil)
	r.run(t, withPlugin)
	if !r.with("ValidatingAdmissionPolicy kms-health-reporter does not exist: apply the manifests") {
		t.Errorf("%v", r.all)
	}
}

// Without the resource no condition can report the problem, so an Event does.
func TestMissingOperatorResourceIsReported(t *testing.T) {
	r := newRequests(nil)
	kubes := contract.ResourceOf(contract.KubeAPIServers).GVR()
	must.Succeed(t, r.Tracker().Delete(kubes, "", contract.OperatorObject))
	events := r.run(t, withPlugin)
	if !r.with("status ", "kubeapiservers.operator.openshift.io/cluster does not exist") ||
		!slices.Contains(events, contract.ResourceMissing) {
		t.Errorf("Events %q, requests %q", events, r.all)
	}
}

// Without the sources of the roll-up none is evaluated, so the delivery has to report the problem, also if it has
// nothing to do. An API server that has just started may deny what it will allow.
func TestEachSourceThatIsForbiddenIsReported(t *testing.T) {
	type row struct {
		kind          schema.GroupVersionResource
		namespace     string
		configuration string
		what          string
	}
	rows := []row{
		{informers.ClusterRoles, "", withPlugin, "clusterroles"},
		{informers.ClusterBindings, "", withPlugin, "clusterrolebindings"},
		{informers.Policies, "", withPlugin, "validatingadmissionpolicies"},
		{informers.PolicyBindings, "", withPlugin, "validatingadmissionpolicybindings"},
		{informers.Infrastructures, "", withPlugin, "infrastructures.config.openshift.io"},
		{contract.ResourceOf("kubeapiservers").GVR(), "", withPlugin, "kubeapiservers.operator.openshift.io/cluster"},
		{informers.DaemonSets, "kms-health", withPlugin, "the DaemonSets of namespace kms-health"},
		{informers.ServiceAccounts, "kms-health", withPlugin, "the ServiceAccounts of namespace kms-health"},
		{informers.Namespaces, "", withPlugin, "namespace ns"},
		{informers.Pods, "ns", withPlugin, "the pods of namespace ns"},
		{informers.Roles, "ns", oneTarget, "the Role of namespace ns"},
		{informers.Secrets, "ns", oneTarget, "Secret ns/encryption-config"},
		{informers.Deployments, "ns", sidecar.Replace(withPlugin), "the Deployment of namespace ns"},
		{informers.ServiceAccounts, "ns", sidecar.Replace(withPlugin), "the ServiceAccount of namespace ns"},
	}
	for _, configuration := range []string{withPlugin, "managementState: Unmanaged\n" + withPlugin,
		strings.Replace(withPlugin, "namespace: ns", "namespace: missing", 1)} {
		rows = append(rows, row{informers.Nodes, "", configuration, "Nodes"},
			row{informers.Pods, "kms-health", configuration, "the pods of namespace kms-health"})
	}
	for _, c := range rows {
		for length, want := range map[time.Duration]bool{time.Hour: true, informers.AuthorizerWarmup / 2: false} {
			r := newRequests(nil)
			r.forbidLists(c.kind, c.namespace, length)
			if r.run(t, c.configuration); r.with("SourceUnreadable", c.what+" cannot be read") != want {
				t.Errorf("%s, for %s, with %s: requests %q", c.what, length, c.configuration, r.all)
			}
		}
	}
}

func TestRestartRepeatsNoEvent(t *testing.T) {
	r := newRequests(nil)
	for _, configuration := range []string{oneTarget, withPlugin, "managementState: Unmanaged\n" + withPlugin} {
		_ = r.run(t, configuration)
		if events := r.run(t, configuration); len(events) > 0 {
			t.Errorf("%s: after a restart: %v", configuration, events)
		}
	}
}

// The watch shows a deletion late. Until then the target must stay known as off. A new entry from the outdated cache
// would be published as on, and its conditions would stay.
func TestRemovedTargetIsForgottenWhenTheWatchShowsIt(t *testing.T) {
	r := newRequests(recorded)
	began := sync.OnceValue(time.Now)
	r.PrependReactor("delete", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return time.Since(began()) < 2*informers.AuthorizerWarmup, nil, apierrors.NewInternalError(errors.New("later"))
	})
	r.PrependWatchReactor("clusterroles", func(a clienttesting.Action) (bool, watch.Interface, error) {
		shown, err := r.Tracker().Watch(a.GetResource(), a.GetNamespace())
		return true, watch.Filter(shown, func(e watch.Event) (watch.Event, bool) {
			if e.Type == watch.Deleted {
				time.Sleep(2 * time.Second)
			}
			return e, true
		}), err
	})
	r.run(t, noLonger)
	removed, on := count(r.all, "removed "+kube), count(r.all, "published off false")
	if removed != 1 || on != 0 {
		t.Errorf("removed %d times, published as one that is on %d times: %q", removed, on, r.all)
	}
}

// A target that could not be recorded has a condition that reports this. That condition must be removed, too.
func TestConditionsOfATargetThatWasNeverRecordedAreNotForgotten(t *testing.T) {
	r := newRequests(nil)
	r.refuseRecords(0)
	r.forbidLists(informers.DaemonSets, "kms-health", time.Hour)
	r.run(t, withPlugin, noLonger)
	if removed, off := r.last("removed"), r.last("published"); removed != "" || !strings.HasPrefix(off, "published off true") {
		t.Errorf("%q, %q", removed, off)
	}
}

// A target that is Managed again is on, even if the delivery is not possible. Its condition reports the problem.
func TestTargetThatIsManagedAgainIsOn(t *testing.T) {
	r := newRequests(nil)
	r.refuseRecords(15 * time.Minute)
	r.run(t, withPlugin, removed+withPlugin, withPlugin)
	if on, status := r.last("published"), r.last("status"); !strings.HasPrefix(on, "published off false") ||
		!strings.Contains(status, "Forbidden") {
		t.Errorf("%q, %q", on, status)
	}
}

// A target removed from the configuration stays known until all of its objects are removed.
func TestTargetIsForgottenOnceNothingIsLeftOfIt(t *testing.T) {
	for _, readable := range []bool{true, false} {
		r := newRequests(recorded)
		if !readable {
			r.forbidLists(informers.Pods, "kms-health", time.Hour)
		}
		r.run(t, noLonger)
		if forgotten := slices.Contains(r.all, "removed "+kube); forgotten != readable {
			t.Errorf("what is left can be read %t: forgotten %t: %q", readable, forgotten, r.all)
		}
	}
}

// A removal cannot end while the operator cannot list what is left.
func TestConfigMapsThatCannotBeListedAreReported(t *testing.T) {
	r := newRequests(recorded)
	r.forbidLists(informers.ConfigMaps, "kms-health", time.Hour)
	r.run(t, oneTarget+removed)
	if !r.with("status SourceUnreadable", "the ConfigMaps that are left cannot be listed") {
		t.Errorf("%q", r.all)
	}
}

// Publishing earlier would leave the roll-up without a verdict, and the ClusterOperator without input.
func TestOtherPodSelectorIsPublishedOnceItsPodsAreRead(t *testing.T) {
	r := newRequests(nil)
	var edited int
	r.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		slow := a.(clienttesting.ListAction).GetListRestrictions().Labels.String() == "app=other"
		if slow && edited == 0 {
			edited = len(r.all)
		}
		return slow, nil, apierrors.NewInternalError(errors.New("not yet"))
	})
	r.run(t, withPlugin, strings.Replace(withPlugin, "app: api", "app: other", 1))
	if after := r.all[edited:]; count(r.all[:edited], "synced true") == 0 || count(after, "synced true") == 0 ||
		count(after, "synced false") > 0 {
		t.Errorf("before the edit %q, after it %q", r.all[:edited], after)
	}
}

// The record is written before and after the refused object. Each of these writes enqueues all targets, but must not
// shorten the backoff.
func TestWhatIsForbiddenIsReportedAndTriedWithABackoff(t *testing.T) {
	for _, resource := range []string{"roles", "clusterroles"} {
		r := newRequests(nil)
		r.PrependReactor("patch", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			r.record("denied")
			return true, nil, noRight(resource)
		})
		r.run(t, oneTarget) // for 10 minutes
		if denied := count(r.all, "denied"); denied < 10 || denied > 100 || !r.with("status Forbidden") {
			t.Errorf("%s: refused %d times: %q", resource, denied, r.all)
		}
	}
}

// A container that started after this operator saw the new set has loaded it, whatever the management state was.
func TestContainerStartedWhileUnmanagedHasLoadedTheSet(t *testing.T) {
	r := newRequests(nil)
	for i, o := range objects.Policy() {
		o.SetUID(types.UID(strconv.Itoa(i)))
		resource := []schema.GroupVersionResource{informers.Policies, informers.PolicyBindings}[i]
		must.Succeed(t, r.Tracker().Create(resource, o, ""))
	}
	r.step = func(i int) {
		id := []string{"first", "first", "second", "second"}[i]
		pod := apiPod("a", "1", onHost, func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts[0].MountPath = "/run/kms"
			p.Status.ContainerStatuses[0].ContainerID = id
		})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		must.Succeed(t, err)
		o := &unstructured.Unstructured{Object: content}
		o.SetAPIVersion("v1")
		o.SetKind("Pod")
		if i == 0 {
			must.Succeed(t, r.Tracker().Create(informers.Pods, o, "ns"))
		} else {
			must.Succeed(t, r.Tracker().Update(informers.Pods, o, "ns"))
		}
	}
	before := strings.Replace(withPlugin, "podSelector", "container: api, mode: DaemonSet, podSelector", 1)
	rotated := strings.Replace(before, `keyID: "1"`, `keyID: "2"`, 1)
	r.run(t, before, "managementState: Unmanaged\n"+rotated, "managementState: Unmanaged\n"+rotated, rotated)
	role, err := r.Tracker().Get(informers.ClusterRoles, "", contract.ReporterName(kube))
	must.Succeed(t, err)
	state, err := delivery.ParseState(role.(*unstructured.Unstructured).GetAnnotations()[contract.StateAnnotation])
	must.Succeed(t, err)
	if len(state.Live) != 1 || state.Live[0].KeyID != "2" || !slices.Equal(state.NotLoaded, []string{"first"}) {
		t.Errorf("recorded %s", state)
	}
}
