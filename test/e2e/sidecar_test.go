//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
)

// sidecarConfig is the configuration for a kube-apiserver whose owner adds the reporter to its static pod. `render` and
// the operator use it.
var sidecarConfig = kubeOnly + "  mode: Sidecar\n  connection: {server: \"https://localhost:6443\"}\n" +
	"  serving: {address: 127.0.0.1:9180}\n"

// Folders on the node.
const (
	hostFolder = "/etc/kubernetes/kms-health" // render's default
	// liveFolder contains the reporter's file, and is exchanged as a whole. The sidecar mounts the folder above it, which
	// has a link to the file.
	liveFolder   = hostFolder + "/config/live"
	clientFolder = hostFolder + "/credentials/client"
)

// credentialsAge is the greatest age of the reporter's copy of its credentials at a write.
const credentialsAge = 10 * time.Second

const reporterUser = "system:kms-health-reporter"

// owner is the owner of kube-apiserver's static pod. `kms-health-operator render` makes the sidecar and its files, and
// the operator does not deliver anything.
type owner struct {
	*scenario
	dir     string // folder of the program and its files
	file    []byte // the reporter's file, as last rendered
	objects []byte // rendered objects to apply
}

// The reporter is a container in kube-apiserver's static pod, instead of a companion.
func TestSidecar(t *testing.T) {
	o := &owner{scenario: start(t, 1, ""), dir: t.TempDir()}
	_, err := program.Build(o.dir, "cmd/kms-health-operator")
	o.must(err)
	by := func(run func(*owner)) func(*scenario) {
		return func(h *scenario) {
			o.scenario = h
			run(o)
		}
	}
	o.parts(
		part{name: "turned on", run: by(testSidecarOn)},
		part{name: "configuration", run: by(testSidecarConfiguration)},
		part{name: "client certificate and CA", run: by(testSidecarCredentials)},
		part{name: "API server down", run: func(h *scenario) {
			h.apiServerDown(cluster.APIServerName, 20*time.Second)
		}},
		part{name: "with the operator", run: by(testSidecarOperator)},
	)
}

// eventBound bounds the time from a change of the file to its application, on a busy machine. Without an event the file
// would be read after up to 10 s.
const eventBound = 2 * time.Second

func testSidecarOn(h *owner) {
	start := time.Now()
	ca, _ := h.CAs()
	h.exchangeCredentials(ca)
	h.must(h.Roll(h.ctx, h.roll()))
	_, err := h.Kubectl(h.ctx, string(h.objects), "apply", "-f", "-")
	h.must(err)
	applied := time.Now()
	first := h.awaitSince(start, 2*time.Minute, "the sidecar reports", h.reportsKey1)
	h.must(h.WriteAnew(h.ctx))
	// Writes that are forbidden are retried every 10 s.
	h.took("the reporter's rights to its first report", first.At.Sub(applied), 10*time.Second+retryBound)
	if got := first.Reports[h.node().Name][0]; got.KEKID != h.remoteKey(h.node()) {
		h.t.Errorf("reports %+v, and the plugin's key is %s", got, h.remoteKey(h.node()))
	}
}

// The reporter's file is changed by exchanging its folder, and by replacing the file.
func testSidecarConfiguration(h *owner) {
	before := h.sidecarPID()
	replace := func(file []byte) error { return h.node().WriteFile(liveFolder+"/config.yaml", file, 0o600) }
	for i, write := range []func(file []byte) error{h.exchangeFile, replace, h.exchangeFile, h.exchangeFile} {
		want := []time.Duration{3 * interval, interval}[i%2]
		h.must(write(bytes.Replace(h.file, []byte("interval: 1s"), []byte("interval: "+want.String()), 1)))
		changed := time.Now()
		reported := h.awaitSince(changed, time.Minute, "reports have the new interval", func(s fixture.State) error {
			if got := s.Reports[h.node().Name][0].Interval; got != want {
				return fmt.Errorf("is %v", got)
			}
			return nil
		})
		bound := eventBound
		if i == 1 { // the target of the link that the reporter reads: it finds that by its poll
			bound += 10 * time.Second
		}
		h.took(fmt.Sprintf("change %d of the file: in a report", i+1), reported.At.Sub(changed), bound)
	}
	h.same(before)
}

// The credentials' folder is exchanged three times: with another client certificate, with a bundle of both CAs and,
// after kube-apiserver's serving certificate was rotated, with the new CA alone.
func testSidecarCredentials(h *owner) {
	before := h.sidecarPID()
	start := time.Now()
	first, next := h.CAs()
	h.rotate("client certificate", first)
	h.rotate("bundle of two CAs", slices.Concat(first, next))
	h.must(h.RotateCA(cluster.TrustBoth))
	h.must(h.RotateCA(cluster.ServeByNext))
	h.await(waitLimit, "kube-apiserver serves by the new CA", func() error { return h.ServedByNext(h.ctx, h.node()) })
	h.rotate("the new CA alone", next)
	h.must(h.RotateCA(cluster.TrustNext))
	time.Sleep(5 * interval)
	// No operator writes conditions here, so the reports are checked.
	h.steady(start, h.reportsKey1, apiservers.Kube)
	h.same(before)
}

// exchangeCredentials gives the sidecar a new client certificate, and CAs to trust.
func (h *owner) exchangeCredentials(cas []byte) (certificate []byte) {
	pair, err := h.Client(reporterUser)
	h.must(err)
	h.must(h.node().SyncFolder(clientFolder, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": cas}))
	return pair.Cert
}

// rotate exchanges the credentials, and waits until a write with the new certificate was allowed.
func (h *owner) rotate(what string, cas []byte) {
	exchanged := time.Now()
	block, _ := pem.Decode(h.exchangeCredentials(cas))
	sum := sha256.Sum256(block.Bytes)
	credential := "X509SHA256=" + hex.EncodeToString(sum[:])
	var used time.Time
	h.await(time.Minute, "the new certificate is used", func() error {
		events, err := h.node().Audit(exchanged)
		if err != nil {
			return err
		}
		for _, e := range events {
			ids := e.User.Extra["authentication.kubernetes.io/credential-id"]
			if isReport(e, h.node(), apiservers.Kube) && slices.Contains(ids, credential) {
				used = e.RequestReceivedTimestamp.Time
				return nil
			}
		}
		return fmt.Errorf("none of %d requests has the credential %s", len(events), credential)
	})
	h.took(what+" exchanged: used for a write", used.Sub(exchanged), credentialsAge+3*interval)
}

// The operator is installed. It delivers nothing here, but rolls up the reports.
func testSidecarOperator(h *owner) {
	before := h.sidecarPID()
	p, name := h.pluginOn(h.node()), h.node().Name
	h.must(h.Install(h.ctx, h.version, sidecarConfig))
	h.must(h.AwaitOperator(h.ctx))
	h.awaitHealthy(apiservers.Kube)

	start := time.Now()
	unhealthy := h.seal(apiservers.Kube, p, time.Minute, "key 1 on node "+name+`: unhealthy: healthz is "vault is sealed"`)
	h.took("plugin unhealthy: KMSPluginsDegraded=True", unhealthy.At.Sub(start), 3*interval)
	h.heal(apiservers.Kube, p, time.Minute)
	h.same(before)
}

// roll returns a rollout with KMS on, with the sidecar.
func (h *owner) roll() fixture.Roll {
	r := fixture.Roll{Encryption: apiservers.Encryption("1", "identity"), Plugins: []string{"1"},
		Files: map[string][]byte{}}
	r.Change = func(manifest []byte) ([]byte, error) { return h.render(r, manifest) }
	return r
}

// render adds the reporter to a manifest, and writes its files to the node.
func (h *owner) render(r fixture.Roll, manifest []byte) ([]byte, error) {
	for name, content := range map[string][]byte{
		"operator.yaml": []byte(sidecarConfig), "encryption.yaml": []byte(r.Encryption), "pod.json": manifest,
	} {
		disk.Write(h.t, filepath.Join(h.dir, name), content)
	}
	out := filepath.Join(h.dir, "out")
	cmd := exec.CommandContext(h.ctx, "./kms-health-operator", "render", "--config", "operator.yaml",
		"--image", h.version.Reporter, "--encryption-config", "encryption.yaml", "--pod", "pod.json",
		"--host-folder", hostFolder, "--output-dir", out)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "IS_OPENSHIFT=true")
	if reported, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, reported)
	}
	made := func(name string) []byte { return disk.Read(h.t, filepath.Join(out, name)) }
	h.objects = bytes.Join([][]byte{made("10-policy.yaml"), made("20-identity.yaml")}, []byte("---\n"))
	h.file = made("host/config/config.yaml")
	r.Files[hostFolder+"/config/kubeconfig"] = made("host/config/kubeconfig")
	if err := h.exchangeFile(h.file); err != nil {
		return nil, err
	}
	link := h.node().Path(hostFolder + "/config/config.yaml")
	if err := os.Symlink("live/config.yaml", link); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return made("host/static-pod.json"), nil
}

// exchangeFile replaces the reporter's file by exchanging its folder.
func (h *owner) exchangeFile(content []byte) error {
	return h.node().SyncFolder(liveFolder, map[string][]byte{"config.yaml": content})
}

// reportsKey1 returns an error unless the node reports exactly one entry, of key 1, as healthy.
func (h *owner) reportsKey1(s fixture.State) error {
	entries := s.Reports[h.node().Name]
	if len(entries) != 1 || entries[0].KeyID != "1" || entries[0].Status != contract.Healthy || entries[0].Detail != "" {
		return fmt.Errorf("the node reports %+v, wanted key 1 healthy", entries)
	}
	return nil
}

func (h *owner) sidecarPID() int {
	return h.process(cluster.APIServerName, contract.ReporterContainer).PID
}

// same requires the sidecar to be the same process as before.
func (h *owner) same(before int) {
	if now := h.sidecarPID(); now != before {
		h.t.Errorf("the sidecar was restarted: process %d, before: %d", now, before)
	}
}
