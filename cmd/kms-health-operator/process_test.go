package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
)

// waitLimit bounds each wait.
const waitLimit = 30 * time.Second

// asMain makes the test binary run main.
const asMain = "KMS_HEALTH_OPERATOR_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// child is an operator in a child process.
type child struct {
	*program.Child
	config string // its file, which does not exist at first
}

// start runs the operator with an API server. It is cleaned up after the test.
func start(t *testing.T, server string, stderr *os.File, args ...string) *child {
	t.Helper()
	dir := t.TempDir()
	p := &child{config: filepath.Join(dir, "config.yaml")}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	disk.Write(t, kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server))
	cmd := exec.Command(os.Args[0], append([]string{"start", "--config", p.config, "--kubeconfig", kubeconfig,
		"--image", "reporter:1",
		"--metrics-bind-address", "127.0.0.1:0", "--health-bind-address", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Stdout, cmd.Stderr = stderr, stderr
	p.Child = program.Start(t, cmd)
	return p
}

// Messages of an API server, and keys of the configuration, are untrusted.
func TestUntrustedTextForgesNoLogLineAndControlsNoTerminal(t *testing.T) {
	const forged = `E1122 10:00:00.000000       1 forged.go:1] "Forged"`
	hostile := "x\n" + forged + "\x1b[2J\r\u0085\u009b2J\u2028\u202e\x7f"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403,
			Reason: metav1.StatusReasonForbidden, Message: hostile,
		})
	}))
	t.Cleanup(server.Close)
	var log program.Output
	p := start(t, server.URL, log.Pipe(t), "-v=2")
	log.Await(t, waitLimit, "forged.go")
	disk.Write(t, p.config, []byte("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"+
		"apiServers: []\n"+strconv.QuoteToASCII(hostile)+": 1\n")) // YAML knows Go's escapes
	log.Await(t, waitLimit, "config.yaml: ")
	if code, _ := p.End(t, waitLimit, syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	log.Await(t, waitLimit, `"Ended"`)
	line := regexp.MustCompile(`^[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-zA-Z_]+\.go:\d+\] ".*$`)
	for _, l := range strings.Split(strings.TrimSuffix(log.Text(), "\n"), "\n") {
		// library-go's line about the lease is not structured. It contains no untrusted text.
		l = strings.Replace(l, "] The leader election gives ", `] "The leader election gives `, 1)
		if !line.MatchString(l) || strings.HasPrefix(l, "E1122 10:00:00.000000 ") {
			t.Errorf("not a log line of the operator: %q", l)
		}
		for _, r := range l {
			if r < ' ' || r >= 0x7f && r != '…' {
				t.Errorf("raw %U in %q", r, l)
				break
			}
		}
	}
}

// An administrator who applies the single-node manifests without the second command of the page has a pod that is
// Ready but cannot connect.
func TestLogNamesTheStepThatSetsTheCA(t *testing.T) {
	var log program.Output
	p := start(t, "https://127.0.0.1:1", log.Pipe(t), "--keep-ca")
	log.Await(t, waitLimit, "single-node.md")
	if code, _ := p.End(t, waitLimit, syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
