//go:build integration

package clocks

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/reporters"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// node is a node with its API server, its plugin and its reporter. All but the plugin have the node's clock.
type node struct {
	name     string
	plugin   *kmsplugin.Plugin
	api      *rest.Config
	reporter *controlplane.Child

	dir string
	env []string
}

func (n *node) String() string { return n.name + " (" + strings.Join(n.env, "") + ")" }

// startNode starts a node whose clock is wrong, with another API server on the cluster's etcd.
func startNode(t *testing.T, number int, ahead time.Duration) *node {
	n := &node{
		name: fmt.Sprintf("master-%d", number), dir: program.SocketDir(t), api: fixture.Cluster.RESTConfig(),
		env: []string{fmt.Sprintf("CLOCK_AHEAD=%d", int(ahead.Seconds()))},
	}
	n.startPlugin(t)
	n.startAPIServer(t)
	kubelet, err := nodes.Start(t.Context(), n.api, n.name)
	must.Succeed(t, err)
	t.Cleanup(kubelet.Stop)
	if _, err := kubelet.RunStaticPod(t.Context(), n.name, fixture.StaticPod("1", false)); err != nil {
		t.Fatal(err)
	}
	return n
}

// startPlugin starts a plugin with the same remote key as the cluster's first plugin. Each is rotated separately.
func (n *node) startPlugin(t *testing.T) {
	first := filepath.Dir(strings.TrimPrefix(fixture.Plugin.Endpoint(), "unix://"))
	seed, err := os.Readlink(filepath.Join(first, "state", "seed"))
	must.Succeed(t, err)
	state := filepath.Join(n.dir, "state")
	must.Succeed(t, os.Mkdir(state, 0o700))
	must.Succeed(t, os.Symlink(seed, filepath.Join(state, "seed")))
	n.plugin = kmsplugin.StartForTest(t, kmsplugin.Options{
		Endpoint: "unix://" + filepath.Join(n.dir, "kms-1.sock"), StateDir: state,
	})
}

// startAPIServer starts an API server with the flags of the cluster's, but another port and other files. Of two equal
// flags the last one counts.
func (n *node) startAPIServer(t *testing.T) {
	config := disk.Read(t, filepath.Join(fixture.Cluster.Dir(), "encryption-config.yaml"))
	encryption := filepath.Join(n.dir, "encryption-config.yaml")
	config = bytes.ReplaceAll(config, []byte(fixture.Plugin.Endpoint()), []byte(n.plugin.Endpoint()))
	disk.Write(t, encryption, config)
	line := disk.Read(t, fmt.Sprintf("/proc/%d/cmdline", fixture.Cluster.APIServerPID()))
	command := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	address := controlplane.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	args := slices.Concat(command[1:], []string{"--secure-port=" + port, "--encryption-provider-config=" + encryption,
		"--audit-log-path=" + filepath.Join(n.dir, "audit.log")})
	n.start(t, "kube-apiserver", command[0], args)
	n.api.Host = "https://" + address
	client := kubernetes.NewForConfigOrDie(n.api).RESTClient()
	wait.Eventually(t, 4*time.Minute, "the API server of "+n.name+" is ready", func() error {
		return client.Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
}

// start starts a program with the node's clock, until the test ends.
func (n *node) start(t *testing.T, name, path string, args []string) *controlplane.Child {
	log := filepath.Join(n.dir, name+".log")
	child, err := controlplane.StartChild(name+" of "+n.name, path, append(program.OthersEnv(), n.env...), args, log)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := child.Kill(); err != nil {
			t.Error(err)
		}
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("%s of %s:\n%s", name, n, fixture.Tail(string(text)))
		}
	})
	return child
}

// startReporter starts the node's reporter, which writes through the node's API server.
func (n *node) startReporter(t *testing.T, binary string) {
	kubeconfig := n.credentials(t)
	config := filepath.Join(n.dir, "config.yaml")
	text := fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: %s}
plugins: [{keyID: "1", endpoint: %q, role: Write, timeout: 2s}]
destination: {resource: %s, kubeconfig: %s}
`, interval, n.plugin.Endpoint(), apiservers.Kube.Resource, kubeconfig)
	disk.Write(t, config, []byte(text))
	n.reporter = n.start(t, "reporter", binary, []string{"--config", config, "--node-name", n.name})
}

// credentials returns a kubeconfig for a proxy that uses the reporter's certificate. An API server with another clock
// would refuse a token as expired, or as not valid yet.
func (n *node) credentials(t *testing.T) string {
	user := controlplane.ServiceAccountUser(fixture.Namespace, contract.ReporterName(apiservers.Kube.Name))
	pair, err := fixture.Cluster.SignUser(24*time.Hour, user, "system:serviceaccounts")
	must.Succeed(t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(t, err)
	target, err := url.Parse(n.api.Host)
	must.Succeed(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: fixture.Cluster.ServingCA().Pool(), Certificates: []tls.Certificate{certificate}}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forward.ServeHTTP(w, reporters.AsInAPod(r))
	}))
	t.Cleanup(server.Close)
	kubeconfig, err := controlplane.Kubeconfig{
		Server: server.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		Credential: controlplane.Credential{Certificate: pair},
	}.Write(filepath.Join(n.dir, "credentials"))
	must.Succeed(t, err)
	return kubeconfig
}
