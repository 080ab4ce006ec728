package cluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// Names of the kube-apiserver's pods.
const (
	APIServerNamespace = "openshift-kube-apiserver"
	APIServerName      = "kube-apiserver"
)

const (
	resourcesDir = "/etc/kubernetes/static-pod-resources"
	manifestFile = manifestsDir + "/kube-apiserver-pod.yaml"
	holdFile     = StateDir + "/hold-kube-apiserver"
)

//go:embed files
var files embed.FS

var templates = template.Must(template.ParseFS(files, "files/*"))

// file returns a file of files/ with values filled in.
func file(name string, values any) []byte {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, values); err != nil {
		panic(err) // an error in the file, which each start would show
	}
	return b.Bytes()
}

// Revision is a revision of kube-apiserver's static pod.
type Revision struct {
	Number int
	// Encryption is its EncryptionConfiguration. Empty: none.
	Encryption string
	// Plugins are the key IDs of the plugins in the pod.
	Plugins []string
	// Change changes the manifest before it is written, for example to add a sidecar. It may be nil.
	Change func(manifest []byte) ([]byte, error)
	// Files are more files of the node, by path. NODE_NAME and REVISION in them are replaced as in the manifest.
	Files map[string][]byte
}

// PluginControl returns the path in a node of the control socket of a plugin of its kube-apiserver.
func PluginControl(keyID string) string { return StateDir + "/kms-" + keyID + ".control" }

// Install writes a revision to a node, as OpenShift's installer pod does. The revision's files have their own folder.
// NODE_NAME and REVISION are replaced in all files. The manifest is written last, and the kubelet runs it.
func (n *Node) Install(r Revision) error {
	etcd := "127.0.0.1"
	if n.index != 1 {
		etcd = nodeIP(1).String()
	}
	// JSON, as OpenShift writes it, so that a number in place of REVISION stays a string.
	manifest, err := yaml.YAMLToJSON(file("kube-apiserver.yaml", struct {
		Etcd, Encryption string
		Plugins          []string
	}{etcd, r.Encryption, r.Plugins}))
	if err != nil {
		return err
	}
	if r.Change != nil {
		if manifest, err = r.Change(manifest); err != nil {
			return err
		}
	}
	replace := strings.NewReplacer("NODE_NAME", n.Name, "REVISION", strconv.Itoa(r.Number))
	dir := filepath.Join(resourcesDir, "kube-apiserver-pod-"+strconv.Itoa(r.Number))
	files := map[string][]byte{filepath.Join(dir, "kube-apiserver-pod.yaml"): manifest}
	if r.Encryption != "" {
		files[filepath.Join(dir, "secrets/encryption-config/encryption-config")] = []byte(r.Encryption)
	}
	for path, content := range r.Files {
		files[path] = content
	}
	for path, content := range files {
		if err := n.WriteFile(path, []byte(replace.Replace(string(content))), 0o600); err != nil {
			return err
		}
	}
	return n.WriteFile(manifestFile, []byte(replace.Replace(string(manifest))), 0o600)
}

// SyncFolder replaces a folder of the node as a whole, as OpenShift's cert-syncer does: it creates the new folder,
// exchanges both, and removes the old one.
func (n *Node) SyncFolder(folder string, files map[string][]byte) error {
	next := folder + ".next"
	for name, content := range files {
		if err := n.WriteFile(filepath.Join(next, name), content, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(n.Path(folder)); errors.Is(err, os.ErrNotExist) {
		return os.Rename(n.Path(next), n.Path(folder))
	}
	return errors.Join(
		unix.Renameat2(unix.AT_FDCWD, n.Path(next), unix.AT_FDCWD, n.Path(folder), unix.RENAME_EXCHANGE),
		os.RemoveAll(n.Path(next)),
	)
}

// HoldAPIServer keeps the node's kube-apiserver from serving after its next start: the container runs, but waits. It
// does not end the running one; see SignalContainer.
func (n *Node) HoldAPIServer() error { return n.WriteFile(holdFile, nil, 0o600) }

// ReleaseAPIServer ends HoldAPIServer.
func (n *Node) ReleaseAPIServer() error { return os.Remove(n.Path(holdFile)) }

// MoveManifest moves kube-apiserver's manifest out of the kubelet's folder, or back.
func (n *Node) MoveManifest(back bool) error {
	from, to := n.Path(manifestFile), n.Path(filepath.Dir(manifestsDir)+"/moved.yaml")
	if back {
		from, to = to, from
	}
	return os.Rename(from, to)
}

// Get sends a GET to the node's kube-apiserver by its loopback, without credentials, and returns the status code.
func (n *Node) Get(ctx context.Context, path string) (int, error) {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: n.cluster.pki.tlsConfig(), DialContext: n.Dial,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:6443"+path, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// AwaitAPIServer waits until the node's kube-apiserver passes a health check.
func (n *Node) AwaitAPIServer(ctx context.Context, check string) error {
	// After an outage of the plugin, kube-apiserver's informers ask again only after up to a minute.
	err := wait.For(ctx, 10*time.Minute, "200", func(ctx context.Context) error {
		code, err := n.Get(ctx, check)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s of kube-apiserver on %s: %w", check, n.Name, err)
	}
	return nil
}

// Audit returns the requests that the node's kube-apiserver received since a time.
func (n *Node) Audit(since time.Time) ([]auditv1.Event, error) {
	return controlplane.ReadAudit(n.Path("/var/log/kube-apiserver/audit.log"), "", func(e *auditv1.Event) bool {
		return !e.RequestReceivedTimestamp.Time.Before(since)
	})
}
