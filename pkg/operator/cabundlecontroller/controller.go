// Package cabundlecontroller keeps the API server's CA current in the pod template of the operator's own Deployment.
// The pods read it there by the downward API, so they start while ConfigMaps cannot be decrypted. An old CA stays
// next to the new one until it expires, so a new pod can connect during a rotation.
package cabundlecontroller

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

const (
	rootCA   = "kube-root-ca.crt" // kube-controller-manager keeps it in each namespace
	interval = 10 * time.Second   // between two syncs
)

// Controller keeps the CA in the pod template of the operator's own Deployment current.
type Controller struct {
	ConfigMaps  corev1client.ConfigMapInterface // of the operator's namespace, as are the Deployments
	Deployments appsv1client.DeploymentInterface
	Namespace   string           // the operator's own
	Queue       *syncqueue.Queue // of one item: contract.OperatorName

	applied string // the annotation as this process last applied it
}

// Run keeps the CA current until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	c.Queue.Enqueue(contract.OperatorName)
	c.Queue.Work(ctx, 1, func(ctx context.Context, name string) time.Duration {
		c.Queue.Observe(name, c.sync(ctx))
		return interval
	})
}

// sync applies the annotation, if it should change or this process has not applied it yet: Flux removes an annotation
// that only kubectl owns.
func (c *Controller) sync(ctx context.Context) error {
	cached := func(name string) metav1.ListOptions { // the API server's cache answers without the KMS plugin
		return metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: "0"}
	}
	configMaps, err1 := c.ConfigMaps.List(ctx, cached(rootCA))
	deployments, err2 := c.Deployments.List(ctx, cached(contract.OperatorName))
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	bundle, annotation := "", ""
	for _, o := range configMaps.Items {
		bundle = o.Data["ca.crt"]
	}
	for _, o := range deployments.Items {
		annotation = o.Spec.Template.Annotations[contract.CAAnnotation]
	}
	current, err := certutil.ParseCertsPEM([]byte(bundle))
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", rootCA, err)
	}
	before, _ := certutil.ParseCertsPEM([]byte(annotation)) // an annotation that is not set or invalid is replaced
	encoded, err := certutil.EncodeCertificates(merge(time.Now(), current, before)...)
	wanted := string(encoded)
	if err != nil || wanted == annotation && c.applied == annotation {
		return err
	}
	template := applycorev1.PodTemplateSpec().WithAnnotations(map[string]string{contract.CAAnnotation: wanted})
	deployment := applyappsv1.Deployment(contract.OperatorName, c.Namespace).
		WithSpec(applyappsv1.DeploymentSpec().WithTemplate(template))
	_, err = c.Deployments.Apply(ctx, deployment, metav1.ApplyOptions{FieldManager: contract.CAManager, Force: true})
	if err == nil {
		klog.InfoS("Applied the CA to the operator's Deployment", "replacesPods", wanted != annotation)
		c.applied = wanted
	}
	return err
}

// merge returns the certificates of before that are current or have not expired, and the other current ones, each once.
// The order of before stays: another one would replace the pods, although nothing else changed.
func merge(now time.Time, current, before []*x509.Certificate) []*x509.Certificate {
	all := slices.DeleteFunc(before, func(c *x509.Certificate) bool {
		return !now.Before(c.NotAfter) && !slices.ContainsFunc(current, c.Equal)
	})
	for _, c := range current {
		if !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}
