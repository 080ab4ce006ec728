package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

const (
	rootCA = "kube-root-ca.crt" // kube-controller-manager keeps it in each namespace
	// caLeft is how long before its end a CA is reported. The alert has the same time.
	caLeft     = 30 * 24 * time.Hour
	caInterval = 10 * time.Second // between two looks, each bounded by the same
	caRecheck  = time.Hour        // between two connections while nothing changes
)

// ownCA keeps the CA in the pod template of the operator's own Deployment current, from which
// its pods read it by the downward API. An old CA stays beside the new one until it ends. What
// does not verify the API server is never written, since the next pod could not connect.
type ownCA struct {
	apiserver.Options
	changed            func() // wakes the ClusterOperator
	cluster, annotated *source.Source[string]
	expiry             func() prometheus.Gauge // registered when its value is known
	reported           atomic.Pointer[string]

	// checked are the CAs that were last verified and when, ends is when they end.
	checked   []*x509.Certificate
	checkedAt time.Time
	ends      time.Time
}

func newOwnCA(o apiserver.Options, changed func()) *ownCA {
	follow := func(resource schema.GroupVersionResource, name string, fields ...string) *source.Source[string] {
		return source.New(o.Client, nil, source.Selection{Resource: resource, Namespace: o.Namespace, Name: name},
			func(u *unstructured.Unstructured) string {
				value, _, _ := unstructured.NestedString(u.Object, fields...)
				return value
			})
	}
	return &ownCA{Options: o, changed: changed,
		cluster: follow(source.ConfigMaps, rootCA, "data", "ca.crt"),
		annotated: follow(source.Deployments, contract.OperatorName,
			"spec", "template", "metadata", "annotations", contract.CAAnnotation),
		expiry: sync.OnceValue(func() prometheus.Gauge { return registered(o.Registry, contract.MetricCAExpiry) })}
}

// problem is why the CA is not current, or that it ends soon; empty: neither.
func (c *ownCA) problem() string { return *cmp.Or(c.reported.Load(), new("")) }

func (c *ownCA) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.cluster.Run(ctx) })
	running.Go(func() { c.annotated.Run(ctx) })
	_ = wait.PollUntilContextCancel(ctx, caInterval/100, true, func(context.Context) (bool, error) {
		return c.answered(), nil
	})
	wait.UntilWithContext(ctx, c.sync, caInterval)
}

// answered reports whether both objects are known, or why one is not.
func (c *ownCA) answered() bool {
	return (c.cluster.Known() || c.cluster.Err() != nil) && (c.annotated.Known() || c.annotated.Err() != nil)
}

func (c *ownCA) sync(ctx context.Context) {
	if !c.answered() {
		return // in a moment
	}
	limited, cancel := context.WithTimeout(ctx, caInterval)
	defer cancel()
	why := ""
	switch end, err := c.keep(limited); {
	case ctx.Err() != nil:
		return
	case err != nil:
		why = "the operator's CA cannot be kept current: " + err.Error()
	default:
		c.expiry().Set(max(0, float64(end.Unix())))
		if end.Sub(c.Now()) < caLeft {
			why = fmt.Sprintf("the CA of the API server ends at %s, and the operator has no later one",
				end.UTC().Format(time.RFC3339))
		}
	}
	if why != c.problem() {
		klog.InfoS("Checked the CA in the operator's Deployment", "problem", why)
		c.reported.Store(&why)
		c.changed()
	}
}

// keep writes the CA that the Deployment should have, if it is another, and returns when that ends.
func (c *ownCA) keep(ctx context.Context) (end time.Time, err error) {
	bundle, exists := c.cluster.Get(c.Namespace, rootCA)
	annotation, installed := c.annotated.Get(c.Namespace, contract.OperatorName)
	if !exists || !installed {
		missing := fmt.Errorf("there is no ConfigMap %s or no Deployment %s", rootCA, contract.OperatorName)
		return end, cmp.Or(c.cluster.Err(), c.annotated.Err(), missing)
	}
	current, err := certutil.ParseCertsPEM([]byte(bundle))
	if err != nil {
		return end, fmt.Errorf("ConfigMap %s: %w", rootCA, err)
	}
	before, _ := certutil.ParseCertsPEM([]byte(annotation)) // not set, or invalid: it is replaced
	wanted := unended(c.Now(), current, before)
	if end = c.ends; end.IsZero() || !equal(wanted, c.checked) || c.Now().Sub(c.checkedAt) >= caRecheck {
		if end, err = c.end(ctx, wanted); err == nil {
			c.checked, c.checkedAt, c.ends = wanted, c.Now(), end
		}
	}
	if err != nil || equal(wanted, before) {
		return end, err
	}
	if end.IsZero() {
		return end, fmt.Errorf("ConfigMap %s: its CA does not verify the API server", rootCA)
	}
	encoded, err := certutil.EncodeCertificates(wanted...)
	if err != nil {
		return end, err
	}
	klog.InfoS("Writing the CA into the operator's Deployment, which replaces its pods", "certificates", len(wanted))
	deployment := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": contract.OperatorName},
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{contract.CAAnnotation: string(encoded)},
		}}},
	}}
	_, err = c.Client.Resource(source.Deployments).Namespace(c.Namespace).Apply(ctx, contract.OperatorName, deployment,
		metav1.ApplyOptions{FieldManager: contract.CAManager, Force: true})
	return end, err
}

// unended are the certificates that have not ended, each once.
func unended(now time.Time, bundles ...[]*x509.Certificate) (all []*x509.Certificate) {
	for _, c := range slices.Concat(bundles...) {
		if now.Before(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}

// equal reports whether two CAs have the same certificates, in any order.
func equal(a, b []*x509.Certificate) bool { return subset(a, b) && subset(b, a) }

func subset(of, all []*x509.Certificate) bool {
	return !slices.ContainsFunc(of, func(c *x509.Certificate) bool { return !slices.ContainsFunc(all, c.Equal) })
}

// end returns until when the CA is valid that the API server's certificate is verified with, the
// latest if there are several; the zero time: none verifies it.
func (c *ownCA) end(ctx context.Context, cas []*x509.Certificate) (latest time.Time, err error) {
	server, err := url.Parse(c.Server)
	if err != nil {
		return latest, err
	}
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Time: c.Now}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")))
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return latest, nil
	}
	if err != nil {
		return latest, err
	}
	defer func() { _ = conn.Close() }()
	for _, chain := range conn.(*tls.Conn).ConnectionState().VerifiedChains {
		first := slices.MinFunc(chain[min(1, len(chain)-1):],
			func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(latest) {
			latest = first.NotAfter
		}
	}
	return latest, nil
}
