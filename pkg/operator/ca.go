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
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/retry"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

const (
	rootCA = "kube-root-ca.crt" // kube-controller-manager keeps it in each namespace
	// caLeft is how long before its end a CA is reported. The alert has the same time.
	caLeft    = 30 * 24 * time.Hour
	caResync  = time.Hour
	caRetry   = 10 * time.Second
	caTimeout = 10 * time.Second
)

// ownCA keeps the CA in the pod template of the operator's own Deployment current, from which
// its pods read it by the downward API. An old CA stays beside the new one until it ends. What
// does not verify the API server is never written, since the next pod could not connect.
type ownCA struct {
	apiserver.Options
	changed            func() // wakes the ClusterOperator
	cluster, annotated *source.Source[string]
	queue              retry.Queue
	expiry             func() prometheus.Gauge // registered when its value is known
	reported           atomic.Pointer[string]
}

func newOwnCA(o apiserver.Options, changed func()) *ownCA {
	c := &ownCA{Options: o, changed: changed, queue: retry.NewQueue(o.Clock)}
	c.expiry = sync.OnceValue(func() prometheus.Gauge { return registered(o.Registry, contract.MetricCAExpiry) })
	text := func(fields ...string) func(*unstructured.Unstructured) string {
		return func(u *unstructured.Unstructured) string {
			value, _, _ := unstructured.NestedString(u.Object, fields...)
			return value
		}
	}
	wake := func() { c.queue.Add(contract.OperatorName) }
	c.cluster = source.New(o.Client, nil,
		source.Selection{Resource: source.ConfigMaps, Namespace: o.Namespace, Name: rootCA},
		text("data", "ca.crt"), wake)
	c.annotated = source.New(o.Client, nil,
		source.Selection{Resource: source.Deployments, Namespace: o.Namespace, Name: contract.OperatorName},
		text("spec", "template", "metadata", "annotations", contract.CAAnnotation), wake)
	return c
}

// problem is why the CA is not current, or that it ends soon; empty: neither.
func (c *ownCA) problem() string {
	if why := c.reported.Load(); why != nil {
		return *why
	}
	return ""
}

func (c *ownCA) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.cluster.Run(ctx) })
	running.Go(func() { c.annotated.Run(ctx) })
	c.queue.Work(ctx, 1, func(ctx context.Context, _ string) time.Duration {
		ctx, cancel := context.WithTimeout(ctx, caTimeout)
		defer cancel()
		return c.sync(ctx)
	})
}

// sync returns after how long to sync again.
func (c *ownCA) sync(ctx context.Context) time.Duration {
	if !c.cluster.Known() && c.cluster.Err() == nil || !c.annotated.Known() && c.annotated.Err() == nil {
		return caRetry // each wakes it
	}
	why, again := "", caResync
	cas, err := c.keep(ctx)
	if err == nil {
		var end time.Time
		if end, err = c.end(ctx, cas); err == nil {
			c.expiry().Set(max(0, float64(end.Unix())))
			if end.Sub(c.Now()) < caLeft {
				why = fmt.Sprintf("the CA of the API server ends at %s, and the operator has no later one",
					end.UTC().Format(time.RFC3339))
			}
		}
		for _, ca := range cas {
			again = min(again, max(time.Second, ca.NotAfter.Sub(c.Now())))
		}
	}
	if err != nil {
		why, again = "the operator's CA cannot be kept current: "+err.Error(), caRetry
	}
	if why != c.problem() {
		klog.InfoS("Checked the CA in the operator's Deployment", "problem", why)
		c.reported.Store(&why)
		c.changed()
	}
	return again
}

// keep writes the CA that the Deployment should have, if it is another, and returns it.
func (c *ownCA) keep(ctx context.Context) ([]*x509.Certificate, error) {
	bundle, err := valueOf(c.cluster, c.Namespace, "ConfigMap", rootCA)
	if err != nil {
		return nil, err
	}
	annotation, err := valueOf(c.annotated, c.Namespace, "Deployment", contract.OperatorName)
	if err != nil {
		return nil, err
	}
	current, err := certutil.ParseCertsPEM([]byte(bundle))
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", rootCA, err)
	}
	before, _ := certutil.ParseCertsPEM([]byte(annotation)) // not set, or invalid: it is replaced
	wanted := unended(c.Now(), current, before)
	if subset(wanted, before) && subset(before, wanted) {
		return wanted, nil
	}
	if end, err := c.end(ctx, wanted); err != nil || end.IsZero() {
		return nil, errors.Join(err, fmt.Errorf("ConfigMap %s: its CA does not verify the API server", rootCA))
	}
	encoded, err := certutil.EncodeCertificates(wanted...)
	if err != nil {
		return nil, err
	}
	klog.InfoS("Writing the CA into the operator's Deployment, which replaces its pods", "certificates", len(wanted))
	deployment := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	deployment.SetName(contract.OperatorName)
	err = unstructured.SetNestedField(deployment.Object, string(encoded), "spec", "template", "metadata", "annotations",
		contract.CAAnnotation)
	if err != nil {
		return nil, err
	}
	_, err = c.Client.Resource(source.Deployments).Namespace(c.Namespace).Apply(ctx, contract.OperatorName, deployment,
		metav1.ApplyOptions{FieldManager: contract.CAManager, Force: true})
	return wanted, err
}

func valueOf(s *source.Source[string], namespace, kind, name string) (string, error) {
	if !s.Known() {
		return "", fmt.Errorf("%s %s: %w", kind, name, s.Err())
	}
	value, exists := s.Get(namespace, name)
	if !exists {
		return "", fmt.Errorf("%s %s does not exist", kind, name)
	}
	return value, nil
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
