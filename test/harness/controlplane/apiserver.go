package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	// kube-apiserver's start is CPU time: seconds when alone on two cores, tens
	// of seconds when tests of several packages share them.
	apiServerStartTimeout = 2 * time.Minute
	// It ends within a second or two unless requests are still being served.
	apiServerStopGrace = 20 * time.Second
)

// Files in the folder of the control plane.
const (
	servingCertFile = "serving.crt"
	servingKeyFile  = "serving.key"
	clientCAFile    = "client-ca.crt"
	signingKeyFile  = "service-account.key"
	tokenFile       = "tokens.csv"
	auditPolicyFile = "audit-policy.yaml"
	encryptionFile  = "encryption-config.yaml"
)

// live is /livez but for one check: a server with objects that an unhealthy KMS plugin
// encrypted waits a minute for the caches of those, and serves all else meanwhile.
const live = "/livez?exclude=poststarthook/storage-readiness"

// StartAPIServer starts kube-apiserver, for the first time or again with the
// same port, data, certificates and keys, and waits until it is live: its RBAC
// bootstrap is done by then. A server that does not get there is killed.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	path, err := binary("kube-apiserver")
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.api.Running() {
		c.mu.Unlock()
		return errors.New("start kube-apiserver: it is running already")
	}
	p, err := StartChild("kube-apiserver", path, program.OthersEnv(), c.apiServerArgs(), c.APIServerLog())
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.api = p
	c.mu.Unlock()

	if err := c.awaitHealth(ctx, p, live); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// AwaitReady waits until /readyz passes. With an unhealthy KMS plugin it never does.
func (c *ControlPlane) AwaitReady(ctx context.Context) error {
	p, err := c.runningAPIServer()
	if err != nil {
		return err
	}
	return c.awaitHealth(ctx, p, "/readyz")
}

func (c *ControlPlane) awaitHealth(ctx context.Context, p *Child, path string) error {
	ctx, cancel := context.WithTimeout(ctx, apiServerStartTimeout)
	defer cancel()
	err := p.await(ctx, func(ctx context.Context) error {
		return getOK(ctx, c.adminClient(), c.URL()+path, c.adminToken)
	})
	if err != nil {
		return p.explain(fmt.Errorf("wait for %s of kube-apiserver: %w", path, err))
	}
	return nil
}

// adminClient keeps no connection, so a question never goes down one that a
// frozen or restarted server has left behind.
func (c *ControlPlane) adminClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: c.servingCA.Pool(), ServerName: c.servingNames[0]},
	}}
}

// StopAPIServer ends kube-apiserver in order and waits until the process is
// stopped and its port free. One that does not end within 20 seconds, or by the
// end of ctx, is killed.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	return c.apiServer().Stop(ctx, apiServerStopGrace)
}

// KillAPIServer ends kube-apiserver by SIGKILL and waits until it has ended.
func (c *ControlPlane) KillAPIServer() error { return c.apiServer().Kill() }

// FreezeAPIServer stops the process by SIGSTOP: the kernel still accepts
// connections and data for it, and nothing answers.
func (c *ControlPlane) FreezeAPIServer() error { return c.signalAPIServer(syscall.SIGSTOP) }

// ThawAPIServer continues a frozen process, which then serves what has piled up.
func (c *ControlPlane) ThawAPIServer() error { return c.signalAPIServer(syscall.SIGCONT) }

// APIServerPID is the process id of kube-apiserver, 0 while it is not running.
func (c *ControlPlane) APIServerPID() int {
	if p := c.apiServer(); p.Running() {
		return p.PID()
	}
	return 0
}

func (c *ControlPlane) signalAPIServer(sig syscall.Signal) error {
	p, err := c.runningAPIServer()
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

func (c *ControlPlane) runningAPIServer() (*Child, error) {
	if p := c.apiServer(); p.Running() {
		return p, nil
	}
	return nil, errors.New("kube-apiserver is not running")
}

func (c *ControlPlane) apiServer() *Child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api
}

// apiServerArgs needs c.mu.
func (c *ControlPlane) apiServerArgs() []string {
	file := func(name string) string { return filepath.Join(c.dir, name) }
	args := []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port),
		// Loopback is no lawful address of an Endpoints object.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",

		"--tls-cert-file=" + file(servingCertFile),
		"--tls-private-key-file=" + file(servingKeyFile),
		"--client-ca-file=" + file(clientCAFile),
		"--token-auth-file=" + file(tokenFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file(signingKeyFile),
		"--service-account-signing-key-file=" + file(signingKeyFile),

		"--authorization-mode=Node,RBAC",
		// What kubeadm and OpenShift add to the default plugins.
		"--enable-admission-plugins=NodeRestriction",

		// Otherwise it serves on for a while, and holds the port.
		"--shutdown-delay-duration=0s",
		// Otherwise an open watch holds the process, for up to a minute.
		"--shutdown-watch-termination-grace-period=1s",
	}
	if c.encryption {
		args = append(args, "--encryption-provider-config="+c.EncryptionConfigPath())
	}
	if c.options.Audit {
		args = append(args,
			"--audit-policy-file="+file(auditPolicyFile),
			"--audit-log-path="+c.AuditLog(),
			// Blocking writes an event before its request is done with; one
			// file without rotation is complete for a reader.
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=0",
		)
	}
	return append(args, slices.Clone(c.options.ExtraArgs)...)
}

// EncryptionConfigPath is where SetEncryptionConfig writes.
func (c *ControlPlane) EncryptionConfigPath() string { return filepath.Join(c.dir, encryptionFile) }

// SetEncryptionConfig replaces the content of the EncryptionConfiguration file.
// It counts from the next start of the API server, or at once where that runs
// with --encryption-provider-config-automatic-reload (see Options.ExtraArgs)
// and had such a file when it started.
func (c *ControlPlane) SetEncryptionConfig(content []byte) error {
	if err := writeFile(c.EncryptionConfigPath(), content); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.encryption = true
	return nil
}

func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the ServiceAccount signing key: %w", err)
	}
	return encodeKey(key)
}
