package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	namespace = "kms-health"
	account   = "bench" // the reporters' ServiceAccount
	owner     = "owner" // the field manager of OpenShift's operators
	// waitLimit bounds the wait for one thing that should take a moment.
	waitLimit = 30 * time.Second
)

var nodeNames = []string{"master-0", "master-1", "master-2"}

// fixture is the environment of one measurement.
type fixture struct {
	*testing.T
	plan
	dir     string // short, so that socket paths in reports are as long as in a cluster
	configs string // see newFixture
	began   time.Time
	builds  []string                   // copies of the reporter's: this one, and the one of -base
	cluster *controlplane.ControlPlane // nil until startCluster
	access  controlplane.Kubeconfig    // the cluster's address, with the reporters' credentials
}

func newFixture(t *testing.T) *fixture {
	if !*measure {
		t.Skip("not measured without -measure: see make bench")
	}
	f := &fixture{T: t, plan: newPlan(), began: time.Now()}
	// The watched files are not in /tmp. When a watch starts, the kernel visits every cached name below the folder,
	// including deleted files. In /tmp of a build machine this takes milliseconds, elsewhere nothing.
	for folder, parent := range map[*string]string{&f.dir: "", &f.configs: bin} {
		dir, err := os.MkdirTemp(parent, "k")
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		f.must(err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		*folder = dir
	}
	t.Cleanup(f.logTails)
	return f
}

// logTails prints what the programs of a failed test logged last.
func (f *fixture) logTails() {
	paths, _ := filepath.Glob(filepath.Join(f.dir, "*.log")) // fails only for a bad pattern
	for _, path := range paths {
		if text, _ := os.ReadFile(path); f.Failed() {
			f.Logf("%s ends:\n%s", path, text[max(0, len(text)-2000):])
		}
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	must.Succeed(f.T, err)
}

// progress prints how far the measurement is.
func (f *fixture) progress(format string, args ...any) {
	fmt.Printf("%6s  %s: %s\n", time.Since(f.began).Round(time.Second), f.Name(), fmt.Sprintf(format, args...))
}

// pause waits, unless the run is interrupted.
func (f *fixture) pause(d time.Duration) {
	f.must(sleep(running, d))
}

// bin is where `make bench` builds the programs.
const bin = "../../bin"

// program copies a program, of bin if it is a name, and returns the path: another build may replace it during the run.
//
// It copies in pieces of 32 KiB, like container runtimes. A single large write would create large folios in the page
// cache, which map megabytes of the binary that nothing touches.
func (f *fixture) program(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(bin, name)
	}
	source, err := os.Open(name)
	if err != nil {
		f.Fatalf("%v: run `make bench`, which builds it", err)
	}
	defer source.Close()
	target, err := os.CreateTemp(f.dir, filepath.Base(name)+"-")
	f.must(err)
	f.must(target.Chmod(0o700))
	// The wrappers hide that both are files. Otherwise the kernel would copy in one piece.
	_, err = io.CopyBuffer(struct{ io.Writer }{target}, struct{ io.Reader }{source}, make([]byte, 32<<10))
	f.must(err)
	f.must(target.Close())
	return target.Name()
}

// reporters returns the paths of copies of this build of the reporter, and of the -base build.
func (f *fixture) reporters() []string {
	f.builds = []string{f.program("kms-health-reporter")}
	if *base != "" {
		f.builds = append(f.builds, f.program(*base))
	}
	return f.builds
}

// startCluster starts an API server, with an identity that may write reports.
func (f *fixture) startCluster(syncEtcd bool) {
	f.progress("starting etcd and kube-apiserver")
	f.cluster = controlplane.StartForTest(f, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, SyncEtcd: syncEtcd})
	f.must(f.cluster.CreateServiceAccount(running, namespace, account))
	f.must(f.cluster.AllowStatusPatch(running, controlplane.ServiceAccountUser(namespace, account), apiservers.Kube.Resource))
	token, err := f.cluster.ServiceAccountToken(running, namespace, account, controlplane.TokenOptions{})
	f.must(err)
	f.access = controlplane.Kubeconfig{Server: f.cluster.URL(), CA: f.cluster.ServingCA().PEM(), Credential: controlplane.Credential{Token: token}}
}

// start runs a program until the test ends, or its end is called. name is the log's name.
func (f *fixture) start(name, binary string, args ...string) *process {
	log := filepath.Join(f.dir, name+".log")
	child, err := controlplane.StartChild(filepath.Base(binary), binary, nil, args, log)
	f.must(err)
	p := &process{fixture: f, pid: child.PID(), log: log, began: time.Now()}
	p.end = func() {
		if err := child.Stop(context.Background(), 5*time.Second); err != nil {
			f.Error(err)
		}
	}
	f.Cleanup(p.end)
	return p
}

// node has a reporter's file, and plugins. The plugins run in this process, so each call is counted when it arrives.
type node struct {
	*fixture
	name    string
	binary  string // the reporter's
	sockets string // the plugins' folder
	config  string // the folder of the file, as a kubelet mounts a ConfigMap
	serving string
	plugins []*kmsplugin.Plugin // their key ids are 1, 2, …
}

// newNode starts the plugins.
func (f *fixture) newNode(name, binary string, plugins int) *node {
	n := &node{f, name, binary, filepath.Join(f.dir, name), filepath.Join(f.configs, name), controlplane.FreeAddress(f), nil}
	f.must(os.Mkdir(n.sockets, 0o700))
	for i := range plugins {
		p := kmsplugin.StartForTest(f, kmsplugin.Options{Endpoint: "unix://" + n.socket(i+1), StateDir: filepath.Join(n.sockets, fmt.Sprintf("state-%d", i+1))})
		n.plugins = append(n.plugins, p)
	}
	return n
}

func (n *node) socket(keyID int) string {
	return filepath.Join(n.sockets, fmt.Sprintf("kms-%d.sock", keyID))
}

// run starts the reporter. It keeps its samples in a file, as in a pod, except for the -base build, which may not know
// the flag.
func (n *node) run() *process {
	args := []string{"--config", filepath.Join(n.config, "config.yaml"), "--node-name", n.name}
	if slices.Index(n.builds, n.binary) <= 0 {
		args = append(args, "--state", filepath.Join(n.sockets, "samples"))
	}
	return n.start(n.name, n.binary, args...)
}

// settings are the settings in a reporter's file. Metrics are always served.
type settings struct {
	interval     time.Duration
	timeout      time.Duration // of every plugin; 0: the default
	kubeconfig   string        // no destination if empty
	writeTimeout time.Duration
	unchanged    time.Duration // unchangedEvery; 0: not set
	keyIDs       []int         // of the plugins, the first is the writer
}

func (n *node) render(c settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe: {interval: %s}\nserving: {address: '%s'}\n", c.interval, n.serving)
	if c.kubeconfig != "" {
		unchanged := ""
		if c.unchanged > 0 {
			unchanged = fmt.Sprintf(", unchangedEvery: %s", c.unchanged)
		}
		fmt.Fprintf(&b, "destination: {resource: %s, kubeconfig: '%s', writeTimeout: %s%s}\n",
			apiservers.Kube.Resource, c.kubeconfig, max(c.writeTimeout, time.Second), unchanged)
	}
	b.WriteString("plugins:\n")
	for i, keyID := range c.keyIDs {
		role := "Write"
		if i > 0 {
			role = "Read"
		}
		fmt.Fprintf(&b, "- {endpoint: 'unix://%s', role: %s, timeout: %s}\n", n.socket(keyID), role,
			cmp.Or(c.timeout, min(c.interval, 3*time.Second)))
	}
	return b.String()
}

// configure writes the reporter's file.
func (n *node) configure(content string) {
	n.must(disk.WriteVolume(n.config, map[string]string{"config.yaml": content}))
}

// configureAll makes the reporter write a report on two plugins every second.
func (n *node) configureAll(access controlplane.Kubeconfig) {
	n.configure(n.render(settings{interval: time.Second, kubeconfig: n.kubeconfig(access), keyIDs: []int{1, 2}}))
}

func (n *node) kubeconfig(access controlplane.Kubeconfig) string {
	path, err := access.Write(filepath.Join(n.sockets, "credentials"))
	n.must(err)
	return path
}
