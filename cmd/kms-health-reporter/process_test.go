package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// waitLimit bounds each wait.
const waitLimit = 30 * time.Second

// asMain makes the test binary run main.
const asMain = "KMS_HEALTH_REPORTER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a reporter in a child process, with one plugin.
type process struct {
	*program.Child
	plugin *kmsplugin.Plugin
}

// start runs the program with a file of one plugin that is probed every second. It is cleaned up after the test.
func start(t *testing.T, stdout, stderr *os.File, args ...string) *process {
	t.Helper()
	p, config := plugin(t, "probe: {interval: 1s}\n")
	cmd := exec.Command(os.Args[0], append([]string{"--config", config}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return &process{Child: program.Start(t, cmd), plugin: p}
}

func TestSignalEndsItWhileSomethingHangs(t *testing.T) {
	for name, c := range map[string]struct {
		signals  int
		low, top time.Duration
	}{
		"one signal":  {1, hardEnd, hardEnd + time.Second},
		"two signals": {2, 0, hardEnd / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signals, exited := make(chan os.Signal, 2), make(chan int)
			ctx := untilSignal(signals, func(code int) { exited <- code })
			began := time.Now()
			for range c.signals {
				signals <- syscall.SIGTERM
			}
			select {
			case code := <-exited:
				took := time.Since(began)
				if code != reporter.ExitOK || took < c.low || took > c.top || ctx.Err() == nil {
					t.Errorf("exit code %d after %s, the context: %v", code, took, ctx.Err())
				}
			case <-time.After(waitLimit):
				t.Fatal("no exit")
			}
		})
	}
}

// For a healthy plugin the reporter logs the key_id, which is untrusted text.
func TestLogIsFlushedAtTheEndAndAKeyIDForgesNoLineOfIt(t *testing.T) {
	const forged = `E1122 10:00:00.000000       1 forged.go:1] "Forged"`
	keyID := "k\n" + forged + "\x1b[2J\r\u0085\u009b2J\u2028\u202e\x7f"
	var log, reports program.Output
	p := start(t, reports.Pipe(t), log.Pipe(t), "--output=-")
	must.Succeed(t, p.plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultKeyID, Args: []string{keyID}}))
	log.Await(t, waitLimit, "forged.go")
	reports.Await(t, waitLimit, "forged.go")
	if code, took := p.End(t, waitLimit, syscall.SIGTERM); code != reporter.ExitOK {
		t.Errorf("exit code %d after %s", code, took)
	}
	for _, want := range []string{`"Starting"`, `"Ending" signal="terminated"`, `"Ended"`} { // "Ended" shows that hardEnd did not end it
		log.Await(t, waitLimit, want)
	}
	line := regexp.MustCompile(`^[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z_]+\.go:\d+\] ".*$`)
	for _, l := range strings.Split(strings.TrimSuffix(log.Text(), "\n"), "\n") {
		if !line.MatchString(l) || strings.HasPrefix(l, "E1122 10:00:00.000000 ") {
			t.Errorf("not a log line of the reporter: %q", l)
		}
	}
	for name, text := range map[string]string{"log": log.Text(), "report": reports.Text()} {
		for _, r := range text {
			if r != '\n' && (r < ' ' || r >= 0x7f) {
				t.Errorf("%s holds a raw %U: %q", name, r, text)
				break
			}
		}
	}
}

func TestOnceNamesTheUserToWhomTheSocketIsDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	p, config := plugin(t, "")
	socket := strings.TrimPrefix(p.Endpoint(), "unix://")
	stdin, err := os.Open(config)
	must.Succeed(t, errors.Join(err, os.Chmod(filepath.Dir(socket), 0o755), os.Chmod(socket, 0o600)))
	defer stdin.Close()
	cmd := exec.Command("/proc/self/exe", "--once", "--config", "-") // other users may not enter the folders of both files
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Env = append(os.Environ(), asMain+"=1", contract.APIServerUserVariable+"=0:0 groups 0 DAC_OVERRIDE")
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	out, _ := cmd.Output()
	const want = "cannot be probed as the API server: connect: permission denied: this process runs as 65534:65534 groups 65534, " +
		"and the API server as 0:0 groups 0 DAC_OVERRIDE\n"
	if code := cmd.ProcessState.ExitCode(); code != reporter.ExitNoAnswer || string(out) != "[]\n" || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("%d, %q, %q", code, out, stderr.String())
	}
}
