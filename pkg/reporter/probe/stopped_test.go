package probe

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// childFolder makes this binary a plugin's process, which can be stopped.
const childFolder = "PROBE_TEST_PLUGIN_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		if _, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + dir + "/kms.sock", StateDir: dir + "/state"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("listening")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// process is a plugin in a process of its own.
type process struct {
	*exec.Cmd
	t      *testing.T
	socket string
}

func startProcess(t *testing.T) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &process{Cmd: exec.Command(os.Args[0]), t: t, socket: filepath.Join(dir, "kms.sock")}
	p.Env = append(os.Environ(), childFolder+"="+dir)
	p.Stderr = os.Stderr
	input, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		p.signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return p
}

// signal returns, after SIGSTOP, when all of the process has stopped: the kernel stops
// one thread after the other.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Errorf("%s: %v", s, err)
	}
	for deadline := time.Now().Add(patient); s == syscall.SIGSTOP && !p.stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("process %d does not stop", p.Process.Pid)
		}
	}
}

// stopped reports whether each thread's state is T: the field after the program's name in
// parentheses, proc_pid_stat(5).
func (p *process) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid)) // fails for a bad pattern only
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), " T") {
			return false
		}
	}
	return len(threads) > 0
}

// resources are what a leak would take.
type resources struct {
	goroutines, descriptors int
	heap                    uint64
}

func held(t *testing.T) resources {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resources{runtime.NumGoroutine(), len(open), m.HeapAlloc}
}

// noMore waits until no more is held than before, give or take what gRPC and the test
// itself keep.
func (before resources) noMore(t *testing.T) {
	t.Helper()
	var now resources
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now = held(t)
		if now.goroutines <= before.goroutines+2 && now.descriptors <= before.descriptors+1 && now.heap <= before.heap+512<<10 {
			t.Logf("before %+v, now %+v", before, now)
			return
		}
	}
	t.Errorf("before %+v, now %+v", before, now)
}

// A plugin that is stopped (SIGSTOP, a frozen cgroup, a deadlock) reads nothing: what is
// written to it fills its socket, and then waits here.
func TestStoppedPluginCostsNoMemory(t *testing.T) {
	real := startProcess(t)
	plugin := NewPlugin(real.socket)
	defer plugin.Close()
	if r := ask(t, plugin, writer(patient)); r.Status != health.Healthy {
		t.Fatalf("%+v", r)
	}
	before := held(t)
	real.signal(syscall.SIGSTOP)
	const probes = 2000
	for i := range probes {
		if r := ask(t, plugin, writer(time.Millisecond)); r.Status != health.Error || r.Reason != health.Timeout && r.Reason != health.ConnectFailed {
			t.Fatalf("probe %d: %+v", i, r)
		}
	}
	before.noMore(t)
	if n := plugin.connections.Load(); n > 3 {
		t.Errorf("%d connections in the queue of the plugin, which kube-apiserver needs too", n)
	}
	real.signal(syscall.SIGCONT)
	if r := ask(t, plugin, writer(patient)); r.Status != health.Healthy {
		t.Errorf("it goes on: %+v", r)
	}
}

func TestClosingDoesNotWaitForAStoppedPlugin(t *testing.T) {
	real := startProcess(t)
	plugin := NewPlugin(real.socket)
	if r := ask(t, plugin, writer(patient)); r.Status != health.Healthy {
		t.Fatalf("%+v", r)
	}
	real.signal(syscall.SIGSTOP)
	// Until its socket is full, so that nothing can be written to it any more.
	for range 500 {
		ask(t, plugin, writer(time.Millisecond))
	}
	began := time.Now()
	plugin.Close()
	if took := time.Since(began); took > time.Second {
		t.Errorf("closing took %s", took)
	}
}

// kubernetes-csi/livenessprobe issue 45: a client that connected anew to a socket that
// came and went leaked a connection each time.
func TestLivenessprobe45FlappingSocketLeaksNothing(t *testing.T) {
	real := start(t)
	plugin := probed(t, real.Endpoint())
	flap := func() {
		if err := real.Crash(); err != nil {
			t.Fatal(err)
		}
		if r := ask(t, plugin, writer(patient)); r.Status != health.Error {
			t.Fatalf("down: %+v", r)
		}
		if err := real.Return(); err != nil {
			t.Fatal(err)
		}
		if r := ask(t, plugin, writer(patient)); r.Status != health.Healthy {
			t.Fatalf("up: %+v", r)
		}
	}
	for range 50 {
		flap()
	}
	before := held(t)
	for range 500 {
		flap()
	}
	before.noMore(t)
}

// A plugin that listens and accepts, and never says a word of HTTP/2.
func TestPluginThatNeverAcceptsGetsOneConnection(t *testing.T) {
	real := startProcess(t)
	real.signal(syscall.SIGSTOP)
	plugin := NewPlugin(real.socket)
	defer plugin.Close()
	for range 20 {
		if r := ask(t, plugin, writer(short/10)); r.Reason != health.Timeout {
			t.Fatalf("%+v", r)
		}
	}
	if n := plugin.connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	real.signal(syscall.SIGCONT)
	if r := ask(t, plugin, writer(patient)); r.Status != health.Healthy {
		t.Errorf("it goes on: %+v", r)
	}
}
