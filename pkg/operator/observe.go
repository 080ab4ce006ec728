package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/operator/watch"
	"github.com/kms-health/kms-health/pkg/rollup"
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
		return watch.Follow(ctx, o.view, watch.Selection{Resource: r, Namespace: namespace, Labels: render.Ours}, watch.Whole, nil)
	}
	c.roles, c.bindings = selectOurs(clusterRoleResource, ""), selectOurs(bindingResource, "")
	c.own = map[string]*watch.Source[*unstructured.Unstructured]{
		"Pod":            selectOurs(podResource, o.Namespace),
		"DaemonSet":      selectOurs(daemonSetResource, o.Namespace),
		"ConfigMap":      selectOurs(configMapResource, o.Namespace),
		"ServiceAccount": selectOurs(serviceAccountResource, o.Namespace),
	}
	byLabel := render.ManagedBy + "=" + render.Manager
	c.policies = watch.Follow(ctx, o.view, watch.Selection{Resource: policyResource, Labels: byLabel}, watch.Whole, nil)
	c.policyBinding = watch.Follow(ctx, o.view, watch.Selection{Resource: policyBindingResource, Labels: byLabel}, watch.Whole, nil)

	c.known = c.roles.Known() && c.bindings.Known() && c.policies.Known() && c.policyBinding.Known()
	var spec profile
	if o.OpenShift == nil || *o.OpenShift {
		apiServer := watch.Follow(ctx, o.view, watch.Selection{Resource: apiServerResource, Name: "cluster"}, readProfile, nil)
		infrastructure := watch.Follow(ctx, o.view, watch.Selection{Resource: infrastructureResource, Name: "cluster"}, func(*unstructured.Unstructured) struct{} { return struct{}{} }, nil)
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

	resource := watch.Follow(ctx, o.view, watch.Selection{Resource: target.ResourceOf(t.Resource), Name: "cluster"}, rollup.Read, o.wakeOnceAndForReports())
	w.Resource, _ = resource.Get("", "cluster")

	defer func() {
		slices.SortFunc(w.Own, func(a, b *unstructured.Unstructured) int { return strings.Compare(apply.Key(a), apply.Key(b)) })
	}()
	kinds := maps.Clone(c.own)
	kinds["ClusterRole"], kinds["ClusterRoleBinding"] = c.roles, c.bindings
	addOwn(w, kinds)
	namespace := watch.Follow(ctx, o.view, watch.Selection{Resource: namespaceResource, Name: t.Namespace}, func(*unstructured.Unstructured) struct{} { return struct{}{} }, nil)
	if !namespace.Known() || !resource.Known() {
		return w, false
	}
	if _, exists := namespace.Get("", t.Namespace); !exists { // and no right in it either
		w.NamespaceMissing, w.Pods = true, []*corev1.Pod{}
		w.OwnKnown["Role"] = true
		return w, true
	}
	pods := watch.Follow(ctx, o.view, watch.Selection{Resource: podResource, Namespace: t.Namespace, Labels: labels.SelectorFromSet(t.PodSelector).String()}, target.ReadPod, nil)
	if pods.Known() {
		w.Pods = slices.DeleteFunc(pods.All(), func(p *corev1.Pod) bool { return p == nil })
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	} else if err := pods.Err(); err != nil {
		w.Trouble = fmt.Sprintf("the pods of namespace %s cannot be listed: %v", t.Namespace, err)
	}
	var secretRole *unstructured.Unstructured
	if t.Plugins == nil && !(going && state.Static) {
		roles := watch.Follow(ctx, o.view, watch.Selection{Resource: roleResource, Namespace: t.Namespace, Name: render.SecretRoleName(t.Name)}, watch.Whole, nil)
		addOwn(w, map[string]*watch.Source[*unstructured.Unstructured]{"Role": roles})
		secretRole, _ = roles.Get(t.Namespace, render.SecretRoleName(t.Name))
	} else {
		w.OwnKnown["Role"] = true
	}
	if t.Delivery.InOwnersPods() || state.Delivery.InOwnersPods() || state.InTarget {
		addOwn(w, map[string]*watch.Source[*unstructured.Unstructured]{
			"ConfigMap":      watch.Follow(ctx, o.view, watch.Selection{Resource: configMapResource, Namespace: t.Namespace, Labels: render.Ours}, watch.Whole, nil),
			"ServiceAccount": watch.Follow(ctx, o.view, watch.Selection{Resource: serviceAccountResource, Namespace: t.Namespace, Name: render.Name(t.Name)}, watch.Whole, nil),
		})
	}
	if name := deploymentOf(t, state); name != "" {
		deployments := watch.Follow(ctx, o.view, watch.Selection{Resource: deploymentResource, Namespace: t.Namespace, Name: name}, readDeployment, nil)
		if !deployments.Known() {
			return w, false
		}
		read, _ := deployments.Get(t.Namespace, name)
		w.Deployment, w.Injected = read.deployment, read.injected
	}
	if t.Plugins == nil && !going {
		w.Encryption = o.observeSecrets(ctx, w, secretRole)
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
}

func deploymentOf(t *v1alpha1.Target, state target.State) string {
	if state.Injected != nil {
		return state.Injected.Deployment
	}
	return t.Deployment
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
