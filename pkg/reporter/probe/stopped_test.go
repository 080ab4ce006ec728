package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// childFolder makes the test binary a process that runs a plugin, and that the test can stop.
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
	if address := os.Getenv(childSocket); address != "" {
		probeByCommand(address)
		os.Exit(0)
	}
	if os.Getenv(childCapabilities) != "" {
		connectAsAnother()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// process is a child process: the test binary in another role.
type process struct {
	*program.Child
	t      *testing.T
	socket string // of a plugin
	input  io.Writer
	output *bufio.Reader
}

// startProcess runs a plugin.
func startProcess(t *testing.T) *process {
	t.Helper()
	dir := program.SocketDir(t)
	p := startChild(t, childFolder+"="+dir)
	p.socket = dir + "/kms.sock"
	return p
}

// startChild returns when the process has written its first line.
func startChild(t *testing.T, role string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), role), os.Stderr
	input, err := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	must.Succeed(t, errors.Join(err, err2))
	p := &process{Child: program.Start(t, cmd), t: t, input: input, output: bufio.NewReader(output)}
	p.line()
	return p
}

// line reads a line of the process's output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.output.ReadString('\n')
	must.Succeed(p.t, err)
	return line
}

// signal sends a signal. After SIGSTOP it waits until all threads have stopped: only then does the kernel notify the
// parent.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Errorf("%s: %v", s, err)
	}
	if s == syscall.SIGSTOP {
		_, err := syscall.Wait4(p.Process.Pid, nil, syscall.WUNTRACED, nil)
		must.Succeed(p.t, err)
	}
}

// resources are resources that could leak.
type resources struct {
	goroutines, descriptors int
	heap                    uint64
}

func held(t *testing.T) resources {
	t.Helper()
	runtime.GC()
	runtime.GC() // frees what finalizers released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	must.Succeed(t, err)
	return resources{runtime.NumGoroutine(), len(open), m.HeapAlloc}
}

// noMore waits until no more resources are used than before, within a tolerance for gRPC
// and the test itself.
func (before resources) noMore(t *testing.T) {
	t.Helper()
	var now resources
	for deadline := time.Now().Add(generous); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now = held(t)
		if now.goroutines <= before.goroutines+2 && now.descriptors <= before.descriptors+1 && now.heap <= before.heap+512<<10 {
			t.Logf("before %+v, now %+v", before, now)
			return
		}
	}
	t.Errorf("before %+v, now %+v", before, now)
}

// A plugin that is stopped (SIGSTOP, a frozen cgroup, a deadlock) reads nothing: writes
// fill the socket's buffer, and then block here.
func TestStoppedPluginCostsNoMemoryAndFewConnections(t *testing.T) {
	real := startProcess(t)
	plugin := NewPlugin(real.socket)
	defer plugin.Close()
	goesOn := func() {
		t.Helper()
		real.signal(syscall.SIGCONT)
		healthy(t, plugin)
	}
	// A plugin that listens but never starts HTTP/2 gets only one connection.
	real.signal(syscall.SIGSTOP)
	for range 20 {
		if r := ask(t, plugin, writer(short/10)); r.NotProbed == "" && r.Reason != contract.Timeout {
			t.Fatalf("%+v", r)
		}
	}
	if n := plugin.connections.Load(); n != 1 {
		t.Errorf("%d connections before the first answer", n)
	}
	goesOn()

	before := held(t)
	real.signal(syscall.SIGSTOP)
	for i := range 2000 {
		r := ask(t, plugin, writer(time.Millisecond))
		expected := r.Status == contract.Error && (r.Reason == contract.Timeout || r.Reason == contract.ConnectFailed)
		if r.NotProbed == "" && !expected {
			t.Fatalf("probe %d: %+v", i, r)
		}
	}
	before.noMore(t)
	if n := plugin.connections.Load(); n > 4 {
		t.Errorf("%d connections in the queue of the plugin, which kube-apiserver needs too", n)
	}
	goesOn()

	real.signal(syscall.SIGSTOP)
	for range 500 { // fills its socket's buffer
		ask(t, plugin, writer(time.Millisecond))
	}
	began := time.Now()
	plugin.Close()
	if took := time.Since(began); took > writeTimeout-time.Second {
		t.Errorf("closing took %s", took)
	}
}
