package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

// Starting is for how long an API server that has just started may deny requests that it
// will allow: its authorizer has not read the roles yet.
const Starting = 10 * time.Second

// Denied reports whether a request was denied, which lasts until a right is given.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// readable is a source of any type.
type readable interface {
	Known() bool
	Err() error
	FailedFor() time.Duration
}

// reads reports whether a source is known, and adds why it cannot be read, unless that may change
// in a moment. While a read of what is known fails for another reason than a denial, the last
// known state is used.
func (c *Controller) reads(s *Observed, what string, from readable) (known bool) {
	err, left := from.Err(), Starting-from.FailedFor()
	switch denied := Denied(err); {
	case err == nil, !denied && from.Known():
	case denied && left >= 0:
		c.queue.AddAfter(s.Target.Name, left+time.Second)
	default:
		s.SourceProblems = append(s.SourceProblems,
			Status{contract.SourceUnreadable, fmt.Sprintf("%s cannot be read: %v", what, err)})
	}
	return from.Known()
}

// needs reports whether all sources are known. Else nothing can be decided: s gets
// that as its Problem, without a message where it is transient.
func (c *Controller) needs(s *Observed, sources map[string]readable) (known bool) {
	known = true
	for _, what := range slices.Sorted(maps.Keys(sources)) {
		known = c.reads(s, what, sources[what]) && known
	}
	switch {
	case known:
	case len(s.SourceProblems) > 0:
		s.Problem = &s.SourceProblems[0]
	default:
		s.Problem = &Status{contract.Progressing, ""}
	}
	return known
}

// observe completes what is observed of a target.
func (c *Controller) observe(s *Observed, e *entry) {
	c.follow(s, e)
	config, t := c.config.Load(), e.sources
	s.Now, s.Configured, s.KubeletRoot = c.Now(), config.since, c.KubeletRoot
	s.Unmanaged = s.Config.ManagementState == v1alpha1.Unmanaged
	s.ReportsLeft = !c.Rollup.IsDone(s.Target.Name)
	s.Resource, s.Encrypted, s.OpenShift = t.Destination(), c.encrypted(), c.IsOpenShift()
	s.ResourceMissing = s.Resource == nil && t.Resource.Known()
	if s.OtherInstallation != "" {
		s.Problem = s.otherInstallation()
		return
	}
	_, recorded := c.cluster.Roles.Get("", contract.ReporterName(s.Target.Name))
	s.Unrecorded = c.cluster.Roles.Known() && !recorded && e.recorded.Version == "" && !s.Deleting && s.OtherInstallation == ""
	if !c.observeCluster(s) || !c.observeNamespace(s, t) {
		return
	}
	s.Resource = t.Destination() // again: it may be known only now
	if to := s.ReportsTo(); s.Resource == nil && !to.PerAPIServer() {
		s.SourceProblems = append(s.SourceProblems, Status{contract.ResourceMissing,
			fmt.Sprintf("%s does not exist, so nothing can be reported: create it, or remove the API server from the "+
				"configuration", to)})
	}
	c.reads(s, "the pods of namespace "+c.Namespace, c.cluster.OwnPods)
	c.reads(s, "Nodes", c.cluster.Nodes)
	c.observeOwn(s, t)
	if s.NamespaceMissing {
		s.Pods = []*corev1.Pod{}
		return
	}
	if c.reads(s, "the pods of namespace "+s.Target.Namespace, t.Pods) {
		s.Pods = t.Pods.All()
		slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	}
	if t.Deployment != nil {
		read, _ := t.Deployment.Get(s.Target.Namespace, s.deploymentName())
		s.Deployment, s.Injected, s.HasContainer = read.Deployment, read.Injected, read.HasContainer
	}
	if s.Target.Plugins == nil && !s.Deleting {
		c.observeSecrets(s, e)
	}
}

// observeNamespace adds whether the target's namespace exists, and reports whether that, and what
// else is always needed, is known.
func (c *Controller) observeNamespace(s *Observed, t *source.Target) (known bool) {
	namespace := "namespace " + s.Target.Namespace
	needed := map[string]readable{s.ReportsTo().String(): t.Resource, namespace: t.Namespace}
	read := t.Namespace.Known() // asked first: what is read before is not known to be missing
	_, exists := t.Namespace.Get("", s.Target.Namespace)
	s.NamespaceMissing = read && !exists
	if s.Deleting && s.State.Untouched && !read && apierrors.IsForbidden(t.Namespace.Err()) &&
		t.Namespace.FailedFor() > Starting {
		s.NamespaceMissing = true // to the operator: nothing was made in it, and no right to look comes
		delete(needed, namespace)
	}
	if t.Deployment != nil && !s.NamespaceMissing {
		needed["the Deployment of "+namespace] = t.Deployment
	}
	return c.needs(s, needed)
}

// follow starts and ends the sources that a target does not always have.
func (c *Controller) follow(s *Observed, e *entry) {
	t, state := s.Target, &s.State
	recorded := state.Namespace != ""
	e.sources.Follow(source.Needs{
		SecretRole: t.Plugins == nil && !(s.Deleting && state.Static) || recorded && !state.Static,
		Secret:     t.Plugins == nil && !s.Deleting && e.role.active,
		OwnObjects: t.Mode.InOwnersPods() || state.Mode.InOwnersPods() || state.InTarget,
		Deployment: s.deploymentName(),
	})
}

// deploymentName is that of the Deployment to patch, or patched earlier.
func (s *Observed) deploymentName() string {
	if s.State.Injected != nil {
		return s.State.Injected.Deployment
	}
	return s.Target.Deployment
}

// observeCluster adds what is the same for all targets, and reports whether it is known.
func (c *Controller) observeCluster(s *Observed) (known bool) {
	cluster := c.cluster
	needed := map[string]readable{
		"clusterroles": cluster.Roles, "clusterrolebindings": cluster.Bindings,
		"validatingadmissionpolicies": cluster.Policy, "validatingadmissionpolicybindings": cluster.PolicyBinding,
	}
	if cluster.Infrastructure != nil {
		needed["infrastructures.config.openshift.io"] = cluster.Infrastructure
	}
	if !c.needs(s, needed) {
		return false
	}
	if s.TLS, s.TLSProblem, known = c.TLS(); !known {
		s.Problem = &Status{contract.Progressing, ""}
		return false
	}
	s.ClusterServer = c.clusterServer()
	s.CA, s.CAProblem = c.readCA()
	s.PolicyProblem = cmp.Or(policyProblem("ValidatingAdmissionPolicy", cluster.Policy),
		policyProblem("ValidatingAdmissionPolicyBinding", cluster.PolicyBinding))
	if role, exists := cluster.Roles.Get("", contract.ReporterName(s.Target.Name)); exists {
		s.Owner = &objects.Owner{Name: role.GetName(), UID: string(role.GetUID())}
	}
	return true
}

// readCA reads the CA, or returns the last one that could be read, and the error.
func (c *Controller) readCA() (ca []byte, problem string) {
	read, err := c.CA()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return c.ca, fmt.Sprintf("the CA of the API server cannot be read: %v", err)
	}
	c.ca = read
	return read, ""
}

// observeOwn adds what exists of ours. A namespace that does not exist has no objects, and no
// rights to list them.
func (c *Controller) observeOwn(s *Observed, t *source.Target) {
	s.Unlisted = map[string]string{}
	add := func(kind string, from *source.Source[*unstructured.Unstructured]) {
		if from == nil {
			return
		}
		why := ""
		if err := from.Err(); err != nil {
			why = err.Error()
		}
		if !from.Known() {
			s.Unlisted[kind] = cmp.Or(s.Unlisted[kind], why)
		}
		for _, o := range from.All() {
			if o.GetLabels()[contract.APIServerLabel] == s.Target.Name {
				s.Own = append(s.Own, o)
			}
		}
	}
	add("ClusterRole", c.cluster.Roles)
	add("ClusterRoleBinding", c.cluster.Bindings)
	add("DaemonSet", c.cluster.DaemonSets)
	add("ConfigMap", c.cluster.ConfigMaps)
	add("ServiceAccount", c.cluster.ServiceAccount)
	add("Pod", c.cluster.OwnPods)
	if !s.NamespaceMissing {
		add("ConfigMap", t.ConfigMaps)
		add("ServiceAccount", t.ServiceAccount)
		add("Role", t.SecretRole)
	}
	slices.SortFunc(s.Own, func(a, b *unstructured.Unstructured) int { return strings.Compare(Key(a), Key(b)) })
}

// clusterServer is the URL by which nodes reach the API servers: of OpenShift's internal
// load balancer, else that of the operator itself, which is a Service.
func (c *Controller) clusterServer() string {
	if c.IsOpenShift() {
		if server, _ := c.cluster.Infrastructure.Get("", source.ClusterName); v1alpha1.ValidServer(server) {
			return server
		}
	}
	if objects.IsLocal(c.Server) || !v1alpha1.ValidServer(c.Server) {
		return ""
	}
	return c.Server
}

// kubeAPIServer is the name of the API server that stores ConfigMaps and operator resources.
var kubeAPIServer = contract.ResourceOf(contract.KubeAPIServers).APIServer.Name

// shareEncrypted records what an API server's encryption configs encrypt with KMS, for all
// targets.
func (c *Controller) shareEncrypted(e *entry, encrypted []schema.GroupResource) {
	c.mu.Lock()
	changed := !slices.Equal(e.encrypted, encrypted)
	e.encrypted = encrypted
	c.mu.Unlock()
	if changed && e.target.Name == kubeAPIServer {
		c.WakeAll()
	}
}

// encrypted is what kube-apiserver is known to encrypt with KMS.
func (c *Controller) encrypted() []schema.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.targets[kubeAPIServer]; e != nil {
		return e.encrypted
	}
	return nil
}

// IsOpenShift reports whether this is OpenShift, false while that is not known.
func (c *Controller) IsOpenShift() bool {
	if c.OpenShift != nil {
		return *c.OpenShift
	}
	c.mu.Lock()
	cluster := c.cluster
	c.mu.Unlock()
	if cluster == nil || !cluster.Infrastructure.Known() {
		return false
	}
	_, is := cluster.Infrastructure.Get("", source.ClusterName)
	return is
}
