package controlplane

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// Etcd is an etcd without an API server.
type Etcd struct {
	URL   string
	child *Child
}

// PID returns the process ID.
func (e *Etcd) PID() int { return e.child.PID() }

// StartEtcdForTest starts an etcd that ends with the test. If client is not nil, etcd serves TLS: flags must name its
// certificates, and client is used to wait until it is healthy.
func StartEtcdForTest(t testing.TB, client *tls.Config, flags ...string) *Etcd {
	t.Helper()
	port, err := freePort()
	must.Succeed(t, err)
	path, err := binary("etcd")
	must.Succeed(t, err)
	url, dir := "http://"+loopback(port), t.TempDir()
	if client != nil {
		url = "https://" + loopback(port)
	}
	args := append(etcdArgs(url, filepath.Join(dir, "data")), "--unsafe-no-fsync")
	child, err := StartChild("etcd", path, program.OthersEnv(), append(args, flags...), filepath.Join(dir, "etcd.log"))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, child.Kill()) })
	err = child.await(t.Context(), func(ctx context.Context) error { return get(ctx, client, url+"/health", "") })
	must.Succeed(t, err)
	return &Etcd{URL: url, child: child}
}

// etcdArgs are the flags of a single member.
func etcdArgs(url, dir string) []string {
	return []string{
		"--name=default",
		"--data-dir=" + dir,
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		// A single member has no peers. Port 0 avoids the fixed default port.
		"--listen-peer-urls=http://127.0.0.1:0",
		"--log-level=warn",
	}
}
