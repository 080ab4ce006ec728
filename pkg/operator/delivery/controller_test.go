package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// noRollup is a roll-up with nothing left to remove.
type noRollup struct{}

func (noRollup) Set(Published)      {}
func (noRollup) Remove(string)      {}
func (noRollup) IsDone(string) bool { return true }
func (noRollup) Wake(string)        {}

// requests records what a controller asks of an API server with one operator resource,
// a namespace and, perhaps, a ClusterRole with a recorded state.
type requests struct {
	mu      sync.Mutex
	version int
	all     []string // verb, resource, and a status as it was applied
}

func (r *requests) client(recorded *State) *dynamicfake.FakeDynamicClient {
	resource := operatorcr.Of("kubeapiservers")
	kinds := map[schema.GroupVersionResource]string{
		resource.GVR(): "KubeAPIServerList", source.Pods: "PodList", source.Secrets: "SecretList", source.ConfigMaps: "ConfigMapList",
		source.ServiceAccounts: "ServiceAccountList", source.Namespaces: "NamespaceList", source.DaemonSets: "DaemonSetList",
		source.Roles: "RoleList", source.ClusterRoles: "ClusterRoleList", source.ClusterBindings: "ClusterRoleBindingList",
		source.Nodes: "NodeList", source.Policies: "ValidatingAdmissionPolicyList", source.PolicyBindings: "ValidatingAdmissionPolicyBindingList",
	}
	object := func(apiVersion, kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "uid": name, "resourceVersion": "1"}}}
	}
	objects := []runtime.Object{object("operator.openshift.io/v1", "KubeAPIServer", operatorcr.Name), object("v1", "Namespace", "ns")}
	if recorded != nil {
		role := object("rbac.authorization.k8s.io/v1", "ClusterRole", manifests.Name("api"))
		role.SetLabels(map[string]string{manifests.ManagedBy: manifests.Manager, manifests.TargetLabel: "api"})
		role.SetAnnotations(map[string]string{manifests.StateAnnotation: recorded.String()})
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
				return true, o, nil // as an API server has it
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

// runController runs a controller for ten minutes, and returns what it asked of the API
// server and the Events it recorded.
func runController(t *testing.T, configuration string, recorded *State) (all, events []string) {
	t.Helper()
	r := &requests{}
	events = r.run(t, r.client(recorded), configuration)
	return r.all, events
}

// nodeRollup needs a Node, too.
type nodeRollup struct{ noRollup }

func (nodeRollup) Set(p Published) { p.Sources.Nodes(map[string]bool{"a": true}) }

// run runs a controller for ten minutes, and returns the Events it recorded.
func (r *requests) run(t *testing.T, client *dynamicfake.FakeDynamicClient, configuration string) (events []string) {
	t.Helper()
	config, err := v1alpha1.DecodeOperator([]byte("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\nimage: reporter:1\n" + configuration))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		openShift := false
		var mu sync.Mutex
		c := New(Options{
			Client: client, CA: func() ([]byte, error) { return []byte("CA"), nil },
			TLS:       func() (tlsprofile.Settings, string, bool) { return tlsprofile.Settings{}, "", true },
			Namespace: "kms-health", OpenShift: &openShift, Registry: prometheus.NewRegistry(), Clock: clock.RealClock{}, Now: time.Now,
			Rollup: nodeRollup{}, Changed: func() {}, Event: func(_, _, reason, _ string) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, reason)
			},
		})
		c.Configure(config)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		time.Sleep(10 * time.Minute)
		cancel()
		running.Wait()
	})
	return events
}

const oneTarget = `targets:
- {name: api, resource: kubeapiservers, namespace: ns, podSelector: {app: api}}
`

func TestTargetWithNothingToDoIsLeftAlone(t *testing.T) {
	for name, configuration := range map[string]string{
		"KMS is off":      oneTarget,
		"it is removed":   oneTarget + "managementState: Removed\n",
		"it is unmanaged": oneTarget + "managementState: Unmanaged\n",
	} {
		all, events := runController(t, configuration, nil)
		count := func(prefix string) (n int) {
			for _, request := range all {
				if strings.HasPrefix(request, prefix) {
					n++
				}
			}
			return n
		}
		if n := count("apply kubeapiservers"); n > 1 {
			t.Errorf("%s: the condition was written %d times", name, n)
		}
		if n := count("list kubeapiservers"); n > 2 {
			t.Errorf("%s: the operator resource was listed %d times", name, n)
		}
		if len(events) > 3 {
			t.Errorf("%s: %d Events: %v", name, len(events), events[:4])
		}
	}
}

var withPlugin = strings.Replace(oneTarget, "podSelector", `plugins: [{keyID: "1", endpoint: "unix:///k.sock", role: Write}], podSelector`, 1)

func TestMissingPolicyIsReported(t *testing.T) {
	all, _ := runController(t, withPlugin, nil)
	if !slices.ContainsFunc(all, func(request string) bool {
		return strings.Contains(request, "ValidatingAdmissionPolicy kms-health-reporter does not exist: apply the manifests")
	}) {
		t.Errorf("%v", all)
	}
}

// Without them no roll-up is evaluated, and nothing else reports that.
func TestSourcesOfTheRollupThatAreForbiddenAreReported(t *testing.T) {
	for what, forbidden := range map[string]clienttesting.Action{
		"Nodes":                            clienttesting.NewListAction(source.Nodes, schema.GroupVersionKind{}, "", metav1.ListOptions{}),
		"the pods of namespace kms-health": clienttesting.NewListAction(source.Pods, schema.GroupVersionKind{}, "kms-health", metav1.ListOptions{}),
	} {
		for name, configuration := range map[string]string{"it delivers": withPlugin, "Unmanaged": "managementState: Unmanaged\n" + withPlugin, "the namespace does not exist": strings.Replace(withPlugin, "namespace: ns", "namespace: other", 1)} {
			r := &requests{}
			client := r.client(nil)
			client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetResource() == forbidden.GetResource() && a.GetNamespace() == forbidden.GetNamespace() {
					return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no right"))
				}
				return false, nil, nil
			})
			events := r.run(t, client, configuration)
			if !slices.ContainsFunc(r.all, func(request string) bool {
				return strings.Contains(request, "SourceUnreadable") && strings.Contains(request, what+" cannot be read")
			}) {
				t.Errorf("%s, %s: Events %q, requests %q", what, name, events, r.all)
			}
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

// The ClusterRole is what shows after a restart that something is left.
func TestConditionIsRemovedBeforeTheClusterRole(t *testing.T) {
	state := &State{Installation: "kms-health", Namespace: "ns", Resource: "kubeapiservers", Static: true, Live: set(1).Plugins}
	all, _ := runController(t, "targets: []\n", state)
	deleted := slices.Index(all, "delete clusterroles")
	if deleted < 0 {
		t.Fatalf("the ClusterRole was not deleted: %v", all)
	}
	for _, request := range all[deleted:] {
		if strings.HasPrefix(request, "apply kubeapiservers {") {
			t.Errorf("after it was deleted: %s", request)
		}
	}
}

// Another target does not wait for that of kube-apiserver for longer than 10 s after a
// start. What was recorded counts even if it is synced first.
func TestRecordedEncryptionOfConfigMapsCountsForEveryTarget(t *testing.T) {
	config, err := v1alpha1.DecodeOperator([]byte(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
image: reporter:1
targets:
- {name: api, resource: kubeapiservers, namespace: ns, podSelector: {app: api}}
- {name: other, resource: authentications, namespace: ns2, podSelector: {app: other}}
`))
	if err != nil {
		t.Fatal(err)
	}
	encrypted := false
	state := &State{Installation: "kms-health", Namespace: "ns", Resource: "kubeapiservers", ConfigMapsEncrypted: &encrypted}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := New(Options{Client: (&requests{}).client(state), Namespace: "kms-health", Registry: prometheus.NewRegistry(), Clock: clock.RealClock{}})
		c.cluster = source.NewCluster(ctx, source.ClusterOptions{Client: c.Client, Namespace: "kms-health", Ours: manifests.Ours, Policy: manifests.PolicyName, CheckPolicy: checkPolicy, WakeDelivery: func() {}, WakeRollup: func() {}})
		c.began = time.Now()
		time.Sleep(time.Minute)
		s := &Snapshot{}
		s.Config, s.Target = config, &config.Targets[1]
		c.observeConfigMaps(s, &life{target: *s.Target, configured: true}, nil)
		if s.ConfigMapsPending || s.ConfigMapsEncrypted == nil || *s.ConfigMapsEncrypted {
			t.Errorf("pending: %v, encrypted: %v", s.ConfigMapsPending, s.ConfigMapsEncrypted)
		}
		cancel()
		c.cluster.End()
		c.queue.ShutDown()
	})
}
