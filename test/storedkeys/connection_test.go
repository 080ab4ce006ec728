//go:build integration

package storedkeys

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// pki is kubeadm's folder /etc/kubernetes/pki, with the files for etcd.
type pki struct {
	dir    string
	client *tls.Config
}

func write(t *testing.T, dir, name string, pair *controlplane.KeyPair) {
	t.Helper()
	for file, content := range map[string][]byte{name + ".crt": pair.Cert, name + ".key": pair.Key} {
		disk.Write(t, filepath.Join(dir, file), content)
	}
}

func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	ca, err := controlplane.NewCA("etcd-ca")
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "etcd"), 0o700))
	disk.Write(t, filepath.Join(dir, "etcd/ca.crt"), ca.PEM())
	server, err := ca.Serving("node-1", "localhost", "127.0.0.1")
	must.Succeed(t, err)
	client, err := ca.Client(time.Hour, "kube-apiserver-etcd-client")
	must.Succeed(t, err)
	write(t, dir, "etcd/server", server)
	write(t, dir, "apiserver-etcd-client", client)
	pair, err := tls.X509KeyPair(client.Cert, client.Key)
	must.Succeed(t, err)
	return pki{dir, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}}
}

// flags returns the flags of etcd in kubeadm's static pod.
func (p pki) flags() []string {
	return []string{"--client-cert-auth=true", "--trusted-ca-file=" + p.dir + "/etcd/ca.crt",
		"--cert-file=" + p.dir + "/etcd/server.crt", "--key-file=" + p.dir + "/etcd/server.key"}
}

func TestErrorsOfAConnectionSayWhereAndWhatToCheck(t *testing.T) {
	ours, other := newPKI(t), newPKI(t)
	server := controlplane.StartEtcdForTest(t, ours.client, ours.flags()...)
	client := connect(t, server.URL, clientv3.Config{TLS: ours.client})
	_, err := client.Put(t.Context(), "/registry/secrets/default/a", "k8s:enc:aescbc:v1:key1:x")
	must.Succeed(t, err)
	address := strings.TrimPrefix(server.URL, "https://")
	ca, cert, key := "--cacert=etcd/ca.crt", "--cert=apiserver-etcd-client.crt", "--key=apiserver-etcd-client.key"
	at := func(more ...string) []string { return append(more, "--endpoints="+server.URL) }
	check := "etcd at " + server.URL + ": "
	for name, tt := range map[string]struct {
		args []string
		env  string
		code int
		want string
	}{
		"an address alone":              {[]string{"--endpoints=" + address, ca, cert, key}, "", 0, "Encrypted: 1 of 1 objects"},
		"two addresses":                 {[]string{"--endpoints=https://127.0.0.1:1," + server.URL, ca, cert, key}, "", 3, "must be one address: each member of a cluster has all objects"},
		"etcdctl's environment":         {[]string{cert, key}, "ETCDCTL_CACERT=etcd/ca.crt ETCDCTL_ENDPOINTS=" + server.URL, 0, "Encrypted: 1 of 1 objects"},
		"a flag over it":                {at(ca, cert, key), "ETCDCTL_ENDPOINTS=127.0.0.1:1", 0, "Encrypted: 1 of 1 objects"},
		"without certificates":          {at(), "", 3, check},
		"without TLS":                   {[]string{"--endpoints=http://" + address}, "", 3, "Check --endpoints (https:// where etcd has TLS)"},
		"without the client's":          {at(ca), "", 3, check},
		"of another CA":                 {at(ca, "--cert="+other.dir+"/apiserver-etcd-client.crt", "--key="+other.dir+"/apiserver-etcd-client.key"), "", 3, check},
		"with another CA":               {at("--cacert="+other.dir+"/etcd/ca.crt", cert, key), "", 3, "signed by unknown authority"},
		"nothing listens":               {[]string{"--endpoints=127.0.0.1:1"}, "", 3, "connection refused"},
		"a name that is unknown":        {[]string{"--endpoints=etcd.invalid:2379"}, "", 3, "etcd at etcd.invalid:2379: "},
		"a key without its pair":        {at(ca, cert), "", 3, "--cacert, --cert and --key: KeyFile and CertFile must both be present"},
		"no such file":                  {at("--cacert=nothing.crt"), "", 3, "--cacert, --cert and --key: open nothing.crt: no such file"},
		"a file that is no certificate": {at("--cacert=apiserver-etcd-client.key"), "", 3, "--cacert, --cert and --key: x509: "},
		"a key that is another's":       {at(ca, cert, "--key=etcd/server.key"), "", 3, "--cacert, --cert and --key: tls: private key does not match"},
		"another prefix":                {at(ca, cert, key, "--etcd-prefix=/k8s"), "", 3, "no key below /k8s: set --etcd-prefix"},
		"a KEK ID of an unset variable": {at(ca, cert, key, "--kek-id="), "", 3, `--kek-id: "" is empty, in quotes, or shortened`},
		"a KEK ID as status shows it":   {at(ca, cert, key, "--kek-id=arn:aws…1234abcd"), "", 3, `--kek-id: "arn:aws…1234abcd" is empty, in quotes, or shortened`},
		"a KEK ID in quotes of JSON":    {at(ca, cert, key, `--kek-id="key-1"`), "", 3, `--kek-id: "\"key-1\"" is empty, in quotes`},
		"another format":                {at("-o", "wide"), "", 3, `invalid argument "wide" for "-o, --output" flag: must be one of table, json, yaml`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, tt.args...)
			cmd.Dir, cmd.Env = ours.dir, append(cmd.Env, strings.Fields(tt.env)...)
			began := time.Now()
			code, stdout, stderr := output(t, cmd)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) || code == 3 && (stdout != "" || !strings.HasPrefix(stderr, "error: ")) {
				t.Errorf("%d, %s%s", code, stdout, stderr)
			}
			t.Logf("%s: %s%s", time.Since(began).Round(time.Millisecond), stdout, stderr)
		})
	}
}

// With authentication, etcd takes the user from the certificate's common name.
func TestEtcdWithAuthentication(t *testing.T) {
	p := newPKI(t)
	server := controlplane.StartEtcdForTest(t, p.client, p.flags()...)
	client := connect(t, server.URL, clientv3.Config{TLS: p.client})
	do := func(_ any, err error) { t.Helper(); must.Succeed(t, err) }
	do(client.Put(t.Context(), "/registry/secrets/default/a", "k8s"))
	do(client.RoleAdd(t.Context(), "root"))
	do(client.UserAdd(t.Context(), "root", "x"))
	do(client.UserGrantRole(t.Context(), "root", "root"))
	do(client.AuthEnable(t.Context()))
	args := []string{"--endpoints=" + server.URL, "--cacert=" + p.dir + "/etcd/ca.crt",
		"--cert=" + p.dir + "/apiserver-etcd-client.crt", "--key=" + p.dir + "/apiserver-etcd-client.key"}
	code, stdout, stderr := output(t, command(t, args...))
	if code != 3 || !strings.Contains(stderr, "etcd at "+server.URL+": etcdserver: permission denied\nCheck ") {
		t.Errorf("%d, %s%s", code, stdout, stderr)
	}
	// Let kube-apiserver's user read only its prefix.
	const reader = "kube-apiserver-etcd-client"
	root := connect(t, server.URL, clientv3.Config{TLS: p.client, Username: "root", Password: "x"})
	do(root.UserAdd(t.Context(), reader, "x"))
	do(root.RoleAdd(t.Context(), reader))
	do(root.RoleGrantPermission(t.Context(), reader, "/registry/", "/registry0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(root.UserGrantRole(t.Context(), reader, reader))
	if code, stdout, stderr := output(t, command(t, args...)); code != 3 || !strings.Contains(stderr, "--etcd-prefix") {
		t.Errorf("all prefixes: %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := output(t, command(t, append(args, "--etcd-prefix=/registry")...)); code != 0 {
		t.Errorf("its own prefix: %d, %s%s", code, stdout, stderr)
	}
}

func TestProgressIsShownOnATerminalAlone(t *testing.T) {
	server := controlplane.StartEtcdForTest(t, nil)
	_, err := connect(t, server.URL, clientv3.Config{}).Put(t.Context(), "/registry/secrets/default/a", "k8s")
	must.Succeed(t, err)
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	must.Succeed(t, err)
	defer controller.Close()
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0)
	}
	must.Succeed(t, err)
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	must.Succeed(t, err)
	defer terminal.Close()
	cmd := command(t, "--endpoints="+server.URL)
	cmd.Stderr = terminal
	if text, err := cmd.Output(); err != nil || !strings.Contains(string(text), "Encrypted: 0 of 1 objects") {
		t.Fatalf("%v, %s", err, text)
	}
	shown := make([]byte, 1000)
	n, err := controller.Read(shown)
	if want := "\r\x1b[KRead 1 objects, now secrets\r\x1b[K"; err != nil || string(shown[:n]) != want {
		t.Errorf("got %q, %v; want %q", shown[:n], err, want)
	}
}
