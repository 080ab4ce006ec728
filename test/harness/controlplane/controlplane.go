package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/kms-health/kms-health/test/harness/disk"
)

// Options are the options of a control plane. The zero value means: in a temporary folder, without CRDs, audit log
// and encryption.
type Options struct {
	// Dir holds data, certificates and logs. Empty: a temporary folder, which
	// Stop removes. A given one is kept, and must be empty or new.
	Dir string
	// EncryptionConfig is the content of an EncryptionConfiguration file. Empty:
	// no encryption at rest. See SetEncryptionConfig.
	EncryptionConfig []byte
	// CRDs names the variant of OpenShift's operator CRDs to install, each with its object "cluster". Empty: none.
	CRDs Variant
	// Audit records every request, at level Metadata, for AuditEvents.
	Audit bool
	// SyncEtcd makes etcd sync its data to disk, as in production. Without it, a page that is written repeatedly
	// reaches the disk only once.
	SyncEtcd bool
	// ExtraArgs are appended to kube-apiserver's flags, and so override flags that this package sets.
	ExtraArgs []string
}

// ControlPlane is a running etcd, a kube-apiserver that can be stopped and started, and, after
// StartControllerManager, a kube-controller-manager. Its methods may be called from several goroutines, but the
// caller must not start or stop servers concurrently.
type ControlPlane struct {
	dir       string
	removeDir bool
	options   Options

	etcdURL    string
	port       int
	adminToken string
	clientCA   *CA
	servingCA  *CA

	mu                 sync.Mutex
	etcd, api, manager *Child
	encryption         bool
}

// servingNames are the names in the API server's certificate. The clients of this package verify the first.
var servingNames = []string{"127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"}

// Start runs etcd and kube-apiserver and waits until they serve. ctx bounds the
// start only: the servers live until Stop, or until this process ends.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	c := &ControlPlane{dir: options.Dir, options: options, removeDir: options.Dir == ""}
	if c.removeDir {
		c.dir, err = os.MkdirTemp("", "kms-health-controlplane-")
	} else {
		c.dir, err = filepath.Abs(c.dir)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.port, err = freePort(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{c.writeFiles, c.startEtcd, c.StartAPIServer, c.AwaitReady} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if options.CRDs != "" {
		err = c.ApplyOperatorCRDs(ctx, options.CRDs)
	}
	return c, err
}

// writeFiles writes the files that the servers need at each start.
func (c *ControlPlane) writeFiles(context.Context) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	// The data of an earlier run would have tokens and Secrets that were signed or encrypted with other keys.
	if found, err := os.ReadDir(c.dir); err != nil || len(found) > 0 {
		return fmt.Errorf("the folder of the control plane, %s, is not empty (%w)", c.dir, err)
	}
	if c.servingCA, err = NewCA("controlplane-serving"); err != nil {
		return err
	}
	serving, err := c.servingCA.Serving(servingNames...)
	if err != nil {
		return err
	}
	if c.clientCA, err = NewCA("controlplane-client"); err != nil {
		return err
	}
	signer, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	c.adminToken = rand.String(32)
	for name, content := range map[string][]byte{
		servingCertFile: serving.Cert,
		servingKeyFile:  serving.Key,
		clientCAFile:    c.clientCA.PEM(),
		signingKeyFile:  signer,
		tokenFile:       []byte(c.adminToken + `,admin,admin,"system:masters"` + "\n"),
		auditPolicyFile: []byte(auditPolicy),
	} {
		if err := disk.Replace(c.file(name), content); err != nil {
			return err
		}
	}
	if len(c.options.EncryptionConfig) > 0 {
		return c.SetEncryptionConfig(c.options.EncryptionConfig)
	}
	return nil
}

// Stop ends the servers, and removes the folder if it is temporary. It has a time limit, and takes no context, since
// the context of a test's cleanup is often cancelled. It may be called again.
func (c *ControlPlane) Stop() error {
	// Only etcd gets a grace period: a folder that is kept needs its data.
	errs := []error{c.KillControllerManager(), c.KillAPIServer(), c.child(&c.etcd).Stop(context.Background(), stopGrace)}
	if c.removeDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// ServingCA returns the authority that signed the API server's certificate.
func (c *ControlPlane) ServingCA() *CA { return c.servingCA }

// SignUser signs a certificate with the API server's client CA. The common name is the user, the organizations are
// the groups ("system:masters" for an administrator).
func (c *ControlPlane) SignUser(lifetime time.Duration, commonName string, organizations ...string) (*KeyPair, error) {
	return c.clientCA.Client(lifetime, commonName, organizations...)
}

// Dir is the folder of data, certificates and logs.
func (c *ControlPlane) Dir() string { return c.dir }

// auditLog is the path of the audit log. The file exists only with Options.Audit.
func (c *ControlPlane) auditLog() string { return c.logPath("audit") }

// logPath is the path of a server's log, over all its runs.
func (c *ControlPlane) logPath(name string) string { return c.file(name + ".log") }

// Address is the API server's host:port. It does not change at a restart.
func (c *ControlPlane) Address() string { return loopback(c.port) }

// EtcdURL is the URL for clients of etcd.
func (c *ControlPlane) EtcdURL() string { return c.etcdURL }

// URL is the API server's URL, by IP address.
func (c *ControlPlane) URL() string { return "https://" + c.Address() }

// Credential identifies a client. The zero value means anonymous.
type Credential struct {
	Token       string
	Certificate *KeyPair
}

// RESTConfig returns the configuration of an administrator (system:masters), without client-side rate limits.
func (c *ControlPlane) RESTConfig() *rest.Config {
	return c.RESTConfigAs(Credential{Token: c.adminToken})
}

// RESTConfigAs is RESTConfig for another user.
func (c *ControlPlane) RESTConfigAs(who Credential) *rest.Config {
	config := &rest.Config{
		Host:        c.URL(),
		BearerToken: who.Token,
		QPS:         -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:     c.servingCA.PEM(),
			ServerName: servingNames[0],
		},
	}
	if who.Certificate != nil {
		config.CertData, config.KeyData = who.Certificate.Cert, who.Certificate.Key
	}
	return config
}
