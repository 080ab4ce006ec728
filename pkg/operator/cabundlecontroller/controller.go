// Package cabundlecontroller keeps the API server's CA current in the pod template of the operator's own Deployment.
// The pods read it there by the downward API, so they start while ConfigMaps cannot be decrypted. An old CA stays
// next to the new one until it expires. Certificates that do not verify the API server are never written: the next
// pod could not connect.
package cabundlecontroller

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

const (
	rootCA = "kube-root-ca.crt" // kube-controller-manager keeps it in each namespace
	// caLeft is how long before its expiry a CA is reported. The alert uses the same time.
	caLeft     = 30 * 24 * time.Hour
	caInterval = 10 * time.Second // between two checks; also the timeout of a check
)

// Options of a Controller.
type Options struct {
	ConfigMaps  corev1client.ConfigMapInterface // of the operator's namespace, as are the Deployments
	Deployments appsv1client.DeploymentInterface
	Namespace   string           // the operator's own
	Server      string           // the URL by which the operator reaches the API server
	Now         func() time.Time // by the API server's clock
	Registry    prometheus.Registerer
	Enqueue     informers.Key // when the problem changes
}

// Controller keeps the CA in the pod template of the operator's own Deployment current.
type Controller struct {
	Options
	expiry   *prometheus.GaugeVec // has a value once the expiry is known
	reported atomic.Pointer[string]
}

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{Options: o, expiry: metric.GaugeVec(o.Registry, contract.MetricCAExpiry)}
}

// Problem returns why the CA is not current, or that it expires soon; empty: neither.
func (c *Controller) Problem() string { return *cmp.Or(c.reported.Load(), new("")) }

// Run checks the CA until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) { wait.UntilWithContext(ctx, c.sync, caInterval) }

func (c *Controller) sync(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, caInterval)
	defer cancel()
	why := ""
	switch end, err := c.keep(limited); {
	case ctx.Err() != nil, unanswered(err):
		return
	case err != nil:
		why = "the operator's CA cannot be kept current: " + err.Error()
	default:
		c.expiry.WithLabelValues().Set(max(0, float64(end.Unix())))
		if end.Sub(c.Now()) < caLeft {
			why = fmt.Sprintf("the CA of the API server expires at %s, and the operator has no later one",
				end.UTC().Format(time.RFC3339))
		}
	}
	if why != c.Problem() {
		klog.InfoS("Checked the CA in the operator's Deployment", "problem", why)
		c.reported.Store(&why)
		c.Enqueue.Queue.Enqueue(c.Enqueue.Name)
	}
}

// unanswered reports whether an error has nothing to do with the CA: the API server does not answer, or cannot answer
// while it starts or ends.
func unanswered(err error) bool {
	failed, noAnswer := apierrors.APIStatus(nil), net.Error(nil)
	if errors.As(err, &failed) {
		return failed.Status().Code == http.StatusTooManyRequests || failed.Status().Code >= http.StatusInternalServerError
	}
	return errors.As(err, &noAnswer) || errors.Is(err, io.EOF) // a deadline is a net.Error
}

// keep writes the CA that the Deployment should have, if it differs, and returns when that expires.
func (c *Controller) keep(ctx context.Context) (end time.Time, err error) {
	cached := func(name string) metav1.ListOptions { // the API server's cache answers without the KMS plugin
		return metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: "0"}
	}
	configMaps, err1 := c.ConfigMaps.List(ctx, cached(rootCA))
	deployments, err2 := c.Deployments.List(ctx, cached(contract.OperatorName))
	if err := cmp.Or(err1, err2); err != nil {
		return end, err
	}
	bundle, annotation, owned := "", "", false
	for _, o := range configMaps.Items {
		bundle = o.Data["ca.crt"]
	}
	for _, o := range deployments.Items {
		annotation = o.Spec.Template.Annotations[contract.CAAnnotation]
		owned = slices.ContainsFunc(o.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
			return m.Manager == contract.CAManager && m.Operation == metav1.ManagedFieldsOperationApply
		})
	}
	current, err := certutil.ParseCertsPEM([]byte(bundle))
	if err != nil {
		return end, fmt.Errorf("ConfigMap %s: %w", rootCA, err)
	}
	before, _ := certutil.ParseCertsPEM([]byte(annotation)) // an annotation that is not set or invalid is replaced
	wanted := unended(c.Now(), current, before)
	end, err = c.end(ctx, wanted)
	same := len(wanted) == len(before) && len(wanted) == len(unended(c.Now(), wanted, before))
	switch {
	case err != nil, same && (owned || end.IsZero()):
		return end, err
	case same: // take it over: Flux removes what only `kubectl patch` owns
		return end, c.write(ctx, annotation)
	case end.IsZero():
		return end, fmt.Errorf("ConfigMap %s: its CA does not verify the API server", rootCA)
	}
	encoded, err := certutil.EncodeCertificates(wanted...)
	if err != nil {
		return end, err
	}
	klog.InfoS("Writing the CA into the operator's Deployment, which replaces its pods", "certificates", len(wanted))
	return end, c.write(ctx, string(encoded))
}

// write applies the annotation, which the operator owns then.
func (c *Controller) write(ctx context.Context, annotation string) error {
	template := applycorev1.PodTemplateSpec().WithAnnotations(map[string]string{contract.CAAnnotation: annotation})
	deployment := applyappsv1.Deployment(contract.OperatorName, c.Namespace).
		WithSpec(applyappsv1.DeploymentSpec().WithTemplate(template))
	_, err := c.Deployments.Apply(ctx, deployment,
		metav1.ApplyOptions{FieldManager: contract.CAManager, Force: true})
	return err
}

// unended returns the certificates that have not expired, each once.
func unended(now time.Time, bundles ...[]*x509.Certificate) (all []*x509.Certificate) {
	for _, c := range slices.Concat(bundles...) {
		if now.Before(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}

// end returns when the CA expires by which the API server's certificate is verified; the latest time if there are
// several chains. It is zero if no CA verifies the certificate.
func (c *Controller) end(ctx context.Context, cas []*x509.Certificate) (latest time.Time, err error) {
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
