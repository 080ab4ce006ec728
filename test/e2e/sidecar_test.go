//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
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
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// sidecarConfig is the operator's configuration for a kube-apiserver whose owner puts the
// reporter into its static pod, and so what `render` gets.
const sidecarConfig = `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe: {interval: 1s}
apiServers:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
  mode: Sidecar
  connection: {server: "https://localhost:6443"}
  serving: {address: 127.0.0.1:9180}
`

// Folders on the node.
const (
	hostFolder = "/etc/kubernetes/kms-health" // render's default
	// liveFolder holds the reporter's file and is exchanged as a whole. The folder above
	// it is mounted, with a link to the file.
	liveFolder   = hostFolder + "/config/live"
	clientFolder = hostFolder + "/credentials/client"
)

const reporterUser = "system:kms-health-reporter"

// owner is the owner of kube-apiserver's static pod: what is beside it is made by
// `kms-health-operator render`, with no help of the operator.
type owner struct {
	*scenario
	dir     string // for files, with the program in it
	file    []byte // the reporter's, as last made
	objects []byte // to apply
}

// The other variant: a container of kube-apiserver's own static pod, in place of a pod
// beside it.
func TestSidecar(t *testing.T) {
	s, err := newCluster(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stopCluster(s); err != nil {
			t.Error(err)
		}
	})
	v, err := s.Build(t.Context(), "sidecar", root)
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{scenario: newScenarioOn(t, s, v), dir: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", o.dir, "./cmd/kms-health-operator")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v: %s", err, out)
	}
	for _, part := range []struct {
		name string
		test func(*owner)
	}{
		{"turned on", testSidecarOn},
		{"configuration", testSidecarConfiguration},
		{"plugin unhealthy", testSidecarUnhealthy},
		{"client certificate", testSidecarCertificate},
		{"CA", testSidecarCA},
		{"API server down", testSidecarDown},
		{"with the operator", testSidecarOperator},
		{"taken out", testSidecarTakenOut},
	} {
		// Each begins with the state in which the previous one ended.
		ended := false
		t.Run(part.name, func(t *testing.T) {
			own := *o
			own.scenario = o.sub(t)
			part.test(&own)
			o.file, ended = own.file, true
		})
		if !ended {
			return
		}
	}
}

func testSidecarOn(h *owner) {
	start := time.Now()
	pair, err := h.Client(reporterUser)
	h.must(err)
	ca, _ := h.CAs()
	h.must(h.node().SyncFolder(clientFolder, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca}))
	h.must(h.Roll(h.ctx, h.roll(true)))
	_, err = h.Kubectl(h.ctx, string(h.objects), "apply", "-f", "-")
	h.must(err)
	applied := time.Now()
	name := h.node().Name
	first := h.awaitSince(start, time.Minute, "the sidecar reports", func(s fixture.State) error { return reports(s, name, contract.Healthy, "") })
	h.must(h.WriteAnew(h.ctx))
	times.took("sidecar", "KMS on, sidecar and all, by one revision", first.At.Sub(start), applied.Sub(start), "")
	// What must wait for its rights is retried every 10 s.
	atMost(h.scenario, "the reporter's rights to its first report", first.At.Sub(applied), 13*time.Second)
	if got := first.Reports[name][0]; got.KEKID != h.remoteKey(h.node()) {
		h.t.Errorf("reports %+v, and the plugin's key is %s", got, h.remoteKey(h.node()))
	}

	pod, err := h.Kube.CoreV1().Pods(cluster.APIServerNamespace).Get(h.ctx, cluster.APIServerName+"-"+name, metav1.GetOptions{})
	h.must(err)
	last := pod.Spec.Containers[len(pod.Spec.Containers)-1]
	if last.Name != contract.ReporterContainer {
		h.t.Errorf("the last container is %s", last.Name)
	}
	for _, m := range last.VolumeMounts {
		if !m.ReadOnly {
			h.t.Errorf("the sidecar may write to %s", m.MountPath)
		}
	}
	if got := pod.Labels["revision"]; got != "2" {
		h.t.Errorf("the pod is of revision %q", got)
	}
}

// The reporter's file changes by an exchange of its folder, and by one of the file in it.
func testSidecarConfiguration(h *owner) {
	name, p := h.node().Name, h.pluginOn(h.node())
	before := h.sidecarPID()
	other := bytes.Replace(h.file, []byte("interval: 1s"), []byte("interval: 3s"), 1)
	if bytes.Equal(other, h.file) {
		h.t.Fatalf("the file has no interval of 1s:\n%s", h.file)
	}
	for _, change := range []struct {
		what     string
		file     []byte
		interval time.Duration
		make     func(content []byte) error
	}{
		{"folder exchanged", other, 3 * time.Second, h.exchangeFile},
		{"folder exchanged", h.file, interval, h.exchangeFile},
		{"file replaced", other, 3 * time.Second, func(content []byte) error { return h.node().WriteFile(liveFolder+"/config.yaml", content, 0o600) }},
		{"folder exchanged after that", h.file, interval, h.exchangeFile},
	} {
		h.must(change.make(change.file))
		changed := time.Now()
		var applied time.Time
		h.await(10*time.Second, "the file is active", func() error {
			var err error
			if applied, err = h.applied(); err == nil && applied.Before(changed.Add(-time.Second)) {
				err = fmt.Errorf("the active one is of %v", applied)
			}
			return err
		})
		took := applied.Sub(changed)
		times.took("sidecar", change.what+": active", max(0, took), noTime, "250ms")
		atMost(h.scenario, change.what+" to active", took, 250*time.Millisecond)
		reported := h.awaitSince(changed, change.interval+5*time.Second, "reports have the new interval", func(s fixture.State) error {
			if got := s.Reports[name][0].Interval; got != change.interval {
				return fmt.Errorf("is %v", got)
			}
			return nil
		})
		times.took("sidecar", change.what+": reported in a report", reported.At.Sub(changed), noTime, "500ms")
		atMost(h.scenario, change.what+" to a report that shows it", reported.At.Sub(changed), 500*time.Millisecond) // no tick is waited for
		// And by the plugin's calls, not by the reports.
		calls := h.statusCalls(p)
		time.Sleep(6 * time.Second)
		asked := time.Duration(h.statusCalls(p) - calls)
		// kube-apiserver may call it, too.
		if want := 6 * time.Second / change.interval; asked < want-1 || asked > want+2 {
			h.t.Errorf("in 6s the plugin got %d calls, wanted %d", asked, want)
		}
	}
	h.same(before)
}

func testSidecarUnhealthy(h *owner) {
	name, p := h.node().Name, h.pluginOn(h.node())
	start := time.Now()
	h.do(p, "unhealthy", "vault is sealed")
	unhealthy := h.awaitSince(start, 5*time.Second, "the report is unhealthy", func(s fixture.State) error {
		return reports(s, name, contract.Unhealthy, `healthz is "vault is sealed", not "ok"`)
	})
	times.took("sidecar", "plugin unhealthy: its report shows it", unhealthy.At.Sub(start), noTime, "interval + 1 s")
	atMost(h.scenario, "unhealthy to its report", unhealthy.At.Sub(start), interval+time.Second)
	start = time.Now()
	h.do(p, "heal")
	h.awaitSince(start, 5*time.Second, "the report is healthy", func(s fixture.State) error { return reports(s, name, contract.Healthy, "") })
}

func testSidecarCertificate(h *owner) {
	before := h.sidecarPID()
	start := time.Now()
	pair, err := h.Client(reporterUser)
	h.must(err)
	ca, _ := h.CAs()
	h.rotate("client certificate", pair, ca)
	time.Sleep(5 * interval)
	h.steadySidecar("client certificate", start)
	h.same(before)
}

// rotate exchanges the credentials' folder, and waits until a write with the new
// certificate was allowed.
func (h *owner) rotate(what string, pair *controlplane.KeyPair, ca []byte) {
	h.t.Helper()
	exchanged := time.Now()
	h.must(h.node().SyncFolder(clientFolder, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca}))
	block, _ := pem.Decode(pair.Cert)
	sum := sha256.Sum256(block.Bytes)
	credential := "X509SHA256=" + hex.EncodeToString(sum[:])
	var used time.Time
	h.await(10*time.Second, "the new certificate is used", func() error {
		events, err := h.node().Audit(exchanged)
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, e := range events {
			if e.User.Username != reporterUser || e.ResponseStatus == nil {
				continue
			}
			for _, id := range e.User.Extra["authentication.kubernetes.io/credential-id"] {
				if seen[id]++; id == credential && e.ResponseStatus.Code == http.StatusOK {
					used = e.RequestReceivedTimestamp.Time
					return nil
				}
			}
		}
		return fmt.Errorf("requests by credential: %v, wanted %s", seen, credential)
	})
	times.took("sidecar", what+" exchanged: used for a write", used.Sub(exchanged), noTime, "interval + 0.5 s")
	atMost(h.scenario, what+" exchanged to its use", used.Sub(exchanged), interval+500*time.Millisecond)
}

// A bundle of both CAs comes first, to the sidecar as to all pods, then the serving
// certificate, then the new CA alone.
func testSidecarCA(h *owner) {
	before := h.sidecarPID()
	start := time.Now()
	first, next := h.CAs()
	pair, err := h.Client(reporterUser)
	h.must(err)
	h.rotate("bundle of two CAs", pair, append(append([]byte{}, first...), next...))
	h.must(h.RotateCA(cluster.TrustBoth))
	h.must(h.RotateCA(cluster.ServeByNext))
	h.await(2*time.Minute, "kube-apiserver serves by the new CA", func() error { return h.ServedByNext(h.ctx, h.node()) })
	// With a certificate of its own, so that the audit log shows when it was used: over a
	// connection that the new CA alone vouched for.
	pair, err = h.Client(reporterUser)
	h.must(err)
	h.rotate("the new CA alone", pair, next)
	h.must(h.RotateCA(cluster.TrustNext))
	time.Sleep(5 * interval)
	h.steadySidecar("CA", start)
	h.same(before)
}

// The API server is down, and the sidecar is killed with it: two containers of one pod,
// which only the kubelet restarts.
func testSidecarDown(h *owner) {
	n, p := h.node(), h.pluginOn(h.node())
	h.must(n.HoldAPIServer())
	held := true
	defer func() {
		if held {
			h.must(n.ReleaseAPIServer())
		}
	}()
	h.must(n.SignalContainer(h.ctx, cluster.APIServerName, cluster.APIServerName, syscall.SIGKILL))
	h.must(n.SignalContainer(h.ctx, cluster.APIServerName, contract.ReporterContainer, syscall.SIGKILL))
	// No client calls this plugin now, and the next one is the new sidecar.
	h.do(p, "reset-counters")
	down := time.Now()
	var first time.Time
	h.await(2*time.Minute, "the sidecar probes again", func() error {
		state, err := p.State()
		if err != nil {
			return err
		}
		if first = state.Calls[kmsplugin.CallStatus].First; first.IsZero() {
			return errors.New("it does not")
		}
		return nil
	})
	next := h.process(cluster.APIServerName, contract.ReporterContainer)
	if first.Before(next.Started.Add(-startResolution)) {
		h.t.Fatalf("a probe at %v came before the sidecar's start at %v", first, next.Started)
	}
	// The process begins as runc, which becomes the sidecar.
	begun := h.begun()
	times.took("sidecar", "API server down, sidecar killed: its next probe", first.Sub(down), begun.Sub(down), "100ms")
	times.took("sidecar", "the same, from the process's start on, with runc's share", first.Sub(next.Started), begun.Sub(next.Started), "")
	if begun.Before(next.Started.Add(-startResolution)) {
		h.t.Errorf("the sidecar reported at %v that it starts, and its process began at %v", begun, next.Started)
	}
	atMost(h.scenario, "the sidecar's start to its first probe", first.Sub(begun), atOnce)

	// It goes on, for longer than any wait between writes.
	h.await(time.Minute, "it goes on for 20 s", func() error {
		state, err := p.State()
		if err != nil {
			return err
		}
		if count, least := state.Calls[kmsplugin.CallStatus].Count, int64(time.Since(first)/interval)-2; count < least {
			h.t.Fatalf("probed %d times in %v", count, time.Since(first))
		}
		if time.Since(first) < 20*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := n.Get(h.ctx, "/livez"); err == nil {
		h.t.Error("kube-apiserver answered all the while")
	}
	released := time.Now()
	h.must(n.ReleaseAPIServer())
	held = false
	answers := h.awaitWrites(n)
	back := h.awaitSince(released, 30*time.Second, "a fresh report", func(s fixture.State) error { return s.Fresh(n.Name, released) })
	late := max(0, back.At.Sub(answers))
	times.took("sidecar", "the API server's answering to a fresh report", late, noTime, "3s")
	atMost(h.scenario, "the API server's answering to a fresh report", late, 3*time.Second)
	if now := h.process(cluster.APIServerName, contract.ReporterContainer); now.PID != next.PID {
		h.t.Error("the sidecar was started again")
	}
	h.must(n.AwaitAPIServer(h.ctx, "/readyz", 2*time.Minute))
}

// With an operator beside it, which delivers nothing here, and rolls up.
func testSidecarOperator(h *owner) {
	before := h.sidecarPID()
	n, p := h.node(), h.pluginOn(h.node())
	start := time.Now()
	h.must(h.Install(h.ctx, h.version, sidecarConfig))
	h.must(h.AwaitOperator(h.ctx))
	runs := time.Now()
	times.took("sidecar", "operator installed: it runs", runs.Sub(start), runs.Sub(start), "")
	h.awaitHealthy(apiservers.Kube)
	times.took("sidecar", "operator installed: all healthy", time.Since(runs), noTime, "")

	start = time.Now()
	h.do(p, "unhealthy", "vault is sealed")
	want := fmt.Sprintf(`key 1 on node %s: unhealthy: healthz is "vault is sealed", not "ok"; see oc logs -n openshift-kube-apiserver kube-apiserver-%s -c kms-plugin-1`, n.Name, n.Name)
	unhealthy := h.awaitSince(start, 5*time.Second, "Degraded names what is unhealthy", func(s fixture.State) error {
		if err := s.Is(contract.PluginsDegraded, "True", contract.PluginUnhealthy); err != nil {
			return err
		}
		if got := s.Conditions[contract.PluginsDegraded].Message; got != want {
			return fmt.Errorf("reports %q, wanted %q", got, want)
		}
		return nil
	})
	times.took("sidecar", "plugin unhealthy: KMSPluginsDegraded=True", unhealthy.At.Sub(start), noTime, "interval + 1 s")
	atMost(h.scenario, "unhealthy to Degraded", unhealthy.At.Sub(start), interval+time.Second)
	start = time.Now()
	h.do(p, "heal")
	h.awaitSince(start, 5*time.Second, "everything is healthy again", fixture.State.Healthy)
	h.same(before)
}

func testSidecarTakenOut(h *owner) {
	h.must(h.Roll(h.ctx, h.roll(false)))
	pod, err := h.Kube.CoreV1().Pods(cluster.APIServerNamespace).Get(h.ctx, cluster.APIServerName+"-"+h.node().Name, metav1.GetOptions{})
	h.must(err)
	text, err := yaml.Marshal(pod.Spec)
	h.must(err)
	if strings.Contains(string(text), "kms-health") {
		h.t.Errorf("something of ours is left in the pod:\n%s", text)
	}
	for key := range pod.Annotations {
		if strings.Contains(key, "kmshealth") {
			h.t.Errorf("the annotation %s is left", key)
		}
	}
	found, err := h.node().Processes(h.ctx, cluster.APIServerName, contract.ReporterContainer)
	h.must(err)
	if len(found) > 0 {
		h.t.Errorf("processes of the sidecar are left: %v", found)
	}
}

// roll is a revision with KMS on, with the sidecar or without.
func (h *owner) roll(with bool) fixture.Roll {
	r := fixture.Roll{Encryption: apiservers.Encryption("1", "identity"), Plugins: []string{"1"}}
	if with {
		r.Files = map[string][]byte{}
		r.Change = func(manifest []byte) ([]byte, error) { return h.render(r, manifest) }
	}
	return r
}

// render has the reporter put into a manifest, and its files onto the node.
func (h *owner) render(r fixture.Roll, manifest []byte) ([]byte, error) {
	files := map[string][]byte{"operator.yaml": []byte(sidecarConfig), "encryption.yaml": []byte(r.Encryption), "pod.json": manifest}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	out := filepath.Join(h.dir, "out")
	cmd := exec.CommandContext(h.ctx, filepath.Join(h.dir, "kms-health-operator"), "render", "--config", filepath.Join(h.dir, "operator.yaml"),
		"--image", h.version.Reporter, "--encryption-config", filepath.Join(h.dir, "encryption.yaml"), "--pod", filepath.Join(h.dir, "pod.json"),
		"--host-folder", hostFolder, "--output-dir", out)
	cmd.Env = append(os.Environ(), "IS_OPENSHIFT=true")
	if reported, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, reported)
	}
	made := map[string][]byte{}
	for _, name := range []string{"10-policy.yaml", "20-identity.yaml", "host/config/config.yaml", "host/config/kubeconfig", "host/static-pod.json"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		made[name] = content
	}
	h.objects = bytes.Join([][]byte{made["10-policy.yaml"], made["20-identity.yaml"]}, []byte("---\n"))
	h.file = made["host/config/config.yaml"]
	r.Files[hostFolder+"/config/kubeconfig"] = made["host/config/kubeconfig"]
	if err := h.exchangeFile(h.file); err != nil {
		return nil, err
	}
	link := h.node().Path(hostFolder + "/config/config.yaml")
	if err := os.Symlink("live/config.yaml", link); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return made["host/static-pod.json"], sameBut(manifest, made["host/static-pod.json"])
}

// exchangeFile replaces the reporter's file, folder and all.
func (h *owner) exchangeFile(content []byte) error {
	return h.node().SyncFolder(liveFolder, map[string][]byte{"config.yaml": content})
}

// sameBut requires two manifests to be equal except for the sidecar, after an installer has
// replaced its placeholders in both.
func sameBut(without, with []byte) error {
	replace := strings.NewReplacer("NODE_NAME", "node-1", "REVISION", "7")
	var a, b corev1.Pod
	if err := yaml.Unmarshal([]byte(replace.Replace(string(without))), &a); err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict([]byte(replace.Replace(string(with))), &b); err != nil {
		return fmt.Errorf("after an installer's replacement: %w\n%s", err, with)
	}
	if !objects.Injected(&b.Spec) {
		return errors.New("no sidecar was put in")
	}
	delete(b.Annotations, contract.ConfigHashAnnotation)
	b.Spec.Containers = slices.DeleteFunc(b.Spec.Containers, func(c corev1.Container) bool { return c.Name == contract.ReporterContainer })
	b.Spec.Volumes = slices.DeleteFunc(b.Spec.Volumes, func(v corev1.Volume) bool {
		return slices.Contains(objects.SidecarVolumes, v.Name)
	})
	if !apiequality.Semantic.DeepEqual(a, b) {
		return fmt.Errorf("more than the sidecar was changed:\n%s\n%s", without, with)
	}
	return nil
}

// applied is when the active file was applied, by what the sidecar serves on the node's
// loopback.
func (h *owner) applied() (time.Time, error) {
	seconds, err := h.metric("kms_health_reporter_config_applied_timestamp_seconds")
	return time.UnixMicro(int64(seconds * 1e6)), err
}

// reports has nothing against a node's one entry with this status and detail.
func reports(s fixture.State, node string, status contract.Status, detail string) error {
	entries := s.Reports[node]
	if len(entries) != 1 || entries[0].KeyID != "1" || entries[0].Status != status || entries[0].Detail != detail {
		return fmt.Errorf("%s reports %+v, wanted key 1 %s %q", node, entries, status, detail)
	}
	return nil
}

// steadySidecar is steady, where no operator judges.
func (h *owner) steadySidecar(what string, since time.Time) {
	h.t.Helper()
	h.steady("sidecar", what, since, func(s fixture.State) error { return reports(s, h.node().Name, contract.Healthy, "") }, apiservers.Kube)
}

// sidecarLog are the lines of the sidecar's log that contain a text.
func (h *owner) sidecarLog(what string) []logLine {
	h.t.Helper()
	lines, err := h.logLines(cluster.APIServerNamespace+"_"+cluster.APIServerName+"-", what)
	h.must(err)
	return slices.DeleteFunc(lines, func(l logLine) bool { return l.container != contract.ReporterContainer })
}

// begun is when the sidecar last reported that it starts, which is the first that it does.
func (h *owner) begun() time.Time {
	h.t.Helper()
	starts := h.sidecarLog(`"Starting"`)
	if len(starts) == 0 {
		h.t.Fatal("the sidecar's logs do not report a start")
	}
	return slices.MaxFunc(starts, func(a, b logLine) int { return a.at.Compare(b.at) }).at
}

func (h *owner) sidecarPID() int {
	h.t.Helper()
	return h.process(cluster.APIServerName, contract.ReporterContainer).PID
}

// same requires the sidecar to be the one of before.
func (h *owner) same(before int) {
	h.t.Helper()
	if now := h.sidecarPID(); now != before {
		h.t.Errorf("the sidecar was restarted: process %d, before: %d", now, before)
	}
}

// awaitWrites waits until a node's API server answers a write, and reports when it did.
func (h *scenario) awaitWrites(n *cluster.Node) (at time.Time) {
	h.t.Helper()
	h.await(3*time.Minute, "the API server of "+n.Name+" answers writes", func() error {
		err := h.write(h.ctx, n)
		at = time.Now()
		return err
	})
	return at
}

// write changes the resource that reports go to, by way of a node's own API server, which
// has a connection to etcd for each resource.
func (h *scenario) write(ctx context.Context, n *cluster.Node) error {
	config, err := n.RESTConfig()
	if err != nil {
		return err
	}
	config.Timeout = time.Second
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.Resource(controlplane.OperatorGVR(apiservers.Kube.Resource)).Patch(ctx, controlplane.ClusterObject, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata": {"annotations": {"e2e": "%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
	return err
}
