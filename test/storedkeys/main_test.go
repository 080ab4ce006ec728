//go:build integration

package storedkeys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// binary is the path of the kubectl plugin.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kms-health-stored-keys")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		binary, err = program.Build(dir, "cmd/kubectl-kms_health")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// command returns stored-keys with these arguments, and without etcdctl's environment variables.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"stored-keys"}, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS=", "ETCDCTL_CACERT=", "ETCDCTL_CERT=", "ETCDCTL_KEY=")
	return cmd
}

func output(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// connect returns a client of an etcd, until the test ends.
func connect(t *testing.T, url string, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Endpoints = []string{url}
	client, err := clientv3.New(config)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// row is a row of the inventory.
type row struct {
	Resource, Provider, KEKID string
	Objects                   int
}

// inventory is a part of the output of -o json.
type inventory struct {
	Rows []row
}

// read reads etcd with -o json.
func read(t *testing.T, args ...string) (i inventory) {
	t.Helper()
	code, stdout, stderr := output(t, command(t, append(args, "-o", "json")...))
	if code != 0 || stderr != "" {
		t.Fatalf("%d, %s", code, stderr)
	}
	must.Succeed(t, json.Unmarshal([]byte(stdout), &i))
	i.Rows = slices.DeleteFunc(i.Rows, func(r row) bool { return strings.HasSuffix(r.Resource, "others)") })
	return i
}
