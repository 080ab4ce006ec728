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
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// reporter is a reporter's process, its files and its identity.
type reporter struct {
	t       *testing.T
	node    string // also the name of its ServiceAccount
	dir     string
	file    string // its configuration
	checks  string // more fields of probe in its configuration
	serving string
	podUID  string // the pod's UID, as the downward API gives it; empty: not in a pod
	process *program.Child
	log     program.Output
	printed *program.Output // of this process
	seen    int             // bytes of the log that were read
}

// newReporter prepares a reporter for a node that is named after the test. It may write to kube-apiserver's operator
// resource. start starts it.
func newReporter(t *testing.T) *reporter {
	dir := program.SocketDir(t)
	r := &reporter{
		t: t, dir: dir, file: filepath.Join(dir, "config.yaml"), serving: controlplane.FreeAddress(t),
		node: strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(t.Name())),
	}
	must.Succeed(t, cluster.CreateServiceAccount(soon(t), namespace, r.node))
	must.Succeed(t, cluster.AllowStatusPatch(soon(t), r.user(), resource))
	r.token("")
	return r
}

// reporting returns a reporter that reports on one healthy plugin, 1.
func reporting(t *testing.T) (*reporter, *kmsplugin.Plugin) {
	r := newReporter(t)
	one := r.plugin("1")
	r.configure(toKube, "1:Write")
	r.start()
	r.freshCondition("1=healthy")
	return r, one
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func (r *reporter) user() string { return controlplane.ServiceAccountUser(namespace, r.node) }

// token writes a new token for the reporter, and a kubeconfig with this server, into files that it watches. An empty
// server is the cluster's.
func (r *reporter) token(server string) {
	token, err := cluster.ServiceAccountToken(soon(r.t), namespace, r.node, controlplane.TokenOptions{})
	must.Succeed(r.t, err)
	_, err = cluster.WriteKubeconfig(r.credentials(), controlplane.Kubeconfig{
		Server: server, Credential: controlplane.Credential{Token: token},
	})
	must.Succeed(r.t, err)
}

func (r *reporter) credentials() string { return filepath.Join(r.dir, "credentials") }

func (r *reporter) endpoint(keyID string) string {
	return "unix://" + filepath.Join(r.dir, "kms-"+keyID+".sock")
}

// plugin starts a real plugin for the reporter.
func (r *reporter) plugin(keyID string, faults ...kmsplugin.Fault) *kmsplugin.Plugin {
	return kmsplugin.StartForTest(r.t, kmsplugin.Options{
		Endpoint: r.endpoint(keyID), StateDir: filepath.Join(r.dir, "state-"+keyID), Faults: faults,
	})
}

// probes waits for more probes of a plugin.
func probes(t *testing.T, plugin *kmsplugin.Plugin, more int64) {
	must.Succeed(t, plugin.WaitForCalls(soon(t), kmsplugin.CallStatus, plugin.Calls(kmsplugin.CallStatus).Count+more))
}

// toKube is the destination of most reporters.
const toKube = "resource: " + resource

// configure writes the configuration file. destination has the fields that differ; empty: none. plugins are
// keyID:role.
func (r *reporter) configure(destination string, plugins ...string) {
	text := fmt.Sprintf("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n"+
		"probe: {interval: 1s%s}\nserving: {address: '%s'}\n", r.checks, r.serving)
	if destination != "" {
		text += fmt.Sprintf("destination: {%s, kubeconfig: %s, writeTimeout: 2s}\n", destination,
			filepath.Join(r.credentials(), controlplane.KubeconfigFile))
	}
	text += "plugins:\n"
	for _, p := range plugins {
		keyID, role, _ := strings.Cut(p, ":")
		text += fmt.Sprintf("- {endpoint: '%s', role: %s}\n", r.endpoint(keyID), role)
	}
	must.Succeed(r.t, disk.Replace(r.file, []byte(text)))
}

func (r *reporter) start(args ...string) {
	cmd := exec.Command(binary, append([]string{"--config", r.file, "--node-name", r.node}, args...)...)
	r.printed = &program.Output{}
	cmd.Env = append(os.Environ(), contract.PodUIDVariable+"="+r.podUID)
	cmd.Stdout, cmd.Stderr = r.printed, &r.log
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
	written := func() string {
		_, text := r.get("/metrics")
		_, rest, _ := strings.Cut(text, `kms_health_reporter_writes_total{result="`+result+`"} `)
		number, _, _ := strings.Cut(rest, "\n")
		return number
	}
	before := written()
	eventually(r.t, "another write ends as "+result, func() bool { now := written(); return now != "" && now != before })
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
