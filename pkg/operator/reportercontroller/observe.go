package reportercontroller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// maxRequestShown bounds an invalid request in an Event, in bytes.
const maxRequestShown = 63

// reads reports whether a source has synced, and adds its problem.
func (c *Controller) reads(s *Snapshot, what string, from informers.Source) (known bool) {
	if err := from.Problem(); err != nil {
		s.add(contract.SourceUnreadable, fmt.Sprintf("%s cannot be read: %v", what, err))
	}
	return from.HasSynced()
}

// observe completes the snapshot of a target.
func (c *Controller) observe(s *Snapshot, e *serverState) {
	t, state, name := s.Target, &s.State, s.Target.Name
	readsSecrets := t.Plugins == nil && !s.Deleting
	e.sources.Follow(informers.Needs{
		SecretRole: readsSecrets || state.Role || t.Plugins == nil && state.Namespace == "",
		OwnObjects: t.Mode.InOwnersPods() || state.Mode.InOwnersPods() || state.InTarget,
		Deployment: s.deploymentName(),
	})
	s.Unmanaged = s.Config.ManagementState == v1alpha1.Unmanaged
	verdict := c.Health.Verdict(name)
	s.ReportsLeft = !verdict.Done
	if verdict.Silent != nil {
		state.Silent = verdict.Silent
	}
	s.Encrypted = *c.encrypted.Load()
	s.ResourceMissing = e.sources.Resource.HasSynced() && e.sources.Destination() == nil
	if s.OtherInstallation != "" {
		s.Resource, s.Undecided = e.sources.Destination(), true
		return
	}
	known := c.cluster.Roles.HasSynced()
	owner, exists := c.cluster.Roles.Get("", contract.ReporterName(name))
	if exists {
		s.OwnerUID = string(owner.GetUID())
	}
	s.Unrecorded = known && !exists && !s.Deleting
	known = c.needs(s, e.sources)
	s.Resource, s.OpenShift, s.ClusterServer = e.sources.Destination(), c.OpenShift, c.clusterServer(s.Target)
	c.readRequest(s, e)
	if to := s.Target.ReportsTo(); s.ResourceMissing && !to.PerAPIServer() {
		s.add(contract.ResourceMissing, fmt.Sprintf("%s does not exist, so nothing can be reported: create it, or "+
			"remove the API server from the configuration", to))
	}
	c.reads(s, "Nodes", c.cluster.Nodes)
	tls, why, tlsKnown := c.TLS()
	caKnown := c.readCA(s, e)
	if s.Undecided = !known || !tlsKnown || !caKnown; s.Undecided {
		if !tlsKnown {
			s.add(contract.SourceUnreadable, why) // empty: not for long
		}
		return
	}
	s.TLS = tls
	s.add(contract.TLSProfileInvalid, why)
	s.add(contract.PolicyMissing, cmp.Or(policyProblem("ValidatingAdmissionPolicy", c.cluster.Policy),
		policyProblem("ValidatingAdmissionPolicyBinding", c.cluster.PolicyBinding)))
	c.observeObjects(s, e.sources)
	s.Failures = c.cluster.LastFailures()
	c.observeAges(s, e)
	if readsSecrets && !s.NamespaceMissing {
		c.observeSecrets(s, e)
	} else {
		e.sources.FollowSecrets()
	}
}

// readRequest adds the round trip that the operator resource requests. An invalid request is ignored, with an Event
// for each new text.
func (c *Controller) readRequest(s *Snapshot, e *serverState) {
	text := ""
	if s.Resource != nil {
		text = s.Resource.Requested
	}
	before := e.requested
	switch e.requested = text; {
	case contract.ValidRequest(text):
		s.Requested = text
	case text != "" && text != before:
		c.Event(s.Target.Name, corev1.EventTypeWarning, contract.EventRequestInvalid, fmt.Sprintf("the annotation %s "+
			"of %s is %q, not 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends: ignored",
			contract.ProbeRequestedAnnotation, s.Target.ReportsTo(), contract.Cut(text, maxRequestShown)))
	}
}

// needs reports whether every required informer has synced. ConfigMaps are not required: while they are encrypted, and
// the plugin is unhealthy, they cannot be listed.
func (c *Controller) needs(s *Snapshot, t *informers.Target) (known bool) {
	known = true
	need := func(what string, from informers.Source, needed bool) {
		known = (!needed || c.reads(s, what, from)) && known
	}
	cluster, inOwn, namespace := c.cluster, " of namespace "+c.Namespace, "namespace "+s.Target.Namespace
	need("clusterroles", cluster.Roles, true)
	need("clusterrolebindings", cluster.Bindings, true)
	need("validatingadmissionpolicies", cluster.Policy, true)
	need("validatingadmissionpolicybindings", cluster.PolicyBinding, true)
	need("the pods"+inOwn, cluster.OwnPods, true)
	need("the DaemonSets"+inOwn, cluster.DaemonSets, true)
	need("the ServiceAccounts"+inOwn, cluster.ServiceAccount, true)
	need("infrastructures.config.openshift.io", cluster.Infrastructure, cluster.Infrastructure != nil)
	need(s.Target.ReportsTo().String(), t.Resource, true)
	read := t.Namespace.HasSynced() // before Get: an object missing from an unsynced cache may exist
	_, exists := t.Namespace.Get("", s.Target.Namespace)
	s.NamespaceMissing = read && !exists
	untouched := !s.State.Role && !s.State.InTarget
	if s.Deleting && untouched && !read && apierrors.IsForbidden(t.Namespace.Problem()) {
		s.NamespaceMissing = true // the operator created nothing there, and will not get a right to look
	}
	if !s.NamespaceMissing {
		need(namespace, t.Namespace, true)
		need("the pods of "+namespace, t.Pods, !s.Deleting)
		need("the Deployment of "+namespace, t.Deployment, t.Deployment != nil)
		need("the ServiceAccount of "+namespace, t.ServiceAccount, t.ServiceAccount != nil)
		need("the Role of "+namespace, t.SecretRole, t.SecretRole != nil)
	}
	return known
}

// deploymentName is the name of the Deployment that was patched earlier, else of the one to patch.
func (s *Snapshot) deploymentName() string {
	if s.State.Injected != nil {
		return s.State.Injected.Deployment
	}
	return s.Target.Deployment
}

// readCA adds the API server's CA, as it was last read, and reports whether it ever was.
func (c *Controller) readCA(s *Snapshot, e *serverState) (known bool) {
	ca, err := c.CA()
	if err == nil {
		e.ca = ca
	} else {
		s.add(contract.SourceUnreadable, fmt.Sprintf("the CA of the API server cannot be read: %v", err))
	}
	s.CA = e.ca
	return err == nil || len(e.ca) > 0
}

// observeObjects adds the API server's pods and Deployment, and the operator's existing objects. In a namespace that
// does not exist there are none, and no rights to list them.
func (c *Controller) observeObjects(s *Snapshot, t *informers.Target) {
	own := []*informers.Informer[informers.Managed]{c.cluster.Roles, c.cluster.Bindings, c.cluster.DaemonSets,
		c.cluster.ConfigMaps, c.cluster.ServiceAccount, c.cluster.OwnPods}
	if !s.NamespaceMissing {
		own = append(own, t.ConfigMaps, t.ServiceAccount, t.SecretRole)
		s.Pods = t.Pods.List()
		slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		if t.Deployment != nil {
			s.Deployment, _ = t.Deployment.Get(s.Target.Namespace, s.deploymentName())
		}
	}
	for _, from := range own {
		if from == nil {
			continue
		}
		if err := from.Err(); err != nil && !from.HasSynced() {
			s.Unlisted = &delivery.Status{Reason: contract.SourceUnreadable,
				Message: fmt.Sprintf("the ConfigMaps that are left cannot be listed: %v", err)}
		} else if !from.HasSynced() && s.Unlisted == nil {
			s.Unlisted = &delivery.Status{Reason: contract.Removing, Message: ""} // transient: not synced yet
		}
		for _, o := range from.List() {
			if o.APIServer == s.Target.Name {
				s.Own = append(s.Own, o.Unstructured)
			}
		}
	}
	slices.SortFunc(s.Own, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(ssa.Describe(a), ssa.Describe(b))
	})
}

// clusterServer returns a URL by which reporters reach any API server; empty if none is known. On OpenShift, for
// reporters that otherwise use their node's own API server, it is the internal load balancer. Else it is the
// operator's own server, by default the address of a Service, which needs no DNS while CoreDNS does not run.
func (c *Controller) clusterServer(of *v1alpha1.APIServer) string {
	if c.OpenShift && objects.IsLocal(of.Connection.Server) {
		if server, _ := c.cluster.Infrastructure.Get("", informers.ClusterName); v1alpha1.ValidServer(server) {
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
