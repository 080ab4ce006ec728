package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	// startTimeout is for each server. A start takes seconds on two idle cores, and tens of seconds while tests of
	// several packages share them.
	startTimeout = 4 * time.Minute
	// stopGrace is for etcd and for kube-apiserver, which ends within two seconds unless it still serves requests.
	stopGrace = 20 * time.Second
	// pollCallTimeout is for one call. A starting server accepts connections before it serves them, and one call must
	// not use up the whole wait.
	pollCallTimeout = 5 * time.Second
)

// Files in the folder of the control plane.
const (
	servingCertFile      = "serving.crt"
	servingKeyFile       = "serving.key"
	clientCAFile         = "client-ca.crt"
	signingKeyFile       = "service-account.key"
	tokenFile            = "tokens.csv"
	auditPolicyFile      = "audit-policy.yaml"
	encryptionFile       = "encryption-config.yaml"
	controllerManagerDir = "controller-manager"
	rootCAFile           = "root-ca.crt"
)

// live is /livez without one check: if an unhealthy KMS plugin encrypted objects, the server waits a minute for
// their caches, and serves everything else meanwhile.
const live = "/livez?exclude=poststarthook/storage-readiness"

// RootCAPublisherController is the name of the controller that writes the ConfigMaps kube-root-ca.crt
// (k8s.io/kubernetes/cmd/kube-controller-manager/names).
const RootCAPublisherController = "root-ca-certificate-publisher-controller"

// OperatorControllers are the controllers that tests of an operator need: for ServiceAccounts and their tokens, for
// the workloads that the operator creates, and for cleanup. None evicts pods from a node that stopped reporting. The
// garbage collector observes the objects of a new CRD only after up to 30 seconds.
var OperatorControllers = []string{
	"serviceaccount-controller", "serviceaccount-token-controller", RootCAPublisherController,
	"daemonset-controller", "deployment-controller", "replicaset-controller",
	"garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller",
}

// startServer starts a server and waits until check succeeds. It fails if the server runs already, and kills a server
// that does not pass in time.
func (c *ControlPlane) startServer(
	ctx context.Context, server **Child, name string, args []string, check func(context.Context) error,
) error {
	path, err := binary(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if (*server).Running() {
		c.mu.Unlock()
		return fmt.Errorf("start %s: it is running already", name)
	}
	p, err := StartChild(name, path, program.OthersEnv(), args, c.logPath(name))
	if err == nil {
		*server = p
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.await(ctx, check); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", name, err), p.Kill())
	}
	return nil
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	c.etcdURL = "http://" + loopback(port)
	args := etcdArgs(c.etcdURL, filepath.Join(c.dir, "etcd"))
	if !c.options.SyncEtcd { // the data need not survive a power cut
		args = append(args, "--unsafe-no-fsync")
	}
	return c.startServer(ctx, &c.etcd, "etcd", args, func(ctx context.Context) error { return get(ctx, nil, c.etcdURL+"/health", "") })
}

// StartAPIServer starts kube-apiserver and waits until it is live; its RBAC bootstrap is done then. A restart uses
// the same port, data, certificates and keys. A server that does not become live in time is killed.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	return c.startServer(ctx, &c.api, "kube-apiserver", c.apiServerArgs(), func(ctx context.Context) error {
		return get(ctx, c.adminTLS(), c.URL()+live, c.adminToken)
	})
}

// AwaitReady waits until /readyz passes. It never passes with an unhealthy KMS plugin.
func (c *ControlPlane) AwaitReady(ctx context.Context) error {
	return c.child(&c.api).await(ctx, func(ctx context.Context) error {
		return get(ctx, c.adminTLS(), c.URL()+"/readyz", c.adminToken)
	})
}

func (c *ControlPlane) adminTLS() *tls.Config {
	return &tls.Config{RootCAs: c.servingCA.Pool(), ServerName: servingNames[0]}
}

// StopAPIServer ends kube-apiserver in order, and waits until the process has ended and the port is free. It kills
// the process after 20 seconds, or at the end of ctx.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	return c.child(&c.api).Stop(ctx, stopGrace)
}

// KillAPIServer ends kube-apiserver by SIGKILL and waits until it has ended.
func (c *ControlPlane) KillAPIServer() error { return c.child(&c.api).Kill() }

// FreezeAPIServer stops the process by SIGSTOP: the kernel still accepts connections and data, but nothing answers.
func (c *ControlPlane) FreezeAPIServer() error { return c.child(&c.api).Signal(syscall.SIGSTOP) }

// ThawAPIServer continues a frozen process, which then serves the waiting requests.
func (c *ControlPlane) ThawAPIServer() error { return c.child(&c.api).Signal(syscall.SIGCONT) }

// APIServerPID returns the process ID of kube-apiserver, 0 while it is not running.
func (c *ControlPlane) APIServerPID() int {
	if p := c.child(&c.api); p.Running() {
		return p.PID()
	}
	return 0
}

// EtcdPID returns the process ID of etcd.
func (c *ControlPlane) EtcdPID() int { return c.child(&c.etcd).PID() }

func (c *ControlPlane) child(server **Child) *Child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *server
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir, name) }

func (c *ControlPlane) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port),
		// An Endpoints object must not have a loopback address.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",

		"--tls-cert-file=" + c.file(servingCertFile),
		"--tls-private-key-file=" + c.file(servingKeyFile),
		"--client-ca-file=" + c.file(clientCAFile),
		"--token-auth-file=" + c.file(tokenFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file(signingKeyFile),
		"--service-account-signing-key-file=" + c.file(signingKeyFile),

		"--authorization-mode=Node,RBAC",
		// kubeadm and OpenShift add this to the default plugins.
		"--enable-admission-plugins=NodeRestriction",

		// Otherwise the process keeps the port for a while.
		"--shutdown-delay-duration=0s",
		// Otherwise an open watch keeps the process alive for up to a minute.
		"--shutdown-watch-termination-grace-period=1s",
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.encryption {
		args = append(args, "--encryption-provider-config="+c.file(encryptionFile))
	}
	if c.options.Audit {
		args = append(args,
			"--audit-policy-file="+c.file(auditPolicyFile),
			"--audit-log-path="+c.auditLog(),
			// Blocking: an event is written before its request is finished. One file without rotation has all events.
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=0",
		)
	}
	return append(args, c.options.ExtraArgs...)
}

// SetEncryptionConfig replaces the content of the EncryptionConfiguration file. It takes effect at the next start of
// the API server. It takes effect at once if the API server was started with such a file and with the flag
// --encryption-provider-config-automatic-reload (see Options.ExtraArgs).
func (c *ControlPlane) SetEncryptionConfig(content []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.encryption = true
	return disk.Replace(c.file(encryptionFile), content)
}

// StartControllerManager starts or restarts kube-controller-manager with these controllers, and waits until all of
// them report that they run. The API server must serve. It may be restarted later, but the controllers' watches then
// retry with a backoff of up to a minute.
func (c *ControlPlane) StartControllerManager(ctx context.Context, controllers ...string) error {
	pair, err := c.SignUser(certLifetime, "system:kube-controller-manager") // the default roles are bound to this user
	if err != nil {
		return err
	}
	if err := disk.Replace(c.file(rootCAFile), c.servingCA.PEM()); err != nil {
		return err
	}
	kubeconfig, err := c.WriteKubeconfig(c.file(controllerManagerDir), Kubeconfig{
		TLSServerName: servingNames[0], Credential: Credential{Certificate: pair},
	})
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.file(signingKeyFile),
		"--root-ca-file=" + c.file(rootCAFile),

		// The port is only used to check whether it runs.
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.file(servingCertFile),
		"--tls-private-key-file=" + c.file(servingKeyFile),
		"--profiling=false",

		// There are two cores and few objects: one worker for each controller, without client-side rate limits.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
	for _, of := range []string{"daemonset", "deployment", "gc", "namespace", "replicaset", "serviceaccount-token"} {
		args = append(args, "--concurrent-"+of+"-syncs=1")
	}
	// Before the controllers are started, /healthz reports "ok" without naming them.
	return c.startServer(ctx, &c.manager, "kube-controller-manager", args, func(ctx context.Context) error {
		return get(ctx, c.adminTLS(), "https://"+loopback(port)+"/healthz?verbose", "", controllers...)
	})
}

// KillControllerManager ends kube-controller-manager by SIGKILL and waits until it has ended.
func (c *ControlPlane) KillControllerManager() error { return c.child(&c.manager).Kill() }

// get gets url once. It requires status 200, and that the answer names these checks as passed. It does not reuse
// connections: one to a server that was frozen or restarted may be dead.
func get(ctx context.Context, config *tls.Config, url, token string, passed ...string) error {
	ctx, cancel := context.WithTimeout(ctx, pollCallTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: config}).RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s from %s: %s", response.Status, url, bytes.TrimSpace(body))
	}
	for _, name := range passed {
		if !bytes.Contains(body, []byte("[+]"+name+" ok")) {
			return fmt.Errorf("%s does not run yet", name)
		}
	}
	return nil
}
