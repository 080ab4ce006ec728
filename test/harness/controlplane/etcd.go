package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	etcdStartTimeout = 20 * time.Second
	etcdStopGrace    = 5 * time.Second
)

// No connection is kept: these calls are few, and an idle one is a goroutine
// that leak checks see.
var etcdClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	path, err := binary("etcd")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return err
	}
	c.etcdURL = "http://" + loopback(port)
	p, err := StartChild("etcd", path, program.OthersEnv(), []string{
		"--name=default",
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + c.etcdURL,
		"--advertise-client-urls=" + c.etcdURL,
		// A single member has no peers; port 0 keeps the fixed default free.
		"--listen-peer-urls=http://127.0.0.1:0",
		// Data must survive a killed API server, not a power cut.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, c.logPath("etcd"))
	if err != nil {
		return err
	}
	c.etcd = p
	err = p.await(ctx, func(ctx context.Context) error {
		return getOK(ctx, etcdClient, c.etcdURL+"/health", "")
	})
	if err != nil {
		return errors.Join(p.explain(fmt.Errorf("start etcd: %w", err)), p.Kill())
	}
	return nil
}
