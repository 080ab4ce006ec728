package source

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/kms-health/kms-health/pkg/operator/retry"
)

// ClusterName is the name of the one object of each of OpenShift's configuration
// resources.
const ClusterName = "cluster"

// Cluster has the sources of the whole cluster.
type Cluster struct {
	// Roles and Bindings are the ClusterRoles and ClusterRoleBindings made for targets.
	Roles, Bindings *Source[*unstructured.Unstructured]
	// Policy and PolicyBinding bound what reporters may write. Of each, only why it is
	// not as it should be is kept, empty where it is.
	Policy, PolicyBinding *Source[string]
	// What was made for targets in the operator's own namespace.
	OwnPods, DaemonSets, ConfigMaps, ServiceAccount *Source[*unstructured.Unstructured]
	// Infrastructure exists on OpenShift, and has the URL of the API servers' internal load
	// balancer. Nil: this is known not to be OpenShift.
	Infrastructure *Source[string]

	client dynamic.Interface
	server *retry.OutageLog
	group  *group
	nodes  nodes
}

// ClusterOptions configure what a Cluster watches, and which controllers it wakes.
type ClusterOptions struct {
	Client    dynamic.Interface
	Namespace string // the operator's own
	Ours      string // selects what was made for targets
	Policy    string // the name of the reporters' policy, and of its binding
	// CheckPolicy returns why one of them is not as expected, once for each version.
	CheckPolicy func(*unstructured.Unstructured) string
	// OpenShift means that this is OpenShift, or may be.
	OpenShift bool
	// WakeDelivery and WakeRollup wake the controllers, for all targets.
	WakeDelivery, WakeRollup func()
}

// NewCluster starts the sources of a cluster. They run until ctx ends and End is
// called.
func NewCluster(ctx context.Context, o ClusterOptions) *Cluster {
	c := &Cluster{client: o.Client, server: retry.NewOutageLog("lists and watches"), group: newGroup(ctx)}
	objects := func(resource schema.GroupVersionResource, namespace, name, labels string) *Source[*unstructured.Unstructured] {
		s := New(o.Client, c.server, Selection{Resource: resource, Namespace: namespace, Name: name, Labels: labels}, whole,
			Wake[*unstructured.Unstructured]{Do: o.WakeDelivery})
		c.group.start(s)
		return s
	}
	c.Roles = objects(ClusterRoles, "", "", o.Ours)
	c.Bindings = objects(ClusterBindings, "", "", o.Ours)
	policy := func(resource schema.GroupVersionResource) *Source[string] {
		s := New(o.Client, c.server, Selection{Resource: resource, Name: o.Policy}, o.CheckPolicy, Wake[string]{Do: o.WakeDelivery})
		c.group.start(s)
		return s
	}
	c.Policy, c.PolicyBinding = policy(Policies), policy(PolicyBindings)
	c.DaemonSets = objects(DaemonSets, o.Namespace, "", o.Ours)
	c.ConfigMaps = objects(ConfigMaps, o.Namespace, "", o.Ours)
	c.ServiceAccount = objects(ServiceAccounts, o.Namespace, "", o.Ours)
	c.OwnPods = New(o.Client, c.server, Selection{Resource: Pods, Namespace: o.Namespace, Labels: o.Ours}, whole,
		Wake[*unstructured.Unstructured]{Do: func() { o.WakeDelivery(); o.WakeRollup() }})
	c.group.start(c.OwnPods)
	if o.OpenShift {
		c.Infrastructure = New(o.Client, c.server, Selection{Resource: Infrastructures, Name: ClusterName}, internalServer, Wake[string]{Do: o.WakeDelivery})
		c.group.start(c.Infrastructure)
	}
	unchanged := func(Node, Node) bool { return false } // the delivery needs no Node, but whether they can be read
	c.nodes = nodes{wakes: []Wake[Node]{{Do: o.WakeRollup}, {Do: o.WakeDelivery, If: unchanged}}, wanted: map[*Target]map[string]bool{}, byName: map[string]followed{}}
	return c
}

// NewAPIServer makes the source of the cluster's API server configuration, which
// exists on OpenShift.
func NewAPIServer(client dynamic.Interface, wake func()) *Source[*configv1.APIServer] {
	return New(client, nil, Selection{Resource: APIServers, Name: ClusterName}, typed[configv1.APIServer], Wake[*configv1.APIServer]{Do: wake})
}

// End ends the sources, and waits for them.
func (c *Cluster) End() { c.group.end() }
