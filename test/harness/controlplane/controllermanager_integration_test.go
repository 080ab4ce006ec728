//go:build integration

package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// controllerPatience bounds what a controller does about a new object.
const controllerPatience = 60 * time.Second

func TestControllerManager(t *testing.T) {
	c := StartForTest(t, Options{})
	startControllers(t, c)
	if err := c.StartControllerManager(t.Context(), ControllerManagerOptions{}); err == nil {
		t.Error("a second start beside a running one succeeded")
	}
	client := adminClientset(t, c)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *ControlPlane, *kubernetes.Clientset)
	}{
		{"a namespace gets its account and its root CA", testNamespaceDefaults},
		{"a legacy token Secret is filled", testLegacyToken},
		{"an approved CSR is signed and its certificate authenticates", testSignedCertificate},
		{"a DaemonSet gets a pod on each node", testDaemonSet},
		{"a Deployment gets a ReplicaSet", testDeployment},
		{"an object goes with its owner", testGarbageCollection},
		{"a deleted namespace goes", testNamespaceGoes},
		{"its controllers continue when the API server is back", testControllersSurvive},
		{"a killed one is restarted", testControllersRestart},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c, client) })
	}
}

func startControllers(t *testing.T, c *ControlPlane) {
	t.Helper()
	start := time.Now()
	if err := c.StartControllerManager(t.Context(), ControllerManagerOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-controller-manager runs after %v", time.Since(start).Round(time.Millisecond))
}

// await waits for a result of the controllers.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := wait.Until(deadline(t, controllerPatience), check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
}

// newNamespace is a namespace that has its default account, without which no
// pod is admitted.
func newNamespace(t *testing.T, client *kubernetes.Clientset) string {
	t.Helper()
	created, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "controllers-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return created.Name
}

func testNamespaceDefaults(t *testing.T, c *ControlPlane, client *kubernetes.Clientset) {
	namespace := newNamespace(t, client)
	await(t, "kube-root-ca.crt", func(ctx context.Context) error {
		found, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && found.Data["ca.crt"] != string(c.ServingCA().PEM()) {
			return wait.Final(errors.New("it holds another CA"))
		}
		return err
	})
}

func testLegacyToken(t *testing.T, c *ControlPlane, client *kubernetes.Clientset) {
	namespace := newNamespace(t, client)
	if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var token string
	await(t, "a filled token", func(ctx context.Context) error {
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(secret.Data[corev1.ServiceAccountTokenKey]); token == "" {
			return errors.New("it is empty")
		}
		if !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], c.ServingCA().PEM()) {
			return wait.Final(errors.New("it holds another CA"))
		}
		return nil
	})
	mustBeKnown(t, c, Credential{Token: token})
}

// mustBeKnown requires 403, not 401, for an authenticated user without rights. The API
// server finds the Secret and the ServiceAccount of a token in its caches, which lag.
func mustBeKnown(t *testing.T, c *ControlPlane, who Credential) {
	t.Helper()
	client := clientset(t, c.RESTConfigAs(who))
	await(t, "the user is known", func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("it got %w, not forbidden", err)
	})
}

func testSignedCertificate(t *testing.T, c *ControlPlane, client *kubernetes.Clientset) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:kms-health-reporter"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "reporter-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    encodePEM("CERTIFICATE REQUEST", der),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	if _, err := requests.UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a certificate", func(ctx context.Context) error {
		csr, err = requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("none: %v", csr.Status.Conditions)
		}
		return err
	})
	keyPEM, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	mustBeKnown(t, c, Credential{Certificate: &KeyPair{Cert: csr.Status.Certificate, Key: keyPEM}})
}

var podTemplate = corev1.PodTemplateSpec{
	ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "any"}},
	Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "any", Image: "any"}}},
}

var podSelector = &metav1.LabelSelector{MatchLabels: podTemplate.Labels}

func testDaemonSet(t *testing.T, _ *ControlPlane, client *kubernetes.Clientset) {
	namespace := newNamespace(t, client)
	for _, name := range []string{"one", "two"} {
		node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Nothing removes admission's taint of a new node here.
		node.Spec.Taints = nil
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := client.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "any"},
		Spec:       appsv1.DaemonSetSpec{Selector: podSelector, Template: podTemplate},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "two pods", func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != 2 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}

func testDeployment(t *testing.T, _ *ControlPlane, client *kubernetes.Clientset) {
	namespace := newNamespace(t, client)
	createDeployment(t, client, namespace)
	await(t, "a ReplicaSet with a pod", func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && (len(sets.Items) != 1 || sets.Items[0].Status.Replicas != 1) {
			return fmt.Errorf("%d ReplicaSets", len(sets.Items))
		}
		return err
	})
}

func createDeployment(t *testing.T, client *kubernetes.Clientset, namespace string) {
	t.Helper()
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "any"},
		Spec:       appsv1.DeploymentSpec{Selector: podSelector, Template: podTemplate},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testGarbageCollection(t *testing.T, _ *ControlPlane, client *kubernetes.Clientset) {
	maps := client.CoreV1().ConfigMaps(newNamespace(t, client))
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the owned one is deleted", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		return wantNotFound(err)
	})
}

func wantNotFound(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is still there")
	}
	return err
}

func testNamespaceGoes(t *testing.T, _ *ControlPlane, client *kubernetes.Clientset) {
	name := newNamespace(t, client)
	if err := client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace is deleted", func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return wantNotFound(err)
	})
}

func testControllersSurvive(t *testing.T, c *ControlPlane, client *kubernetes.Clientset) {
	pid := c.ControllerManagerPID()
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	restart(t, c)
	testDeployment(t, c, client)
	if now := c.ControllerManagerPID(); pid == 0 || now != pid {
		t.Errorf("its process id is %d, was %d", now, pid)
	}
}

func testControllersRestart(t *testing.T, c *ControlPlane, client *kubernetes.Clientset) {
	namespace := newNamespace(t, client)
	if err := c.KillControllerManager(); err != nil {
		t.Fatal(err)
	}
	if c.ControllerManagerPID() != 0 {
		t.Error("it still has a process id")
	}
	createDeployment(t, client, namespace)
	startControllers(t, c)
	await(t, "a ReplicaSet", func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(sets.Items) != 1 {
			return fmt.Errorf("%d ReplicaSets", len(sets.Items))
		}
		return err
	})
	pid := c.ControllerManagerPID()
	if err := c.RestartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := c.ControllerManagerPID(); now == 0 || now == pid {
		t.Errorf("its process id is %d, was %d", now, pid)
	}
	start := time.Now()
	if err := c.StopControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= controllerManagerStopGrace {
		t.Errorf("it did not end in order within %v", took)
	}
	if err := c.StopControllerManager(t.Context()); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

func TestOpenShiftConfig(t *testing.T) {
	c := StartForTest(t, Options{CRDs: TechPreviewNoUpgrade})
	for range 2 { // again is no error
		if err := c.ApplyOpenShiftConfig(t.Context(), TechPreviewNoUpgrade); err != nil {
			t.Fatal(err)
		}
	}
	client := dynamicClient(t, c.RESTConfig())
	found, err := client.Resource(ConfigGVR(Infrastructures)).Get(t.Context(), ClusterObject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := found.Object["status"].(map[string]any); status["controlPlaneTopology"] != "HighlyAvailable" {
		t.Errorf("the status is %v", status)
	}
	if _, err := client.Resource(ConfigGVR(APIServers)).Get(t.Context(), ClusterObject, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Resource(ConfigGVR(ClusterOperators)).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Resource(SecurityContextConstraintsGVR).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
