//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// reporter is a reporter's process, its files and its identity.
type reporter struct {
	t       *testing.T
	node    string
	user    string
	dir     string
	file    string // its configuration
	serving string
	podUID  string // the pod's UID, as the downward API gives it; empty: not in a pod
	process *program.Child
	log     program.Output
	seen    int // bytes of the log that were read
}

// newReporter prepares a reporter for a node that is named after the test. It may write to these resources. start
// starts it.
func newReporter(t *testing.T, resources ...string) *reporter {
	t.Helper()
	dir := program.SocketDir(t)
	node := strings.ToLower(strings.Trim(strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(t.Name()), "-"))
	if len(node) > 200 {
		node = node[:200]
	}
	r := &reporter{
		t: t, dir: dir, node: node, file: filepath.Join(dir, "config.yaml"),
		user: controlplane.ServiceAccountUser(namespace, short(node)),
	}
	r.serving = controlplane.FreeAddress(t)
	ctx := soon(t)
	if err := cluster.CreateServiceAccount(ctx, namespace, short(node)); err != nil {
		t.Fatal(err)
	}
	if len(resources) > 0 {
		if err := cluster.AllowStatusPatch(ctx, r.user, resources...); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// reporting returns a reporter that reports on one healthy plugin, 1, to
// kube-apiserver's operator resource.
func reporting(t *testing.T) (*reporter, *kmsplugin.Plugin) {
	t.Helper()
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1")
	r.configure(resource, "1:Write")
	r.start()
	r.freshCondition("1=healthy")
	return r, one
}

func short(name string) string { return strings.Trim(name[:min(len(name), 60)], "-.") }

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// token writes a new token for the reporter, into files that it watches.
func (r *reporter) token() {
	r.t.Helper()
	token, err := cluster.ServiceAccountToken(soon(r.t), namespace, short(r.node), controlplane.TokenOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
}

func (r *reporter) credentials(k controlplane.Kubeconfig) {
	r.t.Helper()
	if _, err := cluster.WriteKubeconfig(r.credentialDir(), k); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reporter) credentialDir() string { return filepath.Join(r.dir, "credentials") }

func (r *reporter) endpoint(keyID string) string {
	return "unix://" + filepath.Join(r.dir, "kms-"+keyID+".sock")
}

// plugin starts a real plugin for the reporter.
func (r *reporter) plugin(keyID string, faults ...kmsplugin.Fault) *kmsplugin.Plugin {
	r.t.Helper()
	p := kmsplugin.StartForTest(r.t, kmsplugin.Options{Endpoint: r.endpoint(keyID), StateDir: filepath.Join(r.dir, "state-"+keyID), Faults: faults})
	return p
}

// configure writes the configuration file. plugins are keyID:role. An empty resource means no destination.
func (r *reporter) configure(resource string, plugins ...string) {
	r.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe: {interval: 1s}\n")
	fmt.Fprintf(&b, "serving: {address: '%s'}\n", r.serving)
	if resource != "" {
		fmt.Fprintf(&b, "destination: {resource: %s, kubeconfig: %s, writeTimeout: 2s}\n", resource, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile))
	}
	b.WriteString("plugins:")
	for _, p := range plugins {
		keyID, role, _ := strings.Cut(p, ":")
		fmt.Fprintf(&b, "\n- {endpoint: '%s', role: %s}", r.endpoint(keyID), role)
	}
	if len(plugins) == 0 {
		b.WriteString(" []")
	}
	r.write([]byte(b.String() + "\n"))
}

func (r *reporter) write(content []byte) {
	r.t.Helper()
	if err := disk.Replace(r.file, content); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reporter) start() {
	r.t.Helper()
	cmd := exec.Command(binary, "--config", r.file, "--node-name", r.node)
	cmd.Env, cmd.Stderr = os.Environ(), &r.log
	if r.podUID != "" {
		cmd.Env = append(cmd.Env, contract.PodUIDVariable+"="+r.podUID)
	}
	r.process = program.Start(r.t, cmd)
	r.t.Cleanup(r.stop)
}

// stop ends the process as a kubelet does, and checks that the exit code is 0.
func (r *reporter) stop() {
	select {
	case <-r.process.Ended:
		return // it has ended already
	default:
	}
	if code, _ := r.process.End(r.t, waitLimit, syscall.SIGTERM); code != 0 {
		r.t.Errorf("the reporter ended with %d", code)
	}
	if r.t.Failed() {
		r.t.Logf("the reporter's log:\n%s", r.log.Text())
	}
}

// logged waits for a new line that contains all texts.
func (r *reporter) logged(texts ...string) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("logged: %q", texts), func() bool {
		for text := r.log.Text(); ; {
			line, _, whole := strings.Cut(text[r.seen:], "\n")
			if !whole {
				return false
			}
			r.seen += len(line) + 1
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return true
			}
		}
	})
}

// count returns how often a text is in the log so far.
func (r *reporter) count(text string) int { return strings.Count(r.log.Text(), text) }

func (r *reporter) get(path string) (int, string) {
	client := http.Client{Timeout: waitLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + r.serving + path)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(response.Body); err != nil {
		return 0, ""
	}
	return response.StatusCode, b.String()
}

// writes waits until one more write ends with a result.
func (r *reporter) writes(result string) {
	r.t.Helper()
	before := r.written(result)
	eventually(r.t, "another write ends as "+result, func() bool { now := r.written(result); return now != "" && now != before })
}

// written returns how many writes ended with a result so far. Empty: none.
func (r *reporter) written(result string) string {
	_, text := r.get("/metrics")
	_, rest, _ := strings.Cut(text, `kms_health_reporter_writes_total{result="`+result+`"} `)
	number, _, _ := strings.Cut(rest, "\n")
	return number
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait.Eventually(t, waitLimit, what, func() error {
		if !ok() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// entriesAre reports whether the entries are exactly these keyID=status, in this order.
func entriesAre(entries []contract.Entry, want ...string) bool {
	var got []string
	for _, e := range entries {
		got = append(got, e.KeyID+"="+string(e.Status))
	}
	return strings.Join(got, " ") == strings.Join(want, " ")
}
