//go:build integration

package parity

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// runtimeCapabilities are the default capabilities of root in a container.
const runtimeCapabilities = "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid,+net_bind_service"

// users are the users that run kube-apiserver and a reporter.
var users = []struct {
	name, owner string
	flags       string // for setpriv(1)
	environment string // the value of contract.APIServerUserVariable
	connects    []bool // whether it can connect, by socket
}{
	{"root", "0:0", "--reuid 0 --regid 0 --clear-groups --bounding-set=" + runtimeCapabilities,
		"0:0 groups 0 DAC_OVERRIDE", []bool{true, true, true}},
	{"root without DAC_OVERRIDE", "0:0", "--reuid 0 --regid 0 --clear-groups --bounding-set=-all",
		"0:0 groups 0", []bool{false, false, true}},
	{"nobody, in the group", "65534:65534", "--reuid 65534 --regid 65534 --groups 65531 --bounding-set=-all",
		"65534:65534 groups 65534 65531", []bool{false, true, false}},
}

var sockets = []struct {
	name     string
	uid, gid int
	mode     os.FileMode
}{
	{"0755 of another user", 65532, 65532, 0o755},
	{"0660 with a group", 65532, 65531, 0o660},
	{"0600 of root", 0, 0, 0o600},
}

// asUser is a script that starts kube-apiserver as the user in the files owner and flags in its folder. It changes the
// owner of the server's files. The user need not have access to the folder of kube-apiserver's binary.
const asUser = `#!/bin/sh
exec 9<"%[2]s"
chown -R "$(cat "%[1]s/owner")" "%[1]s/server" || exit
exec setpriv --inh-caps=-all $(cat "%[1]s/flags") /proc/self/fd/9 "$@"
`

// The test runs kube-apiserver and a reporter as each user, with a plugin at each socket. It must run as root.
func TestUsersReachTheSocketsThatKubeAPIServerReaches(t *testing.T) {
	skipUnlessCompared(t)
	dir := program.SocketDir(t)
	must.Succeed(t, os.Chmod(dir, 0o755)) // all users must read the files
	reporter, err := program.Build(dir, "cmd/kms-health-reporter")
	must.Succeed(t, err)
	encryption, config := startSockets(t, dir)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	must.Succeed(t, errors.Join(
		os.Symlink(filepath.Join(assets, "etcd"), filepath.Join(dir, "etcd")),
		os.WriteFile(filepath.Join(dir, "kube-apiserver"),
			fmt.Appendf(nil, asUser, dir, filepath.Join(assets, "kube-apiserver")), 0o755),
	))
	become := func(owner, flags string) {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o644))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "flags"), []byte(flags), 0o644))
	}
	become(users[0].owner, users[0].flags)
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	server := controlplane.StartForTest(t, controlplane.Options{Dir: filepath.Join(dir, "server")})
	for _, user := range users {
		t.Run(user.name, func(t *testing.T) {
			become(user.owner, user.flags)
			restart(t, server, encryption)
			theirs := opinionsOf(t, server, len(sockets))
			ours := onceAs(t, user.flags, user.environment, reporter, config)
			for i, s := range sockets {
				if (theirs[i] == "") != user.connects[i] {
					t.Errorf("%s: kube-apiserver: %q", s.name, theirs[i])
				}
				if (ours[i] == "") != (theirs[i] == "") || ours[i] == notReported {
					t.Errorf("%s: the reporter: %q, kube-apiserver: %q", s.name, ours[i], theirs[i])
				}
			}
		})
	}
}

// startSockets starts a plugin at each socket. It returns kube-apiserver's configuration, and the path of the
// reporter's.
func startSockets(t *testing.T, dir string) (encryption []byte, config string) {
	var file strings.Builder
	file.WriteString("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nplugins:\n")
	encryption = []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for i, s := range sockets {
		socket := filepath.Join(dir, strconv.Itoa(i)+".sock")
		plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: socket + ".keys"})
		must.Succeed(t, errors.Join(os.Chown(socket, s.uid, s.gid), os.Chmod(socket, s.mode)))
		fmt.Fprintf(&file, "- {keyID: %q, endpoint: %q, role: Write}\n", strconv.Itoa(i), plugin.Endpoint())
		encryption = fmt.Appendf(encryption, `- resources: [users%d.parity.example.com]
  providers: [{kms: {apiVersion: v2, name: parity-%[1]d, endpoint: %q, timeout: %s}}]
`, i, plugin.Endpoint(), timeout)
	}
	config = filepath.Join(dir, "config.yaml")
	must.Succeed(t, os.WriteFile(config, []byte(file.String()), 0o644))
	return encryption, config
}

// onceAs returns the verdicts of a reporter that runs with these flags of setpriv. apiServer is the API server's user
// in its environment.
func onceAs(t *testing.T, flags, apiServer, reporter, config string) []opinion {
	args := append([]string{"--inh-caps=-all"}, strings.Fields(flags)...)
	cmd := exec.Command("setpriv", append(args, reporter, "--once", "--config", config)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), contract.APIServerUserVariable + "=" + apiServer}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	opinions := slices.Repeat([]opinion{notReported}, len(sockets))
	for number, e := range entriesOf(t, stdout.String()) {
		if opinions[number] = ""; e.Status != contract.Healthy {
			opinions[number] = opinion(fmt.Sprintf("%s %s: %s", e.Status, e.Reason, e.Detail))
		}
	}
	t.Logf("stderr: %s", stderr.String())
	return opinions
}
