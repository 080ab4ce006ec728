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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// TestMain removes the bound on how often errors are logged: it keeps the time of the
// last one, and synctest's clock starts long before the real one.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// noRollup is a roll-up with nothing left to remove.
type noRollup struct{}

func (noRollup) Set(delivery.Snapshot)                   {}
func (noRollup) Remove(string)                           {}
func (noRollup) IsDone(string) bool                      { return true }
func (noRollup) Silent(string) map[string]rollup.Silence { return nil }

// activeConfig is the configuration of a test.
type activeConfig struct {
	atomic.Pointer[v1alpha1.OperatorConfiguration]
}

func (a *activeConfig) Current() *v1alpha1.OperatorConfiguration { return a.Load() }

// noQueue is the queue of another controller, which does not run.
type noQueue struct{}

func (noQueue) Enqueue(string) {}

// requests records a controller's requests to a fake API server. The server has one operator resource, a namespace and,
// if given, a ClusterRole with a recorded state.
type requests struct {
	mu      sync.Mutex
	version int
	all     []string                  // requests with applied statuses, and what was published to the roll-up
	secrets *kubernetesfake.Clientset // nil: none exist
}

func (r *requests) client(recorded *delivery.State) *dynamicfake.FakeDynamicClient {
	resource := contract.ResourceOf("kubeapiservers")
	kinds := map[schema.GroupVersionResource]string{
		resource.GVR(): "KubeAPIServerList", informers.Pods: "PodList", informers.Secrets: "SecretList",
		informers.ConfigMaps:      "ConfigMapList",
		informers.ServiceAccounts: "ServiceAccountList", informers.Namespaces: "NamespaceList",
		informers.DaemonSets: "DaemonSetList", informers.Deployments: "DeploymentList",
		informers.Roles: "RoleList", informers.ClusterRoles: "ClusterRoleList", informers.ClusterBindings: "ClusterRoleBindingList",
		informers.Nodes: "NodeList", informers.Events: "EventList", informers.Policies: "ValidatingAdmissionPolicyList",
		informers.PolicyBindings: "ValidatingAdmissionPolicyBindingList",
	}
	object := func(apiVersion, kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": name, "uid": name, "resourceVersion": "1"}}}
	}
	objects := []runtime.Object{object("operator.openshift.io/v1", "KubeAPIServer", contract.OperatorObject),
		object("v1", "Namespace", "ns")}
	if recorded != nil {
		role := object("rbac.authorization.k8s.io/v1", "ClusterRole", contract.ReporterName(kube))
		role.SetLabels(map[string]string{contract.ManagedByLabel: contract.OperatorName, contract.APIServerLabel: kube})
		role.SetAnnotations(map[string]string{contract.StateAnnotation: recorded.String()})
		objects = append(objects, role)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		patch, applied := a.(clienttesting.PatchAction)
		if !applied {
			r.all = append(r.all, a.GetVerb()+" "+a.GetResource().Resource)
			return false, nil, nil
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(patch.GetPatch(), &o.Object); err != nil {
			return true, nil, err
		}
		status, _ := json.Marshal(o.Object["status"])
		r.all = append(r.all, "apply "+a.GetResource().Resource+" "+string(status))
		o.SetNamespace(a.GetNamespace())
		live, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), patch.GetName())
		if err == nil {
			o.SetResourceVersion(live.(*unstructured.Unstructured).GetResourceVersion())
			if reflect.DeepEqual(o, live) {
				return true, o, nil // an apply without a change keeps the resourceVersion
			}
		}
		r.version++
		o.SetResourceVersion(strconv.Itoa(100 + r.version))
		if err != nil {
			return true, o, client.Tracker().Create(a.GetResource(), o, a.GetNamespace())
		}
		return true, o, client.Tracker().Update(a.GetResource(), o, a.GetNamespace())
	})
	return client
}

// runController runs a controller for ten minutes, and returns its requests and the Events it recorded.
func runController(t *testing.T, configuration string, recorded *delivery.State) (all, events []string) {
	t.Helper()
	r := &requests{}
	events = r.run(t, r.client(recorded), configuration)
	return r.all, events
}

// nodeRollup records what the delivery publishes. It reads Nodes, which starts their informer.
type nodeRollup struct {
	noRollup
	requests *requests
}

func (r nodeRollup) Remove(name string) {
	r.requests.mu.Lock()
	defer r.requests.mu.Unlock()
	r.requests.all = append(r.requests.all, "removed "+name)
}

func (r nodeRollup) Set(p delivery.Snapshot) {
	p.Sources.Cluster.Nodes.Get("", "a")
	r.requests.mu.Lock()
	defer r.requests.mu.Unlock()
	r.requests.all = append(r.requests.all, "status "+string(p.Status.Reason)+" "+p.Status.Message,
		fmt.Sprintf("published off %t, read %t", p.Off, p.LiveKnown),
		fmt.Sprintf("synced %t", p.Sources.Pods.HasSynced() && p.Sources.Resource.HasSynced()))
}

// run runs a controller, for ten minutes with each configuration, and returns the Events it recorded.
func (r *requests) run(t *testing.T, client *dynamicfake.FakeDynamicClient, configurations ...string) (events []string) {
	t.Helper()
	if r.secrets == nil {
		r.secrets = kubernetesfake.NewClientset()
	}
	synctest.Test(t, func(t *testing.T) {
		openShift := false
		var mu sync.Mutex
		config, queue := &activeConfig{}, syncqueue.New(clock.RealClock{}, "deliver")
		c := New(Options{
			Config: config, Queue: queue, HealthQueue: noQueue{}, ClusterOperator: noQueue{},
			Client: client, Resources: client, Core: r.secrets.CoreV1(),
			CA:        func() ([]byte, error) { return []byte("CA"), nil },
			TLS:       func() (v1alpha1.ServingTLS, string, bool) { return v1alpha1.ServingTLS{}, "", true },
			Namespace: "kms-health", OpenShift: &openShift, Registry: prometheus.NewRegistry(), Clock: clock.RealClock{},
			Now:    time.Now,
			Health: nodeRollup{requests: r}, Event: func(_, _, reason, _ string) {
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
			if err != nil {
				t.Fatal(err)
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

func TestTargetWithNothingToDoIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		configuration string
		want          string
	}{
		"KMS is off":      {oneTarget, "off true, read true"},
		"it is removed":   {oneTarget + "managementState: Removed\n", "off true, read false"},
		"it is unmanaged": {oneTarget + "managementState: Unmanaged\n", "off false, read false"},
	} {
		all, events := runController(t, c.configuration, nil)
		if !slices.Contains(all, "published "+c.want) {
			t.Errorf("%s: not %s: %q", name, c.want, all)
		}
		if n := count(all, "apply kubeapiservers"); n > 0 {
			t.Errorf("%s: the delivery wrote the operator resource %d times", name, n)
		}
		if n := count(all, "list kubeapiservers"); n > 2 {
			t.Errorf("%s: the operator resource was listed %d times", name, n)
		}
		if len(events) > 3 {
			t.Errorf("%s: %d Events: %v", name, len(events), events[:4])
		}
	}
}

var withPlugin = strings.Replace(oneTarget, "podSelector",
	`plugins: [{keyID: "1", endpoint: "unix:///run/kms/k.sock", role: Write}], podSelector`, 1)

func TestMissingPolicyIsReported(t *testing.T) {
	all, _ := runController(t, withPlugin, nil)
	if !slices.ContainsFunc(all, func(request string) bool {
		return strings.Contains(request, "ValidatingAdmissionPolicy kms-health-reporter does not exist: apply the manifests")
	}) {
		t.Errorf("%v", all)
	}
}

// Without the resource no condition can report the problem, so an Event does.
func TestMissingOperatorResourceIsReported(t *testing.T) {
	r := &requests{}
	client := r.client(nil)
	if err := client.Tracker().Delete(contract.ResourceOf(contract.KubeAPIServers).GVR(), "",
		contract.OperatorObject); err != nil {
		t.Fatal(err)
	}
	events := r.run(t, client, withPlugin)
	reported := slices.ContainsFunc(r.all, func(request string) bool {
		return strings.HasPrefix(request, "status ") && strings.Contains(request,
			"kubeapiservers.operator.openshift.io/cluster does not exist")
	})
	if !reported || !slices.Contains(events, contract.ResourceMissing) {
		t.Errorf("Events %q, requests %q", events, r.all)
	}
}

// forbidLists makes an API server refuse the lists of a kind in a namespace.
func forbidLists(client *dynamicfake.FakeDynamicClient, kind schema.GroupVersionResource, namespace string) {
	client.PrependReactor("list", kind.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		forbidden := a.GetResource() == kind && a.GetNamespace() == namespace
		return forbidden, nil, apierrors.NewForbidden(kind.GroupResource(), "", errors.New("no right"))
	})
}

// unreadable reports whether a source was reported as one that cannot be read.
func (r *requests) unreadable(what string) bool {
	return slices.ContainsFunc(r.all, func(request string) bool {
		return strings.Contains(request, "SourceUnreadable") && strings.Contains(request, what+" cannot be read")
	})
}

// Without these sources no roll-up is evaluated, so the delivery has to report the problem.
func TestSourcesOfTheRollupThatAreForbiddenAreReported(t *testing.T) {
	for what, forbidden := range map[string]clienttesting.Action{
		"Nodes": clienttesting.NewListAction(informers.Nodes, schema.GroupVersionKind{}, "",
			metav1.ListOptions{}),
		"the pods of namespace kms-health": clienttesting.NewListAction(informers.Pods, schema.GroupVersionKind{},
			"kms-health", metav1.ListOptions{}),
	} {
		for name, configuration := range map[string]string{"it delivers": withPlugin,
			"Unmanaged":                    "managementState: Unmanaged\n" + withPlugin,
			"the namespace does not exist": strings.Replace(withPlugin, "namespace: ns", "namespace: other", 1)} {
			r := &requests{}
			client := r.client(nil)
			forbidLists(client, forbidden.GetResource(), forbidden.GetNamespace())
			if events := r.run(t, client, configuration); !r.unreadable(what) {
				t.Errorf("%s, %s: Events %q, requests %q", what, name, events, r.all)
			}
		}
	}
}

func TestEachSourceThatADeliveryNeedsIsReportedWhereItIsForbidden(t *testing.T) {
	sidecar := strings.Replace(withPlugin, "podSelector", "mode: Sidecar, deployment: apiserver, podSelector", 1)
	for what, c := range map[string]struct {
		kind                     schema.GroupVersionResource
		namespace, configuration string
	}{
		"clusterroles":                                 {informers.ClusterRoles, "", withPlugin},
		"clusterrolebindings":                          {informers.ClusterBindings, "", withPlugin},
		"validatingadmissionpolicies":                  {informers.Policies, "", withPlugin},
		"validatingadmissionpolicybindings":            {informers.PolicyBindings, "", withPlugin},
		"kubeapiservers.operator.openshift.io/cluster": {contract.ResourceOf("kubeapiservers").GVR(), "", withPlugin},
		"the DaemonSets of namespace kms-health":       {informers.DaemonSets, "kms-health", withPlugin},
		"the ServiceAccounts of namespace kms-health":  {informers.ServiceAccounts, "kms-health", withPlugin},
		"namespace ns":                                 {informers.Namespaces, "", withPlugin},
		"the pods of namespace ns":                     {informers.Pods, "ns", withPlugin},
		"the Role of namespace ns":                     {informers.Roles, "ns", oneTarget},
		"the Deployment of namespace ns":               {informers.Deployments, "ns", sidecar},
		"the ServiceAccount of namespace ns":           {informers.ServiceAccounts, "ns", sidecar},
	} {
		r := &requests{}
		client := r.client(nil)
		forbidLists(client, c.kind, c.namespace)
		if r.run(t, client, c.configuration); !r.unreadable(what) {
			t.Errorf("%s: requests %q", what, r.all)
		}
	}
}

func TestRestartRepeatsNoEvent(t *testing.T) {
	r := &requests{}
	client := r.client(nil)
	for _, configuration := range []string{oneTarget, withPlugin, "managementState: Unmanaged\n" + withPlugin} {
		_ = r.run(t, client, configuration)
		if events := r.run(t, client, configuration); len(events) > 0 {
			t.Errorf("%s: after a restart: %v", configuration, events)
		}
	}
}

// The watch shows a deletion late. Until then the target must stay known as off. A new entry from the outdated cache
// would be published as on, and its conditions would stay.
func TestRemovedTargetIsForgottenWhenTheWatchShowsIt(t *testing.T) {
	r := &requests{}
	client := r.client(&delivery.State{Installation: "kms-health", Namespace: "ns", Resource: contract.KubeAPIServers})
	began := sync.OnceValue(time.Now)
	client.PrependReactor("delete", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return time.Since(began()) < 2*informers.AuthorizerWarmup, nil, apierrors.NewInternalError(errors.New("later"))
	})
	client.PrependWatchReactor("clusterroles", func(a clienttesting.Action) (bool, watch.Interface, error) {
		shown, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		return true, watch.Filter(shown, func(e watch.Event) (watch.Event, bool) {
			if e.Type == watch.Deleted {
				time.Sleep(2 * time.Second)
			}
			return e, true
		}), err
	})
	r.run(t, client, "apiServers: []\n")
	removed, on := count(r.all, "removed "+kube), count(r.all, "published off false")
	if removed != 1 || on != 0 {
		t.Errorf("removed %d times, published as one that is on %d times: %q", removed, on, r.all)
	}
}

// refuseRecords makes an API server refuse the ClusterRoles with the records, from a time on.
func refuseRecords(client *dynamicfake.FakeDynamicClient, after time.Duration) {
	began := sync.OnceValue(time.Now)
	client.PrependReactor("patch", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return time.Since(began()) >= after, nil, apierrors.NewForbidden(informers.ClusterRoles.GroupResource(), "", errors.New("no right"))
	})
}

// last returns the last record that has a prefix.
func (r *requests) last(prefix string) (found string) {
	for _, request := range r.all {
		if strings.HasPrefix(request, prefix) {
			found = request
		}
	}
	return found
}

// A target that could not be recorded has a condition that reports this. That condition must be removed, too.
func TestConditionsOfATargetThatWasNeverRecordedAreNotForgotten(t *testing.T) {
	r := &requests{}
	client := r.client(nil)
	refuseRecords(client, 0)
	forbidLists(client, informers.DaemonSets, "kms-health")
	r.run(t, client, withPlugin, "apiServers: []\n")
	if removed, off := r.last("removed"), r.last("published"); removed != "" || !strings.HasPrefix(off, "published off true") {
		t.Errorf("%q, %q", removed, off)
	}
}

// A target that is Managed again is on, even if the delivery is not possible. Its condition reports the problem.
func TestTargetThatIsManagedAgainIsOn(t *testing.T) {
	r := &requests{}
	client := r.client(nil)
	refuseRecords(client, 15*time.Minute)
	r.run(t, client, withPlugin, "managementState: Removed\n"+withPlugin, withPlugin)
	if on, status := r.last("published"), r.last("status"); !strings.HasPrefix(on, "published off false") || !strings.Contains(status, "Forbidden") {
		t.Errorf("%q, %q", on, status)
	}
}

// The operator cannot list Secrets. Without a record, a token's Secret may exist.
func TestSecretIsDeletedThoughItsRecordWasRemoved(t *testing.T) {
	name := objects.TokenName(kube)
	r := &requests{secrets: kubernetesfake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name,
		Namespace: "ns"}})}
	sidecar := strings.Replace(oneTarget, "podSelector", "mode: Sidecar, deployment: apiserver, podSelector", 1)
	_ = r.run(t, r.client(nil), sidecar+"managementState: Removed\n")
	if _, err := r.secrets.CoreV1().Secrets("ns").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret: %v", err)
	}
	deletions := slices.DeleteFunc(r.secrets.Actions(),
		func(a clienttesting.Action) bool { return a.GetVerb() != "delete" })
	if len(deletions) != 1 {
		t.Errorf("%d requests to delete it", len(deletions))
	}
}

// A target removed from the configuration stays known until all of its objects are removed.
func TestTargetIsForgottenOnceNothingIsLeftOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		recorded  delivery.State
		forbidden bool
		want      bool
	}{
		"nothing is left":                     {delivery.State{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers}, false, true},
		"something was made, nothing is read": {delivery.State{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers}, true, false},
	} {
		r := &requests{}
		client := r.client(&c.recorded)
		if c.forbidden {
			forbidLists(client, informers.Pods, "kms-health")
		}
		r.run(t, client, "apiServers: []\n")
		if is := slices.Contains(r.all, "removed "+kube); is != c.want {
			t.Errorf("%s: forgotten %t: %q", name, is, r.all)
		}
	}
}

// A removal cannot end while the operator cannot list what is left.
func TestConfigMapsThatCannotBeListedAreReported(t *testing.T) {
	r := &requests{}
	client := r.client(&delivery.State{Namespace: "ns", Resource: v1alpha1.ResourceKubeAPIServers})
	forbidLists(client, informers.ConfigMaps, "kms-health")
	r.run(t, client, oneTarget+"managementState: Removed\n")
	if !slices.ContainsFunc(r.all, func(request string) bool {
		return strings.HasPrefix(request, "status SourceUnreadable") && strings.Contains(request, "the ConfigMaps that are left cannot be listed")
	}) {
		t.Errorf("%q", r.all)
	}
}

// Publishing earlier would leave the roll-up without a verdict, and the ClusterOperator without input.
func TestOtherPodSelectorIsPublishedOnceItsPodsAreRead(t *testing.T) {
	r := &requests{}
	client := r.client(nil)
	var edited int
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		slow := a.(clienttesting.ListAction).GetListRestrictions().Labels.String() == "app=other"
		if slow && edited == 0 {
			edited = len(r.all)
		}
		return slow, nil, apierrors.NewInternalError(errors.New("not yet"))
	})
	r.run(t, client, withPlugin, strings.Replace(withPlugin, "app: api", "app: other", 1))
	if after := r.all[edited:]; count(r.all[:edited], "synced true") == 0 || count(after, "synced true") == 0 ||
		count(after, "synced false") > 0 {
		t.Errorf("before the edit %q, after it %q", r.all[:edited], after)
	}
}
