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

// readable is a source of any type.
type readable interface {
	Known() bool
	Err() error
	FailedFor() time.Duration
}

func cannotRead(what string, err error) Problem {
	return Problem{contract.SourceUnreadable, fmt.Sprintf("%s cannot be read: %v", what, err)}
}

// unreadable is the Problem of sources that are not known, nil if all are. Without a
// message it is transient.
func unreadable(sources map[string]readable) *Problem {
	waiting := false
	for _, what := range slices.Sorted(maps.Keys(sources)) {
		s := sources[what]
		if s.Known() {
			continue
		}
		waiting = true
		if err := s.Err(); err != nil {
			problem := cannotRead(what, err)
			return &problem
		}
	}
	if waiting {
		return &Problem{contract.Progressing, ""}
	}
	return nil
}

// Starting is for how long an API server that has just started may deny requests that it
// will allow: its authorizer has not read the roles yet.
const Starting = 10 * time.Second

// refused are the Problems of sources that were known, and that the operator may no
// longer read. While a read fails for another reason, the last known state is used.
func refused(sources map[string]readable) (all []Problem) {
	for _, what := range slices.Sorted(maps.Keys(sources)) {
		if err := sources[what].Err(); err != nil && sources[what].FailedFor() > Starting && Denied(err) {
			all = append(all, cannotRead(what, err))
		}
	}
	return all
}

// Denied reports whether a request was denied, which lasts until a right is given.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// observeRollup adds why the roll-up cannot read what it alone needs. An API server that is
// starting may deny it for a moment.
func (c *Controller) observeRollup(s *Snapshot) {
	for what, from := range map[string]readable{"the pods of namespace " + c.Namespace: c.cluster.OwnPods,
		"Nodes": c.cluster.Nodes} {
		err, failedFor := from.Err(), from.FailedFor()
		switch {
		case err == nil || from.Known() && !Denied(err):
		case failedFor <= Starting:
			c.queue.AddAfter(s.Target.Name, Starting-failedFor+time.Second)
		default:
			s.RollupProblems = append(s.RollupProblems, cannotRead(what, err))
		}
	}
}

// observe builds the Snapshot of a target.
func (c *Controller) observe(config *v1alpha1.OperatorConfiguration, l life, e *entry) *Snapshot {
	c.follow(l, e)
	s := &Snapshot{
		Now: c.Now(), Configured: c.configured(), Deleting: l.deleting, Superseded: l.superseded, State: l.state,
		Unmanaged: config.ManagementState == v1alpha1.Unmanaged, KubeletRoot: c.KubeletRoot, OwnKnown: map[string]bool{},
		OwnProblems: map[string]string{},
		ReportsLeft: !c.Rollup.IsDone(l.target.Name),
	}
	s.Config, s.Target, s.Namespace = config, &l.target, c.Namespace
	s.Resource, s.Encrypted, s.OpenShift = e.sources.Destination(), c.encrypted(), c.IsOpenShift()
	s.ResourceMissing = s.Resource == nil && e.sources.Resource.Known()
	if l.otherInstallation != "" {
		s.Superseded = true // that one writes the condition
		s.Problem = &Problem{contract.OtherInstallation, otherInstallationText(l.target.Name, l.otherInstallation)}
		return s
	}
	_, recorded := c.cluster.Roles.Get("", contract.ReporterName(l.target.Name))
	s.Unrecorded = !recorded && e.recorded.Version == "" && !s.Deleting && !s.Superseded
	if s.Problem = c.observeCluster(s); s.Problem != nil {
		return s
	}
	t := e.sources
	if s.Problem = s.observeNamespace(t); s.Problem != nil {
		return s
	}
	s.Resource = t.Destination() // again: it may be known only now
	if to := s.ReportsTo(); s.Resource == nil && !to.PerAPIServer() {
		s.RollupProblems = append(s.RollupProblems, Problem{contract.ResourceMissing,
			fmt.Sprintf("%s does not exist, so nothing can be reported: create it, or remove the API server from the "+
				"configuration", to)})
	}
	c.observeRollup(s)
	c.observeOwn(s, t)
	if s.NamespaceMissing {
		s.Pods = []*corev1.Pod{}
		return s
	}
	c.observePods(s, t)
	if t.Deployment != nil {
		read, _ := t.Deployment.Get(l.target.Namespace, deploymentOf(&l))
		s.Deployment, s.Injected, s.HasContainer = read.Deployment, read.Injected, read.HasContainer
	}
	if l.target.Plugins == nil && !l.deleting {
		c.observeSecrets(s, e)
	}
	return s
}

// observeNamespace adds whether the target's namespace exists, and returns why that, or what else
// is always needed, is not known.
func (s *Snapshot) observeNamespace(t *source.Target) *Problem {
	namespace := "namespace " + s.Target.Namespace
	needed := map[string]readable{s.ReportsTo().String(): t.Resource, namespace: t.Namespace}
	known := t.Namespace.Known() // asked first: what is read before is not known to be missing
	_, exists := t.Namespace.Get("", s.Target.Namespace)
	s.NamespaceMissing = known && !exists
	if s.Deleting && s.State.Untouched && !known && apierrors.IsForbidden(t.Namespace.Err()) &&
		t.Namespace.FailedFor() > Starting {
		s.NamespaceMissing = true // to the operator: nothing was made in it, and no right to look comes
		delete(needed, namespace)
	}
	if t.Deployment != nil && !s.NamespaceMissing {
		needed["the Deployment of "+namespace] = t.Deployment
	}
	if problem := unreadable(needed); problem != nil {
		return problem
	}
	s.SourceProblems = refused(needed)
	return nil
}

// follow starts and ends the sources that a target does not always have.
func (c *Controller) follow(l life, e *entry) {
	t, state := &l.target, l.state
	recorded := state.Namespace != ""
	e.sources.Follow(source.Needs{
		SecretRole: t.Plugins == nil && !(l.deleting && state.Static) || recorded && !state.Static,
		Secret:     t.Plugins == nil && !l.deleting && e.role.active,
		OwnObjects: t.Mode.InOwnersPods() || state.Mode.InOwnersPods() || state.InTarget,
		Deployment: deploymentOf(&l),
	})
}

func deploymentOf(l *life) string {
	switch {
	case l.state.Injected != nil:
		return l.state.Injected.Deployment
	case l.state.Deployment != "":
		return l.state.Deployment
	default:
		return l.target.Deployment
	}
}

// observeCluster adds what is the same for all targets.
func (c *Controller) observeCluster(s *Snapshot) *Problem {
	cluster := c.cluster
	needed := map[string]readable{
		"clusterroles": cluster.Roles, "clusterrolebindings": cluster.Bindings,
		"validatingadmissionpolicies": cluster.Policy, "validatingadmissionpolicybindings": cluster.PolicyBinding,
	}
	if cluster.Infrastructure != nil {
		needed["infrastructures.config.openshift.io"] = cluster.Infrastructure
	}
	if problem := unreadable(needed); problem != nil {
		return problem
	}
	settings, problem, known := c.TLS()
	if !known {
		return &Problem{contract.Progressing, ""}
	}
	s.TLS, s.TLSProblem = settings, problem
	s.ClusterServer = c.clusterServer()
	s.CA, s.CAProblem = c.readCA()
	s.PolicyProblem = cmp.Or(policyProblem("ValidatingAdmissionPolicy", cluster.Policy),
		policyProblem("ValidatingAdmissionPolicyBinding", cluster.PolicyBinding))
	if role, exists := cluster.Roles.Get("", contract.ReporterName(s.Target.Name)); exists {
		s.Owner = &objects.Owner{Name: role.GetName(), UID: string(role.GetUID())}
	}
	return nil
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

// observeOwn adds what exists of ours.
func (c *Controller) observeOwn(s *Snapshot, t *source.Target) {
	add := func(kind string, from *source.Source[*unstructured.Unstructured]) {
		if from == nil {
			return
		}
		known, before := s.OwnKnown[kind]
		s.OwnKnown[kind] = from.Known() && (known || !before)
		if err := from.Err(); err != nil && !from.Known() {
			s.OwnProblems[kind] = err.Error()
		}
		s.Own = append(s.Own, from.All()...)
	}
	add("ClusterRole", c.cluster.Roles)
	add("ClusterRoleBinding", c.cluster.Bindings)
	add("DaemonSet", c.cluster.DaemonSets)
	add("ConfigMap", c.cluster.ConfigMaps)
	add("ServiceAccount", c.cluster.ServiceAccount)
	add("Pod", c.cluster.OwnPods)
	if !s.NamespaceMissing { // a namespace that does not exist has no objects, and no rights to list them
		add("ConfigMap", t.ConfigMaps)
		add("ServiceAccount", t.ServiceAccount)
		add("Role", t.SecretRole)
	}
	if t.SecretRole == nil || s.NamespaceMissing {
		s.OwnKnown["Role"] = true
	}
	s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool {
		return o.GetLabels()[contract.APIServerLabel] != s.Target.Name
	})
	slices.SortFunc(s.Own, func(a, b *unstructured.Unstructured) int { return strings.Compare(Key(a), Key(b)) })
}

func (c *Controller) observePods(s *Snapshot, t *source.Target) {
	if known := s.readable("the pods of namespace "+s.Target.Namespace, t.Pods); !known {
		return
	}
	s.Pods = t.AllPods()
	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

// readable reports whether a source is known, and adds why it cannot be read, or no longer.
func (s *Snapshot) readable(what string, from readable) (known bool) {
	if err := from.Err(); err != nil && !from.Known() {
		s.SourceProblems = append(s.SourceProblems, cannotRead(what, err))
	}
	if from.Known() {
		s.SourceProblems = append(s.SourceProblems, refused(map[string]readable{what: from})...)
	}
	return from.Known()
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

// shareEncrypted records what an API server's encryption configs encrypt with KMS, for the
// Snapshots of all: kube-apiserver stores ConfigMaps and operator resources.
func (c *Controller) shareEncrypted(e *entry, encrypted []schema.GroupResource) {
	if e.target.Name != contract.ResourceOf(contract.KubeAPIServers).APIServer.Name {
		return
	}
	c.mu.Lock()
	changed := !slices.Equal(e.encrypted, encrypted)
	e.encrypted = encrypted
	c.mu.Unlock()
	if changed {
		c.WakeAll()
	}
}

// encrypted is what kube-apiserver is known to encrypt with KMS.
func (c *Controller) encrypted() []schema.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.targets {
		if len(e.encrypted) > 0 {
			return e.encrypted
		}
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
