//go:build integration

package operator

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// reporterBinary is built for the first test that runs one.
var reporterBinary = sync.OnceValues(func() (string, error) { return program.Build(filepath.Dir(binary), "kms-health-reporter") })

// reporter is a process with a plugin of its own, that reports once a second for a
// node under the rights of the delivered reporters.
type reporter struct {
	node    string
	plugin  *kmsplugin.Plugin
	process *exec.Cmd
	ended   chan error
}

// startReporters runs one for each node. plugin is theirs; nil: each has its own.
func startReporters(t *testing.T, server apiservers.Server, namespace, interval string, plugin *kmsplugin.Plugin) []*reporter {
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
	token, err := cluster.ServiceAccountToken(t.Context(), namespace, manifests.Name(server.Name), controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.WriteKubeconfig(filepath.Join(dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*reporter
	for _, node := range nodeNames {
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
		r.process.Stdout, r.process.Stderr = log, log
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

// resource is an operator resource as it is now.
func resource(t *testing.T, server apiservers.Server) *operatorcr.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	o, err := client.Resource(controlplane.OperatorGVR(server.Resource)).Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return operatorcr.Read(o)
}

// awaitRollUp waits until a condition has a status and a reason, and returns it.
func awaitRollUp(t *testing.T, server apiservers.Server, conditionType, status, reason string) (c operatorcr.Condition) {
	t.Helper()
	eventually(t, conditionType+" is "+status+", "+reason, func() error {
		c = resource(t, server).Conditions[conditionType]
		if c.Status != status || c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	return c
}

// lastChecked is a node's last report.
func lastChecked(t *testing.T, server apiservers.Server, node string) health.Entry {
	t.Helper()
	for _, r := range resource(t, server).Reports {
		if r.Node == node && len(r.Entries) > 0 {
			return r.Entries[0]
		}
	}
	t.Fatalf("%s has not reported", node)
	return health.Entry{}
}

// agePods makes the pods of a namespace look as if they had run for an hour: in the
// minutes after a start, missing reports are excused.
func agePods(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the pods of "+namespace+" have run for an hour", func() error {
		pods, err := kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		young := 0
		since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.StartTime == nil || p.Status.StartTime.After(since.Add(time.Minute)) {
				young++
				p.Status.StartTime = &since
				for j := range p.Status.ContainerStatuses {
					if r := p.Status.ContainerStatuses[j].State.Running; r != nil {
						r.StartedAt = since
					}
				}
				if _, err := kube.CoreV1().Pods(namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
		}
		if young > 0 || len(pods.Items) == 0 {
			return fmt.Errorf("%d of %d are young", young, len(pods.Items))
		}
		return nil
	})
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
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := cluster.AuditFence(ctx); err != nil {
		t.Fatal(err)
	}
	events, err := audit.ByUser(user, func(e *auditv1.Event) bool {
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
	return writesOf(t, controlplane.ServiceAccountUser(operatorNamespace, install.ServiceAccount))
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

// watchResource follows an operator resource, and calls see with each of its
// versions, until the test ends.
func watchResource(t *testing.T, server apiservers.Server, see func(at time.Time, r *operatorcr.Status)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	removeTarget := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(removeTarget)
		var once sync.Once
		for ctx.Err() == nil {
			w, err := client.Resource(controlplane.OperatorGVR(server.Resource)).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + controlplane.ClusterObject})
			once.Do(func() { close(started) })
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			for event := range w.ResultChan() {
				if o := asUnstructured(event.Object); o != nil {
					see(time.Now(), operatorcr.Read(o))
				}
			}
		}
	}()
	<-started
	t.Cleanup(func() { cancel(); <-removeTarget })
}

// nodesOf are the nodes with a report.
func nodesOf(r *operatorcr.Status) []string {
	all := map[string]bool{}
	for _, report := range r.Reports {
		all[report.Node] = true
	}
	return slices.Sorted(maps.Keys(all))
}
