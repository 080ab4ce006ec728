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

// Options of a control plane. The zero value is one without CRDs, audit log and
// encryption, in a temporary folder.
type Options struct {
	// Dir holds data, certificates and logs. Empty: a temporary folder, which
	// Stop removes. A given one is kept, and must be empty or new.
	Dir string
	// EncryptionConfig is the content of an EncryptionConfiguration file. Empty:
	// no encryption at rest. See SetEncryptionConfig.
	EncryptionConfig []byte
	// CRDs names the variant of OpenShift's operator CRDs to install, each with
	// its object "cluster". Empty: none.
	CRDs Variant
	// Audit records every request, at level Metadata, for AuditEvents.
	Audit bool
	// SyncEtcd has etcd sync its data to disk, as in production. Without it pages that are written
	// again and again reach the disk once.
	SyncEtcd bool
	// ExtraArgs are appended to kube-apiserver's flags, so a flag of ours that
	// is given again here is overridden.
	ExtraArgs []string
}

// ControlPlane is a running etcd and a kube-apiserver that can be stopped and
// started, and if requested a kube-controller-manager. Its methods may
// be called from several goroutines, except that one start or stop at a time is
// the caller's business.
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

// servingNames are those of the API server's certificate. Clients of ours verify the first.
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

// writeFiles makes what the servers need before their first start, and what
// every restart finds again.
func (c *ControlPlane) writeFiles(context.Context) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	// Data of an earlier run would hold tokens and secrets of other keys.
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

// Stop ends the servers and removes the folder if it was a temporary one. It
// is bounded, needs no context (that of a cleanup is often cancelled), and
// may be called again.
func (c *ControlPlane) Stop() error {
	// Only etcd gets a grace period: the others' results are no longer used,
	// and its data could matter to a kept folder.
	errs := []error{c.KillControllerManager(), c.KillAPIServer(), c.child(&c.etcd).Stop(context.Background(), stopGrace)}
	if c.removeDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// ServingCA is the authority that the API server's certificate comes from.
func (c *ControlPlane) ServingCA() *CA { return c.servingCA }

// SignUser signs a certificate by the API server's client CA: the
// common name is the user, the organizations are the groups ("system:masters"
// for an administrator).
func (c *ControlPlane) SignUser(lifetime time.Duration, commonName string, organizations ...string) (*KeyPair, error) {
	return c.clientCA.Client(lifetime, commonName, organizations...)
}

// Dir is the folder of data, certificates and logs.
func (c *ControlPlane) Dir() string { return c.dir }

// auditLog is there with Options.Audit only.
func (c *ControlPlane) auditLog() string { return c.logPath("audit") }

// logPath is where a server writes, over all its runs.
func (c *ControlPlane) logPath(name string) string { return c.file(name + ".log") }

// Address is the API server's host:port, the same over its whole life.
func (c *ControlPlane) Address() string { return loopback(c.port) }

// EtcdURL is where clients of etcd connect.
func (c *ControlPlane) EtcdURL() string { return c.etcdURL }

// URL is the API server's, by IP address.
func (c *ControlPlane) URL() string { return "https://" + c.Address() }

// Credential is who a client is. The zero value is anonymous.
type Credential struct {
	Token       string
	Certificate *KeyPair
}

// RESTConfig is an administrator's (system:masters), without client-side rate
// limits.
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
