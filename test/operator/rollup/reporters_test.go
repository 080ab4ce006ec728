//go:build integration

package rollup

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// reporterBinary is built for the first test that runs one.
var reporterBinary = sync.OnceValues(func() (string, error) { return program.Build(filepath.Dir(fixture.Binary), "cmd/kms-health-reporter") })

// reporter is a process with a plugin of its own, that reports once a second for a
// node under the rights of the delivered reporters.
type reporter struct {
	node    string
	plugin  *kmsplugin.Plugin
	process *exec.Cmd
	log     string // its file
	ended   chan error
}

// startReporters runs one for each node, or for those that are given. plugin is theirs; nil:
// each has its own.
func startReporters(t *testing.T, server apiservers.Server, namespace, interval string, plugin *kmsplugin.Plugin, nodes ...string) []*reporter {
	t.Helper()
	path, err := reporterBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kms") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	token, err := fixture.Cluster.ServiceAccountToken(t.Context(), namespace, manifests.Name(server.Name), controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := fixture.Cluster.WriteKubeconfig(filepath.Join(dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*reporter
	if len(nodes) == 0 {
		nodes = fixture.NodeNames
	}
	for _, node := range nodes {
		r := &reporter{node: node, plugin: plugin, ended: make(chan error, 1)}
		folder := filepath.Join(dir, node)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if plugin == nil {
			// One remote key for all.
			r.plugin, err = kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(folder, "kms-1.sock"), StateDir: filepath.Join(dir, "key")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.plugin.Close() })
		}
		config := fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: %s}
plugins: [{keyID: "1", endpoint: %q, role: Write, timeout: 1s}]
destination: {resource: %s, kubeconfig: %s}
`, interval, r.plugin.Endpoint(), server.Resource, kubeconfig)
		file := filepath.Join(folder, "config.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		r.process = exec.Command(path, "--config", file, "--node-name", node)
		log, err := os.Create(filepath.Join(folder, "log"))
		if err != nil {
			t.Fatal(err)
		}
		r.process.Stdout, r.process.Stderr, r.log = log, log, log.Name()
		if err := r.process.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { r.ended <- r.process.Wait() }()
		t.Cleanup(func() {
			r.kill(t)
			if text, _ := os.ReadFile(log.Name()); t.Failed() {
				t.Logf("the reporter of %s:\n%s", node, tail(string(text)))
			}
			_ = log.Close()
		})
		all = append(all, r)
	}
	return all
}

// kill ends it by SIGKILL.
func (r *reporter) kill(t *testing.T) {
	t.Helper()
	if r.process == nil {
		return
	}
	_ = r.process.Process.Signal(syscall.SIGKILL)
	select {
	case err := <-r.ended:
		t.Logf("the reporter of %s ended: %v", r.node, err)
	case <-time.After(20 * time.Second):
		t.Error("a reporter goes on after SIGKILL")
	}
	r.process = nil
}

// signal stops or continues it.
func (r *reporter) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.process.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// lastChecked is a node's last report.
func lastChecked(t *testing.T, server apiservers.Server, node string) health.Entry {
	t.Helper()
	for _, r := range fixture.Resource(t, server).Reports {
		if r.Node == node && len(r.Entries) > 0 {
			return r.Entries[0]
		}
	}
	t.Fatalf("%s has not reported", node)
	return health.Entry{}
}

// written is a write that the API server's log has: when it was answered, and how.
type written struct {
	at   time.Time
	code int32 // of the answer
	what string
}

// writesOf are the operator's writes since it was made, but those of its lease,
// or a reporter's.
func writesOf(t *testing.T, user string) []written {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
	defer cancel()
	if err := fixture.Cluster.AuditFence(ctx); err != nil {
		t.Fatal(err)
	}
	events, err := fixture.Audit.ByUser(user, func(e *auditv1.Event) bool {
		return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && (e.ObjectRef == nil || e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events")
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []written
	for _, e := range events {
		w := written{at: e.StageTimestamp.Time}
		if e.ResponseStatus != nil {
			w.code = e.ResponseStatus.Code
		}
		w.what = fmt.Sprintf("%s %d %s %s", e.StageTimestamp.Format("15:04:05.000"), w.code, e.Verb, e.RequestURI)
		all = append(all, w)
	}
	return all
}

// operatorWrites are the operator's.
func operatorWrites(t *testing.T) []written {
	t.Helper()
	return writesOf(t, controlplane.ServiceAccountUser(fixture.Namespace, install.ServiceAccount))
}

func texts(all []written) string {
	var lines []string
	for _, w := range all {
		lines = append(lines, w.what)
	}
	return strings.Join(lines, "\n")
}

// awaitNoWrites waits until the operator has written nothing for a while.
func awaitNoWrites(t *testing.T) []written {
	t.Helper()
	const while = 3 * time.Second
	all, since := operatorWrites(t), time.Now()
	for time.Since(since) < while {
		time.Sleep(100 * time.Millisecond)
		if now := operatorWrites(t); len(now) != len(all) {
			all, since = now, time.Now()
		}
	}
	return all
}

// nodesOf are the nodes with a report.
func nodesOf(r *operatorcr.Status) []string {
	all := map[string]bool{}
	for _, report := range r.Reports {
		all[report.Node] = true
	}
	return slices.Sorted(maps.Keys(all))
}
