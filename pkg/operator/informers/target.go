package informers

import (
	"context"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Target has the informers of one API server. An informer that is not needed now is nil.
type Target struct {
	Cluster                    *Cluster
	Resource                   *Informer[*operatorstatus.Status]
	Namespace                  *Informer[struct{}]
	Pods                       *Informer[*corev1.Pod]
	SecretRole                 managedInformer // the operator reads the encryption configs by it
	ConfigMaps, ServiceAccount managedInformer // in the target's namespace
	Deployment                 *Informer[*appsv1.Deployment]
	Secrets                    map[string]*Informer[encryptionconfig.Set] // with encryption configs, by name

	target    v1alpha1.APIServer
	reporters Key
	ctx       context.Context // of all informers
	// Stop ends the informers.
	Stop context.CancelFunc
}

// Needs are the informers that an API server does not always have.
type Needs struct {
	SecretRole bool
	OwnObjects bool // ConfigMaps and ServiceAccounts in the target's namespace
	Deployment string
}

// NewTarget starts the informers of a target. Their changes are enqueued in the cluster's queues.
func NewTarget(ctx context.Context, c *Cluster, t *v1alpha1.APIServer) *Target {
	reporters, health := Key{c.Reporters, t.Name}, Key{c.Health, t.Name}
	s := &Target{target: *t, reporters: reporters, Cluster: c, Secrets: map[string]*Informer[encryptionconfig.Set]{}}
	s.ctx, s.Stop = context.WithCancel(ctx)
	destination := t.ReportsTo()
	of := Selection{Resource: destination.GVR(), Name: destination.Name}
	s.Resource = New(c.Resources, of, operatorstatus.Read, health)
	s.Resource.handlers = append(s.Resource.handlers, handler[*operatorstatus.Status]{reporters, concernsDelivery})
	s.Resource.start(s.ctx)
	s.Namespace = New(c.Client, Selection{Resource: Namespaces, Name: t.Namespace}, exists, reporters).start(s.ctx)
	s.Pods = New(c.Client,
		Selection{Resource: Pods, Namespace: t.Namespace, Labels: labels.SelectorFromSet(t.PodSelector).String()},
		typed[corev1.Pod], reporters, health).start(s.ctx)
	return s
}

// Destination returns the object that has the reports; nil: it is not known, or does not exist.
func (s *Target) Destination() *operatorstatus.Status {
	status, _ := s.Resource.Get("", s.target.ReportsTo().Name)
	return status
}

// Same reports whether the informers fit a configuration of the API server.
func (s *Target) Same(t *v1alpha1.APIServer) bool {
	return s.target.Namespace == t.Namespace && s.target.Resource == t.Resource &&
		maps.Equal(s.target.PodSelector, t.PodSelector) && reflect.DeepEqual(s.target.EncryptionConfig, t.EncryptionConfig)
}

// Follow starts the informers that are needed, and ends the others.
func (s *Target) Follow(n Needs) {
	ours, name := s.selection(ConfigMaps, ""), s.target.Name
	ours.Labels = contract.Managed
	keep(s, &s.SecretRole, n.SecretRole, s.selection(Roles, objects.SecretRoleName(name)), readManaged)
	keep(s, &s.ConfigMaps, n.OwnObjects, ours, readManaged)
	keep(s, &s.ServiceAccount, n.OwnObjects, s.selection(ServiceAccounts, contract.ReporterName(name)), readManaged)
	keep(s, &s.Deployment, n.Deployment != "", s.selection(Deployments, n.Deployment), typed[appsv1.Deployment])
}

// FollowSecrets starts the informers of Secrets with encryption configs, and ends those of others.
func (s *Target) FollowSecrets(names ...string) {
	read := func(o *unstructured.Unstructured) encryptionconfig.Set {
		return encryptionconfig.Read(As[corev1.Secret](o), s.target.EncryptionConfig)
	}
	for _, name := range slices.Concat(names, slices.Collect(maps.Keys(s.Secrets))) {
		from := s.Secrets[name]
		if keep(s, &from, slices.Contains(names, name), s.selection(Secrets, name), read); from == nil {
			delete(s.Secrets, name)
		} else {
			s.Secrets[name] = from
		}
	}
}

func (s *Target) selection(resource schema.GroupVersionResource, name string) Selection {
	return Selection{Resource: resource, Namespace: s.target.Namespace, Name: name}
}

// keep starts an informer that is needed and does not exist, and ends one that is not needed or has another
// selection.
func keep[T any](
	s *Target, place **Informer[T], needed bool, selection Selection, convert func(*unstructured.Unstructured) T,
) {
	if *place != nil && (!needed || (*place).selection != selection) {
		(*place).end()
		*place = nil
	}
	if needed && *place == nil {
		*place = New(s.Cluster.Client, selection, convert, s.reporters).start(s.ctx)
	}
}

// concernsDelivery reports whether a change of an operator resource is more than new
// reports: a request, a condition, or the first report of a reporter.
func concernsDelivery(before, after *operatorstatus.Status) bool {
	if before.Requested != after.Requested || !maps.Equal(before.Conditions, after.Conditions) ||
		len(before.Reports) != len(after.Reports) {
		return true
	}
	return !slices.EqualFunc(before.Reports, after.Reports, func(a, b operatorstatus.Report) bool {
		return a.Node == b.Node && a.Form == b.Form && a.Reporter() == b.Reporter()
	})
}
