package controlplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	etcdStartTimeout = 20 * time.Second
	etcdStopGrace    = 5 * time.Second
	etcdCallTimeout  = 5 * time.Second
)

// No connection is kept: these calls are few, and an idle one is a goroutine
// that leak checks see.
var etcdClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ErrKeyNotFound is EtcdGet's answer for a key that etcd does not hold.
var ErrKeyNotFound = errors.New("no such key in etcd")

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	path, err := binary("etcd")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()
	return retryPort(func() (string, error) {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		c.etcdURL = "http://" + loopback(port)
		p, err := startProcess("etcd", path, program.OthersEnv(), []string{
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
			return "", err
		}
		c.etcd = p
		err = p.await(ctx, func(ctx context.Context) error {
			return getOK(ctx, etcdClient, c.etcdURL+"/health", "")
		})
		if err == nil {
			return "", nil
		}
		log := logTail(p.logPath)
		return log, errors.Join(p.explain(fmt.Errorf("start etcd: %w", err)), p.kill())
	})
}

// EtcdGet returns the bytes that etcd stores under key, past the API server:
// the proof of what is encrypted. The key of a Secret is
// /registry/secrets/<namespace>/<name>, of a custom resource
// /registry/<group>/<plural>/<name>. It is ErrKeyNotFound when there is none.
func (c *ControlPlane) EtcdGet(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdCallTimeout)
	defer cancel()
	// etcd's gRPC gateway: JSON with base64 fields, so no etcd client is linked.
	body, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := etcdClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s from etcd: %s: %s", key, response.Status, answer)
	}
	var found struct {
		KVs []struct {
			Value string `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if len(found.KVs) == 0 {
		return nil, fmt.Errorf("%s: %w", key, ErrKeyNotFound)
	}
	return base64.StdEncoding.DecodeString(found.KVs[0].Value)
}
