package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/nodes"
)

// settled is how long the operator must have written nothing to be done.
const settled = 3 * time.Second

var nodeNames = []string{"master-0", "master-1", "master-2"}

// estate is what an operator looks after: a cluster of its own with OpenShift's
// three API servers, each with another delivery. Nodes are package nodes', so what
// the operator delivers does not run.
type estate struct {
	dir     string
	home    string // the operator's namespace
	file    configMap
	cluster *controlplane.ControlPlane
	workers *nodes.Nodes
	admin   dynamic.Interface
	kube    kubernetes.Interface

	metrics *scraper
	process *process
}

// newEstate starts the operator as manifests/ does, with the rights that it ships
// with: elected, and with metrics over TLS. It returns when all is delivered.
func (l *lab) newEstate(ctx context.Context, binary string) (_ *estate, err error) {
	e := &estate{dir: filepath.Join(l.dir, "operator"), home: install.Namespace(install.OpenShift)}
	e.file.dir = filepath.Join(l.configs, "operator")
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if err := errors.Join(os.Mkdir(e.dir, 0o700), os.Mkdir(e.file.dir, 0o700)); err != nil {
		return nil, err
	}
	l.say("starting etcd, kube-apiserver and kube-controller-manager for the operator")
	if err := e.startCluster(ctx); err != nil {
		return nil, err
	}
	if err := e.furnish(ctx); err != nil {
		return nil, err
	}
	l.say("the operator delivers to 3 targets")
	if err := e.startOperator(ctx, binary); err != nil {
		return nil, err
	}
	if err := e.awaitDelivered(ctx); err != nil {
		return nil, errors.Join(err, e.process.alive())
	}
	return e, nil
}

func (e *estate) close() error {
	if e.process != nil {
		e.process.stop()
	}
	if e.metrics != nil {
		e.metrics.close()
	}
	if e.workers != nil {
		e.workers.Stop()
	}
	if e.cluster == nil {
		return nil
	}
	return e.cluster.Stop()
}

func (e *estate) startCluster(ctx context.Context) (err error) {
	if e.cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true}); err != nil {
		return err
	}
	if err := e.cluster.ApplyOpenShiftConfig(ctx, controlplane.TechPreviewNoUpgrade); err != nil {
		return err
	}
	if err := e.cluster.StartControllerManager(ctx, controlplane.ControllerManagerOptions{}); err != nil {
		return err
	}
	if e.admin, err = dynamic.NewForConfig(e.cluster.RESTConfig()); err != nil {
		return err
	}
	if e.kube, err = kubernetes.NewForConfig(e.cluster.RESTConfig()); err != nil {
		return err
	}
	if err := apiservers.CreateNamespaces(ctx, e.kube); err != nil {
		return err
	}
	if err := install.Apply(ctx, e.cluster.RESTConfig(), install.OpenShift, "deployment", "legacy-token"); err != nil {
		return err
	}
	e.workers, err = nodes.Start(ctx, e.cluster.RESTConfig(), nodeNames...)
	return err
}

// furnish makes what the operator finds.
func (e *estate) furnish(ctx context.Context) error {
	for _, s := range apiservers.All {
		if err := e.fill(ctx, s); err != nil {
			return err
		}
		for _, revision := range []string{"", "1"} {
			if err := e.encrypt(ctx, s, revision, "1"); err != nil {
				return err
			}
		}
	}
	for _, node := range nodeNames {
		if _, err := e.workers.RunStaticPod(ctx, node, apiservers.StaticPod("1")); err != nil {
			return err
		}
	}
	return apiservers.Apply(ctx, e.admin, owner, apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment("1"))
}

func (e *estate) startOperator(ctx context.Context, binary string) error {
	token, err := e.cluster.ServiceAccountToken(ctx, e.home, install.ServiceAccount, controlplane.TokenOptions{})
	if err != nil {
		return err
	}
	kubeconfig, err := e.cluster.WriteKubeconfig(filepath.Join(e.dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	if err != nil {
		return err
	}
	if _, err := e.file.swap(operatorFile(30 * time.Second)); err != nil {
		return err
	}
	metrics, certs, err := e.serve(ctx)
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	e.process, err = startProcess("the operator", filepath.Join(e.dir, "operator.log"), nil, binary, "run",
		"--config", e.file.file(), "--kubeconfig", kubeconfig, "--namespace", e.home, "--image", "reporter:1",
		"--metrics-bind-address", metrics, "--metrics-cert-dir", certs, "--health-bind-address", health)
	return err
}

// serve returns the address of the operator's metrics and the folder of its
// certificate, and makes the scraper, who may get them.
func (e *estate) serve(ctx context.Context) (address, certs string, err error) {
	ca, err := controlplane.NewCA("metrics")
	if err != nil {
		return "", "", err
	}
	pair, err := ca.Serving("127.0.0.1")
	if err != nil {
		return "", "", err
	}
	certs = filepath.Join(e.dir, "serving")
	err = errors.Join(
		os.Mkdir(certs, 0o700),
		os.WriteFile(filepath.Join(certs, "tls.crt"), pair.Cert, 0o600),
		os.WriteFile(filepath.Join(certs, "tls.key"), pair.Key, 0o600),
		e.cluster.CreateServiceAccount(ctx, namespace, account))
	if err != nil {
		return "", "", err
	}
	name := metav1.ObjectMeta{Name: "bench-scraper"}
	may := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}}
	if _, err := e.kube.RbacV1().ClusterRoles().Create(ctx, may, metav1.CreateOptions{}); err != nil {
		return "", "", err
	}
	who := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}
	if _, err := e.kube.RbacV1().ClusterRoleBindings().Create(ctx, who, metav1.CreateOptions{}); err != nil {
		return "", "", err
	}
	token, err := e.cluster.ServiceAccountToken(ctx, namespace, account, controlplane.TokenOptions{})
	if err != nil {
		return "", "", err
	}
	if address, err = freeAddress(); err != nil {
		return "", "", err
	}
	e.metrics = newSecureScraper(address, ca, token)
	return address, certs, nil
}

// awaitDelivered waits until every target's condition says that all is delivered,
// and the operator has written nothing for a while.
func (e *estate) awaitDelivered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	for _, s := range apiservers.All {
		for {
			o, err := e.admin.Resource(controlplane.OperatorGVR(s.Resource)).Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
			if err != nil {
				return err
			}
			condition := rollup.Read(o).Conditions[target.ConditionType]
			if condition.Status == rollup.True {
				break
			}
			if pause(ctx, freshPoll) != nil {
				return fmt.Errorf("%s is not delivered: %+v", s.Name, condition)
			}
		}
	}
	written, since := -1, time.Now()
	for time.Since(since) < settled {
		requests, err := e.requests(ctx, time.Time{})
		if err != nil {
			return err
		}
		if n := len(slices.DeleteFunc(requests, func(event auditv1.Event) bool { return !writesOf(event) })); n != written {
			written, since = n, time.Now()
		}
		if err := pause(ctx, settled/10); err != nil {
			return fmt.Errorf("the operator goes on writing: %w", err)
		}
	}
	return nil
}

// requests are the operator's that came after a time, from the API server's log.
func (e *estate) requests(ctx context.Context, after time.Time) ([]auditv1.Event, error) {
	if err := e.cluster.AuditFence(ctx); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	return e.cluster.AuditEvents(
		controlplane.ByUser(controlplane.ServiceAccountUser(e.home, install.ServiceAccount)),
		func(event *auditv1.Event) bool {
			id := string(event.AuditID) // a watch's beginning and end have one
			again := seen[id]
			seen[id] = true
			return !again && event.RequestReceivedTimestamp.After(after)
		})
}

// writesOf says whether a request changes anything but the operator's lease.
func writesOf(event auditv1.Event) bool {
	if event.ObjectRef != nil && event.ObjectRef.Resource == "leases" {
		return false
	}
	return !slices.Contains([]string{"get", "list", "watch"}, event.Verb)
}
