package source

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/serverclock"
)

// Cluster reads from an API server.
type Cluster struct {
	client  dynamic.Interface // requests end after timeout
	watches dynamic.Interface // without a timeout
	http    *http.Client
	metrics string // the URL of the API server's metrics
	host    string
	timeout time.Duration
	clock   clock.WithTicker
	server  *serverclock.Clock
}

// NewCluster does not connect yet. timeout bounds each request; a watch, until it
// begins.
func NewCluster(config *rest.Config, timeout time.Duration, c clock.WithTicker) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0                 // it would end watches, too
	config.QPS, config.Burst = 50, 300 // as kubectl: a few requests are not slowed down
	server := serverclock.New(c)
	config.Wrap(server.Wrap)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	bounded := *client
	bounded.Timeout = timeout
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{http: &bounded, metrics: url.JoinPath("/metrics").String(), host: config.Host, timeout: timeout, clock: c, server: server}
	if cluster.client, err = dynamic.NewForConfigAndClient(config, &bounded); err != nil {
		return nil, err
	}
	cluster.watches, err = dynamic.NewForConfigAndClient(config, client)
	return cluster, err
}

// Offset is how far the API server's clock is ahead of the local one; zero for a few
// seconds.
func (c *Cluster) Offset() time.Duration { return c.server.Offset() }

// Read gets the targets. Those that do not exist are skipped; each problem is of one or
// more targets that could not be read.
func (c *Cluster) Read(ctx context.Context, targets []string) (found []view.Target, problems []error) {
	objects := make([]*unstructured.Unstructured, len(targets))
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() {
			r := contract.ResourceNamed(target)
			objects[i], errs[i] = c.client.Resource(r.GVR()).Get(ctx, r.Name, metav1.GetOptions{})
		})
	}
	all.Wait()
	var kinds []string // of the problems
	same := map[string][]int{}
	for i, target := range targets {
		switch err := errs[i]; {
		case err == nil:
			found = append(found, view.Read(target, objects[i]))
		case apierrors.IsNotFound(err): // the resource and the object are optional
		default:
			kind := kindOf(err)
			if same[kind] == nil {
				kinds = append(kinds, kind)
			}
			same[kind] = append(same[kind], i)
		}
	}
	for _, kind := range kinds { // a problem of all targets is reported once
		var those []string
		for _, i := range same[kind] {
			those = append(those, targets[i])
		}
		problems = append(problems, c.explain(those, "get", errs[same[kind][0]]))
	}
	return found, problems
}

// KMSHealths are those of a cluster, by name. The problem is why they could not be read.
// others: the cluster has operator resources, see listKMSHealths.
func (c *Cluster) KMSHealths(ctx context.Context, others bool) (found []view.Target, problem *Problem) {
	found, err := c.listKMSHealths(ctx, others)
	if err != nil {
		return nil, c.explain([]string{contract.KMSHealths.Plural}, "list", err)
	}
	return found, nil
}

// listKMSHealths returns none where the cluster does not have the resource. Where it has
// operator resources, KMSHealths are optional: a missing right to them is no error.
func (c *Cluster) listKMSHealths(ctx context.Context, others bool) (found []view.Target, err error) {
	list, err := c.client.Resource(contract.KMSHealths.GVR()).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), others && apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	for i := range list.Items {
		o := &list.Items[i]
		found = append(found, view.Read(contract.ResourceFor(contract.KMSHealths.Plural, o.GetName()).TargetName(), o))
	}
	return found, nil
}

// Lease reads the operator's: of these namespaces, the first that has it. Not ok:
// none could be read, whatever the reason.
func (c *Cluster) Lease(ctx context.Context, namespaces []string) (lease view.Lease, ok bool) {
	for _, namespace := range namespaces {
		o, err := c.client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).
			Namespace(namespace).Get(ctx, contract.OperatorName, metav1.GetOptions{})
		if err != nil {
			continue
		}
		if lease, ok := view.ReadLease(o); ok {
			lease.Namespace = namespace
			return lease, true
		}
	}
	return view.Lease{}, false
}

// String is the API server's name in errors and the log.
func (c *Cluster) String() string { return fmt.Sprintf("the API server %s", c.host) }
