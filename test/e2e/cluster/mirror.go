package cluster

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/image"
	"github.com/kms-health/kms-health/test/harness/wait"
)

const (
	mirrorPort = "5000"
	// registryAddress is on the loopback of the bridge's namespace, where no node gets to.
	registryAddress = "127.0.0.1:5001"
	mirrorUser      = "pull"
	mirrorPassword  = "only-the-pull-secret-has-this"
	hostsDir        = "/etc/containerd/certs.d"
	pullSecretFile  = "/var/lib/kubelet/config.json"
)

// Mirror is a registry at the bridge's address, beside the load balancer, by TLS, whose every request needs a
// password.
type Mirror struct {
	cluster  *Cluster
	registry *controlplane.Child
	server   *http.Server
	dir      string

	mu       sync.Mutex
	requests []MirrorRequest
}

// MirrorRequest is one that a mirror has answered.
type MirrorRequest struct {
	Method, Path string
	Status       int
}

func mirrorAddress() string { return net.JoinHostPort(balancerIP, mirrorPort) }

// StartMirror starts an empty one.
func (c *Cluster) StartMirror(ctx context.Context) (_ *Mirror, err error) {
	m := &Mirror{cluster: c}
	if m.dir, err = os.MkdirTemp(c.dir, "mirror-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.Stop()
		}
	}()
	bridge := namespaces(c.bridge.PID())
	cmd := exec.Command(c.asset("crane"), "registry", "serve", "--address="+registryAddress, "--disk="+m.dir)
	if m.registry, err = bridge.start("the registry", cmd, "net"); err != nil {
		return nil, err
	}
	if err := wait.For(ctx, 10*time.Second, "the registry", func(ctx context.Context) error {
		conn, err := bridge.dial(ctx, "tcp", registryAddress)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return nil, err
	}
	pair, err := c.Serving(balancerIP)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	listener, err := bridge.listen(mirrorAddress())
	if err != nil {
		return nil, err
	}
	m.server = &http.Server{
		Handler: m.handler(bridge), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(os.Stderr, "mirror: ", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	go func() { _ = m.server.ServeTLS(listener, "", "") }()
	return m, nil
}

// handler asks for the password, and lets the registry answer.
func (m *Mirror) handler(bridge namespaces) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registryAddress})
	proxy.Transport = &http.Transport{DialContext: bridge.dial}
	proxy.ModifyResponse = func(r *http.Response) error {
		m.note(r.Request, r.StatusCode)
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user == mirrorUser && password == mirrorPassword {
			proxy.ServeHTTP(w, r)
			return
		}
		m.note(r, http.StatusUnauthorized)
		w.Header().Set("WWW-Authenticate", `Basic realm="mirror"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
}

func (m *Mirror) note(r *http.Request, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, MirrorRequest{r.Method, r.URL.Path, status})
}

// Requests are all that were answered, in their order.
func (m *Mirror) Requests() []MirrorRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]MirrorRequest(nil), m.requests...)
}

// Push puts an image into the mirror, and returns its name by digest, with the registry
// of its own name.
func (m *Mirror) Push(ctx context.Context, x *image.Index) (string, error) {
	layout := filepath.Join(m.dir, fmt.Sprintf("layout-%d", m.cluster.generation.Add(1)))
	if err := x.WriteLayout(layout); err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(layout) }()
	_, named, _ := strings.Cut(x.Name(), "/")
	if _, err := run(ctx, namespaces(m.cluster.bridge.PID()), []string{"net"}, m.cluster.asset("crane"),
		"push", layout, registryAddress+"/"+named); err != nil {
		return "", err
	}
	return x.ByDigest()
}

// Stop ends it, and every connection to it.
func (m *Mirror) Stop() {
	if m.server != nil {
		_ = m.server.Close()
	}
	_ = m.registry.Kill()
	_ = os.RemoveAll(m.dir)
}

// UseMirror makes the node pull the images of a registry from the mirror and from nowhere
// else, which is what an ImageDigestMirrorSet with NeverContactSource becomes, with a pull
// secret where OpenShift has the cluster's. The kubelet reads it when it starts.
func (n *Node) UseMirror(registry string) error {
	hosts := fmt.Sprintf("server = \"https://%[1]s\"\nca = %[2]q\n[host.\"https://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = %[2]q\n",
		mirrorAddress(), pkiDir+"/ca.crt")
	if err := n.WriteFile(filepath.Join(hostsDir, registry, "hosts.toml"), []byte(hosts), 0o644); err != nil {
		return err
	}
	// By the image's name: containerd gives the password to its mirror.
	secret := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, registry, base64.StdEncoding.EncodeToString([]byte(mirrorUser+":"+mirrorPassword)))
	if err := n.WriteFile(pullSecretFile, []byte(secret), 0o600); err != nil {
		return err
	}
	return n.RestartKubelet()
}

// ForgetMirror undoes that.
func (n *Node) ForgetMirror(registry string) error {
	if err := os.RemoveAll(n.Path(filepath.Join(hostsDir, registry))); err != nil {
		return err
	}
	if err := os.Remove(n.Path(pullSecretFile)); err != nil {
		return err
	}
	return n.RestartKubelet()
}
