package operator

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/operator/watch"
)

var (
	podResource            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secretResource         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMapResource      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	serviceAccountResource = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	namespaceResource      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	daemonSetResource      = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	deploymentResource     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	roleResource           = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	clusterRoleResource    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindingResource        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	policyResource         = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	policyBindingResource  = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
	apiServerResource      = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "apiservers"}
	infrastructureResource = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}
)

// ours selects what the operator made for targets.
const ours = render.ManagedBy + "=" + render.Manager + "," + render.TargetLabel

// whole keeps all of an object but its history.
func whole(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetManagedFields(nil)
	return o
}

// cluster is what is known of the whole cluster.
type cluster struct {
	known     bool
	openShift bool
	tls       tlsprofile.Settings
	ca        []byte

	roles, bindings         *watch.Source[*unstructured.Unstructured]
	policies, policyBinding *watch.Source[*unstructured.Unstructured]
	own                     map[string]*watch.Source[*unstructured.Unstructured] // in the operator's namespace, by kind
}

type profile struct{ spec *configv1.TLSSecurityProfile }

func (o *Operator) observeCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{}
	selectOurs := func(r schema.GroupVersionResource, namespace string) *watch.Source[*unstructured.Unstructured] {
		return follow(ctx, o, watch.Selection{Resource: r, Namespace: namespace, Labels: ours}, whole, o.Wake)
	}
	c.roles, c.bindings = selectOurs(clusterRoleResource, ""), selectOurs(bindingResource, "")
	c.own = map[string]*watch.Source[*unstructured.Unstructured]{
		"Pod":            selectOurs(podResource, o.Namespace),
		"DaemonSet":      selectOurs(daemonSetResource, o.Namespace),
		"ConfigMap":      selectOurs(configMapResource, o.Namespace),
		"ServiceAccount": selectOurs(serviceAccountResource, o.Namespace),
	}
	byLabel := render.ManagedBy + "=" + render.Manager
	c.policies = follow(ctx, o, watch.Selection{Resource: policyResource, Labels: byLabel}, whole, o.Wake)
	c.policyBinding = follow(ctx, o, watch.Selection{Resource: policyBindingResource, Labels: byLabel}, whole, o.Wake)

	c.known = c.roles.Known() && c.bindings.Known() && c.policies.Known() && c.policyBinding.Known()
	var spec profile
	if o.OpenShift == nil || *o.OpenShift {
		apiServer := follow(ctx, o, watch.Selection{Resource: apiServerResource, Name: "cluster"}, readProfile, o.Wake)
		infrastructure := follow(ctx, o, watch.Selection{Resource: infrastructureResource, Name: "cluster"}, func(*unstructured.Unstructured) struct{} { return struct{}{} }, o.Wake)
		c.known = c.known && apiServer.Known() && infrastructure.Known()
		_, c.openShift = infrastructure.Get("", "cluster")
		spec, _ = apiServer.Get("", "cluster")
	}
	if !c.known {
		return c, nil
	}
	if o.OpenShift != nil {
		c.openShift = *o.OpenShift
	}
	settings, err := tlsprofile.Of(spec.spec)
	switch {
	case err != nil && o.tls == nil:
		return nil, err
	case err != nil:
		o.problem("tls", err.Error()+"; the last good profile stays in force")
	default:
		o.problem("tls", "")
		if !slices.Equal(settings.LeftOut, o.leftOut) {
			o.leftOut = settings.LeftOut
			klog.V(1).InfoS("Left out of the TLS profile", "suites", settings.LeftOut)
		}
		o.tls = &settings
		o.serving.Store(&settings)
	}
	c.tls = *o.tls
	c.ca, err = o.CA()
	return c, err
}

func readProfile(o *unstructured.Unstructured) profile {
	a := &configv1.APIServer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, a); err != nil {
		return profile{}
	}
	return profile{a.Spec.TLSSecurityProfile}
}

// secretRead is an encryption config as it was read. Nothing else of the Secret
// is kept.
type secretRead struct {
	config encryption.Config
	err    string
}

func readSecret(t *v1alpha1.Target) func(*unstructured.Unstructured) secretRead {
	return func(o *unstructured.Unstructured) secretRead {
		encoded, found, _ := unstructured.NestedString(o.Object, "data", t.EncryptionConfig.Key)
		if !found {
			return secretRead{err: "it has no key " + t.EncryptionConfig.Key}
		}
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return secretRead{err: "its data is not base64"}
		}
		config, err := encryption.Parse(data, t.EncryptionConfig.KeyIDs)
		if err != nil {
			return secretRead{err: err.Error()}
		}
		return secretRead{config: config}
	}
}

// observe gathers what there is of one target. ok is false while a source that
// everything stands on has not told yet.
func (o *Operator) observe(ctx context.Context, c *cluster, t *v1alpha1.Target, config *v1alpha1.OperatorConfiguration, state target.State, going bool) (w *target.World, ok bool) {
	w = &target.World{
		Now: o.Clock.Now(), Going: going, State: state, KubeletRoot: o.KubeletRoot, OwnKnown: map[string]bool{},
	}
	w.Config, w.Target, w.Namespace, w.OpenShift, w.TLS, w.CA = config, t, o.Namespace, c.openShift, c.tls, c.ca
	if role, found := c.roles.Get("", render.Name(t.Name)); found {
		w.Owner = &render.Owner{Name: role.GetName(), UID: string(role.GetUID())}
	}

	resource := follow(ctx, o, watch.Selection{Resource: target.ResourceOf(t.Resource), Name: "cluster"}, target.ReadResource, o.wakeOnceAndForReports())
	if r, found := resource.Get("", "cluster"); found {
		w.Resource = &r
	}

	kinds := maps.Clone(c.own)
	kinds["ClusterRole"], kinds["ClusterRoleBinding"] = c.roles, c.bindings
	addOwn(w, kinds)
	namespace := follow(ctx, o, watch.Selection{Resource: namespaceResource, Name: t.Namespace}, func(*unstructured.Unstructured) struct{} { return struct{}{} }, o.Wake)
	if !namespace.Known() || !resource.Known() {
		return w, false
	}
	if _, exists := namespace.Get("", t.Namespace); !exists { // and no right in it either
		w.NamespaceMissing, w.Pods = true, []*corev1.Pod{}
		w.OwnKnown["Role"] = true
		return w, true
	}
	pods := follow(ctx, o, watch.Selection{Resource: podResource, Namespace: t.Namespace, Labels: labels.SelectorFromSet(t.PodSelector).String()}, readPod, o.Wake)
	if pods.Known() {
		w.Pods = slices.DeleteFunc(pods.All(), func(p *corev1.Pod) bool { return p == nil })
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	} else if err := pods.Err(); err != nil {
		w.Trouble = fmt.Sprintf("the pods of namespace %s cannot be listed: %v", t.Namespace, err)
	}
	if t.Plugins == nil && !(going && state.Static) {
		addOwn(w, map[string]*watch.Source[*unstructured.Unstructured]{
			"Role": follow(ctx, o, watch.Selection{Resource: roleResource, Namespace: t.Namespace, Name: render.SecretRoleName(t.Name)}, whole, o.Wake),
		})
	} else {
		w.OwnKnown["Role"] = true
	}
	if inOwnersPods(t.Delivery) || inOwnersPods(state.Delivery) || state.InTarget {
		addOwn(w, map[string]*watch.Source[*unstructured.Unstructured]{
			"ConfigMap":      follow(ctx, o, watch.Selection{Resource: configMapResource, Namespace: t.Namespace, Labels: ours}, whole, o.Wake),
			"ServiceAccount": follow(ctx, o, watch.Selection{Resource: serviceAccountResource, Namespace: t.Namespace, Name: render.Name(t.Name)}, whole, o.Wake),
		})
	}
	if name := deploymentOf(t, state); name != "" {
		deployments := follow(ctx, o, watch.Selection{Resource: deploymentResource, Namespace: t.Namespace, Name: name}, readDeployment, o.Wake)
		if !deployments.Known() {
			return w, false
		}
		read, _ := deployments.Get(t.Namespace, name)
		w.Deployment, w.Injected = read.deployment, read.injected
	}
	if t.Plugins == nil && !going {
		w.Encryption = o.observeSecrets(ctx, w)
	}
	return w, true
}

// addOwn adds what is there of ours for a target.
func addOwn(w *target.World, sources map[string]*watch.Source[*unstructured.Unstructured]) {
	for kind, source := range sources {
		known, before := w.OwnKnown[kind]
		w.OwnKnown[kind] = source.Known() && (known || !before)
		for _, o := range source.All() {
			if o.GetLabels()[render.TargetLabel] == w.Target.Name {
				w.Own = append(w.Own, o)
			}
		}
	}
	slices.SortFunc(w.Own, func(a, b *unstructured.Unstructured) int { return strings.Compare(apply.Key(a), apply.Key(b)) })
}

func inOwnersPods(d v1alpha1.Delivery) bool {
	return d == v1alpha1.DeliveryDeployment || d == v1alpha1.DeliveryExternal
}

func deploymentOf(t *v1alpha1.Target, state target.State) string {
	if state.Injected != nil {
		return state.Injected.Deployment
	}
	return t.Deployment
}

// settled is how long the API server's authorizer may take to know of a role.
const settled = 500 * time.Millisecond

// observeSecrets reads the encryption configs in use, as far as the role by which
// the operator reads them has been in force for a moment.
func (o *Operator) observeSecrets(ctx context.Context, w *target.World) *target.Encryption {
	t := w.Target
	var role *unstructured.Unstructured
	for _, own := range w.Own {
		if own.GetKind() == "Role" && own.GetName() == render.SecretRoleName(t.Name) && own.GetNamespace() == t.Namespace {
			role = own
		}
	}
	if role == nil {
		return nil
	}
	inForce := o.settledFor(role)
	if _, ok := o.liveSeen[role.GetNamespace()+"/"+role.GetName()]; !ok && !inForce {
		return nil
	}
	o.liveSeen[role.GetNamespace()+"/"+role.GetName()] = true
	live := follow(ctx, o, watch.Selection{Resource: secretResource, Namespace: t.Namespace, Name: t.EncryptionConfig.Secret}, readSecret(t), o.Wake, t.EncryptionConfig)
	if !live.Known() {
		if err := live.Err(); err != nil {
			w.Trouble = fmt.Sprintf("Secret %s/%s cannot be read: %v", t.Namespace, t.EncryptionConfig.Secret, err)
		}
		return nil
	}
	e := &target.Encryption{Revisions: map[string]encryption.Config{}, Pending: map[string]bool{}}
	read, _ := live.Get(t.Namespace, t.EncryptionConfig.Secret)
	e.Live = read.config
	if read.err != "" {
		e.Problem = "Secret " + t.Namespace + "/" + t.EncryptionConfig.Secret + ": " + read.err
	}
	o.tellIgnored(t.Name, read.config.Ignored)
	allowed := allowedNames(role)
	for _, revision := range w.Revisions() {
		name := t.EncryptionConfig.Secret + "-" + revision
		if _, asked := o.revisions[t.Namespace+"/"+name]; !asked && (!allowed[name] || !inForce) {
			e.Pending[revision] = true
			continue
		}
		if config, ok := o.revision(ctx, t, name); ok {
			e.Revisions[revision] = config
		}
	}
	return e
}

// tellIgnored tells which providers are not probed, and why, when that changes.
func (o *Operator) tellIgnored(name string, ignored []encryption.Ignored) {
	const most = 5
	var texts []string
	for _, i := range ignored[:min(len(ignored), most)] {
		texts = append(texts, fmt.Sprintf("provider %s of %s: %s", i.Provider, i.Resource, i.Reason))
	}
	if more := len(ignored) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(texts, "; ")
	if o.ignored[name] != text {
		o.ignored[name] = text
		if text != "" {
			o.executor.Event(name, "ProvidersIgnored", text)
		}
	}
}

func allowedNames(role *unstructured.Unstructured) map[string]bool {
	all := map[string]bool{}
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
		for _, name := range names {
			all[name] = true
		}
	}
	return all
}

// settledFor says whether a role has been seen as it is for a moment, and asks
// for a look when it will have been.
func (o *Operator) settledFor(role *unstructured.Unstructured) bool {
	key := role.GetNamespace() + "/" + role.GetName() + "@" + role.GetResourceVersion()
	seen, ok := o.roleSeen[key]
	if !ok {
		seen = o.Clock.Now()
		maps.DeleteFunc(o.roleSeen, func(k string, _ time.Time) bool { return sameRole(k, key) })
		o.roleSeen[key] = seen
	}
	if left := settled - o.Clock.Since(seen); left > 0 {
		o.lookAgain(left)
		return false
	}
	return true
}

// revision is what a revisioned Secret says. Its content never changes, so it is
// read once.
func (o *Operator) revision(ctx context.Context, t *v1alpha1.Target, name string) (encryption.Config, bool) {
	key := t.Namespace + "/" + name
	if r, ok := o.revisions[key]; ok && (r.ok || o.Clock.Since(r.at) < revisionRetry) {
		return r.config, r.ok
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := o.Client.Resource(secretResource).Namespace(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	r := revisionRead{at: o.Clock.Now()}
	if err == nil {
		read := readSecret(t)(secret)
		r.config, r.ok = read.config, read.err == ""
		if !r.ok {
			klog.InfoS("An encryption config is not understood, so the live one stands for it", "secret", key, "reason", read.err)
		}
	} else {
		klog.V(2).InfoS("An encryption config could not be read, so what is known stands for it", "secret", key, "err", err)
		o.lookAgain(revisionRetry)
	}
	o.revisions[key] = r
	return r.config, r.ok
}

const (
	revisionRetry  = 10 * time.Second
	requestTimeout = 30 * time.Second
)

type revisionRead struct {
	config encryption.Config
	ok     bool
	at     time.Time
}

func readPod(o *unstructured.Unstructured) *corev1.Pod {
	o.SetManagedFields(nil)
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
		return nil
	}
	return pod
}

// deploymentRead is a Deployment, and whether fields of it are ours.
type deploymentRead struct {
	deployment *appsv1.Deployment
	injected   bool
}

func readDeployment(o *unstructured.Unstructured) deploymentRead {
	injected := slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == render.Manager })
	o.SetManagedFields(nil)
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
		return deploymentRead{}
	}
	return deploymentRead{d, injected}
}

// sameRole says whether two keys are of one role.
func sameRole(a, b string) bool {
	a, _, _ = strings.Cut(a, "@")
	b, _, _ = strings.Cut(b, "@")
	return a == b
}
