//go:build integration

// Package languages compares the verdicts of kube-apiserver and the reporter on plugins that use the gRPC libraries of
// three languages, each with typical mistakes of authors: `make test-languages`. The plugins are in testdata.
// testdata/verdicts.txt has the expected verdicts.
package languages

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
)

var (
	modules = flag.String("node-modules", "", "the folder with Node's packages; without it this is skipped")
	update  = flag.Bool("update", false, "write testdata/verdicts.txt anew")
)

const (
	verdicts = "testdata/verdicts.txt"
	// timeout is the timeout of each provider and of the reporter. A slow answer takes 4 s.
	timeout = "2s"
	// listens bounds the start of a plugin. Many start at the same time.
	listens = time.Minute
)

// faults are set by an argument at a plugin's start, or by befalls after it.
var faults = []struct {
	name, argument string
	befalls        func(*testing.T, *subject)
	skeleton       bool // also tested with the skeleton
}{
	{name: "none", skeleton: true},
	{name: "throws", argument: "throw"},
	{name: "aborts with a code", argument: "abort"},
	{name: "hangs in its pool", argument: "hang"},
	{name: "limit of calls", argument: "limit"},
	{name: "key_id dropped", argument: "key_id"},
	{name: "another message", argument: "message"},
	{name: "slow", argument: "slow"},
	{name: "5 MiB", argument: "large"},
	{name: "long path", argument: longPath},
	{name: "restart with overlap", befalls: overlap, skeleton: true},
	{name: "SIGSTOP", befalls: func(t *testing.T, s *subject) { s.signal(t, syscall.SIGSTOP) }},
	{name: "SIGKILL", befalls: func(t *testing.T, s *subject) { s.child.End(t, time.Minute, syscall.SIGKILL) }},
}

const longPath = "long path"

// subject is one plugin.
type subject struct {
	language, fault, socket string
	command                 []string
	child                   *program.Child
	theirs, ours, text      string
}

func (s *subject) start(t *testing.T) {
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+*modules)
	log := &program.Output{}
	cmd.Stdout, cmd.Stderr = log, log
	s.child = program.Start(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s, %s: %s", s.language, s.fault, log.Text())
		}
	})
}

// awaitListening waits until this process listens: the socket's file differs from before.
func (s *subject) awaitListening(t *testing.T, before os.FileInfo) {
	wait.Eventually(t, listens, s.language+" listens", func() error {
		now, err := os.Stat(s.socket)
		if err != nil || os.SameFile(before, now) {
			return fmt.Errorf("no new socket: %w", err)
		}
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (s *subject) signal(t *testing.T, signal os.Signal) {
	must.Succeed(t, s.child.Process.Signal(signal))
}

// overlap starts a successor, and then ends the old process.
func overlap(t *testing.T, s *subject) {
	before, err := os.Stat(s.socket)
	must.Succeed(t, err)
	old := s.child
	s.start(t)
	s.awaitListening(t, before)
	old.End(t, time.Minute, syscall.SIGTERM)
}

// The test starts all plugins, then kube-apiserver with all of them as providers. The reporter probes each plugin once.
func TestVerdictsOnPluginsOfThreeLanguages(t *testing.T) {
	if *modules == "" {
		t.Skip("not compared without -node-modules: see make test-languages")
	}
	all := subjects(t)
	server := controlplane.StartForTest(t, controlplane.Options{
		ExtraArgs: []string{"--request-timeout=10m"}, // /healthz waits for the timeout of each plugin in turn
	})
	config := []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for i, s := range all {
		config = fmt.Appendf(config, `- resources: [plugins%d.languages.example.com]
  providers: [{kms: {apiVersion: v2, name: plugin-%[1]d, endpoint: "unix://%s", timeout: %s}}]
`, i, s.socket, timeout)
	}
	must.Succeed(t, server.StopAPIServer(t.Context()))
	must.Succeed(t, server.SetEncryptionConfig(config))
	must.Succeed(t, server.StartAPIServer(t.Context()))
	failures, err := server.KMSProviders(t.Context())
	must.Succeed(t, err)
	for i, s := range all {
		s.theirs = theirVerdict(failures[i])
		t.Logf("%s, %s: kube-apiserver: %.400s", s.language, s.fault, failures[i])
	}
	probe(t, all)
	compare(t, all)
}

// subjects starts all plugins and applies their faults.
func subjects(t *testing.T) (all []*subject) {
	dir := program.SocketDir(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	plugin := build(t, dir, "test/languages/testdata/go")
	skeleton := build(t, dir, "test/languages/skeleton")
	descriptors, err := proto.Marshal(protodesc.ToFileDescriptorProto(kmsapi.File_staging_src_k8s_io_kms_apis_v2_api_proto))
	must.Succeed(t, err)
	for name, content := range map[string][]byte{"descriptors": descriptors, "key": make([]byte, 32)} {
		disk.Write(t, path(name), content)
	}
	kms, err := program.ModuleDir(".", "k8s.io/kms")
	must.Succeed(t, err)
	for _, f := range faults {
		for _, language := range []string{"Python", "Node", "Go", "Go, skeleton"} {
			s := &subject{language: language, fault: f.name, socket: path(fmt.Sprintf("%d.sock", len(all)))}
			if f.argument == longPath {
				s.socket = path(fmt.Sprintf("%0*d.sock", 144-len(dir), len(all))) // 150 bytes
			}
			s.command = map[string][]string{
				"Python":       {"/usr/bin/python3", "testdata/plugin.py", s.socket, f.argument, path("descriptors")},
				"Node":         {"node", "testdata/plugin.js", s.socket, f.argument, filepath.Join(kms, "apis/v2/api.proto")},
				"Go":           {plugin, s.socket, f.argument},
				"Go, skeleton": {skeleton, s.socket, path("key")},
			}[language]
			if language != "Go, skeleton" || f.skeleton {
				s.start(t)
				all = append(all, s)
			}
		}
	}
	for _, s := range all {
		for _, f := range faults {
			if f.name == s.fault && f.argument != longPath {
				s.awaitListening(t, nil)
			}
			if f.name == s.fault && f.befalls != nil {
				f.befalls(t, s)
			}
		}
	}
	return all
}

func build(t *testing.T, dir, folder string) string {
	path, err := program.Build(dir, folder)
	must.Succeed(t, err)
	return path
}

var (
	code       = regexp.MustCompile(`code = (\w+)`)
	socketPath = regexp.MustCompile(`/tmp/kmsh[\w./]+`)
)

// theirVerdict returns kube-apiserver's verdict, with the gRPC code if it names one.
func theirVerdict(failure string) string {
	if failure == "" {
		return "ok"
	}
	if found := code.FindStringSubmatch(failure); found != nil {
		return "failed: " + found[1]
	}
	return "failed"
}

// probe runs the reporter once for each plugin, up to four at a time.
func probe(t *testing.T, all []*subject) {
	dir := program.SocketDir(t)
	reporter := build(t, dir, "cmd/kms-health-reporter")
	var probes errgroup.Group
	probes.SetLimit(4)
	for i, s := range all {
		probes.Go(func() error {
			cmd := exec.Command(reporter, "--once", "--config", "-")
			cmd.Stdin = strings.NewReader(fmt.Sprintf("apiVersion: kmshealth.openshift.io/v1alpha1\n"+
				"kind: ReporterConfiguration\nplugins: [{keyID: %q, endpoint: %q, timeout: %s, role: Write}]\n",
				fmt.Sprint(i), "unix://"+s.socket, timeout))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // exit code 1 means unhealthy
			entries, err := contract.DecodeMessage(strings.TrimSpace(stdout.String()))
			if err != nil || len(entries) != 1 {
				s.ours, s.text = "no report", stderr.String()
			} else {
				s.ours = strings.TrimSpace(fmt.Sprintf("%s %s", entries[0].Status, entries[0].Reason))
				s.text = entries[0].Detail
			}
			s.text = strings.TrimSpace(socketPath.ReplaceAllString(s.text, "SOCKET"))
			return nil
		})
	}
	must.Succeed(t, probes.Wait())
}

// compare prints the verdicts, and compares them with the file.
func compare(t *testing.T, all []*subject) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FAULT\tLANGUAGE\tKUBE-APISERVER\tREPORTER\tTEXT")
	for _, s := range all {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.fault, s.language, s.theirs, s.ours, cmp.Or(s.text, "-"))
		if (s.theirs == "ok") != (s.ours == string(contract.Healthy)) {
			t.Errorf("%s, %s: kube-apiserver: %s, the reporter: %s", s.language, s.fault, s.theirs, s.ours)
		}
	}
	must.Succeed(t, table.Flush())
	t.Logf("\n%s", text.String())
	if *update {
		must.Succeed(t, os.WriteFile(verdicts, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(verdicts)
	if err != nil || text.String() != string(want) {
		t.Errorf("not as %s (%v); -update writes it anew", verdicts, err)
	}
}
