package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// patience bounds the wait for one thing to happen.
	patience = 15 * time.Second
	// parting bounds the wait for a process to end.
	parting = 5 * time.Second
)

// stage is where the demo plays: a folder, processes, and what the reporter
// says.
type stage struct {
	ctx      context.Context
	dir      string
	sockets  string // folder of the sockets
	config   *configMap
	reports  chan report
	last     report
	log      string // the reporter's log file
	reporter *exec.Cmd
	plugins  map[string]*plugin
	serving  string
	scene    int
	colours  bool
}

// report is one line of the reporter's output.
type report struct {
	entries []health.Entry
	at      time.Time
	line    string
}

type plugin struct {
	process *exec.Cmd
	control *kmsplugin.Client
}

func newStage(ctx context.Context) (*stage, error) {
	dir, err := os.MkdirTemp("", "kms-health-demo")
	if err != nil {
		return nil, err
	}
	s := &stage{
		ctx:     ctx,
		dir:     dir,
		sockets: filepath.Join(dir, "kmsplugin"),
		config:  &configMap{dir: filepath.Join(dir, "config")},
		reports: make(chan report, 1000),
		log:     filepath.Join(dir, "reporter.log"),
		plugins: map[string]*plugin{},
		colours: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
	}
	for _, d := range []string{s.sockets, s.config.dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	for _, binary := range []string{"kms-health-reporter", "kms-plugin"} {
		if _, err := os.Stat(program(binary)); err != nil {
			return nil, errors.Join(fmt.Errorf("%w; run `make demo`, which builds it", err), s.close())
		}
	}
	return s, nil
}

func program(name string) string { return filepath.Join("bin", name) }

// start runs a program, with its output in a file.
func (s *stage) start(logFile string, stdout io.Writer, name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.Command(program(name), args...)
	cmd.Stdout, cmd.Stderr = stdout, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which ends them in order
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, nil
}

func (s *stage) startPlugin(keyID string) error {
	control := filepath.Join(s.dir, "control-"+keyID+".sock")
	cmd, err := s.start(filepath.Join(s.dir, "plugin-"+keyID+".log"), nil, "kms-plugin",
		"--endpoint", "unix://"+s.socket(keyID), "--state-dir", filepath.Join(s.dir, "state-"+keyID), "--control", control)
	if err != nil {
		return err
	}
	client, err := kmsplugin.NewClient(control)
	if err != nil {
		return err
	}
	s.plugins[keyID] = &plugin{cmd, client}
	return s.until("plugin "+keyID+" runs", func() bool {
		state, err := client.State(s.ctx)
		return err == nil && state.Listening
	})
}

func (s *stage) socket(keyID string) string {
	return filepath.Join(s.sockets, "kms-"+keyID+".sock")
}

// startReporter runs the reporter, and takes in the lines that it prints.
func (s *stage) startReporter() error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s.serving = address
	read, write := io.Pipe()
	s.reporter, err = s.start(s.log, write, "kms-health-reporter", "--config", s.config.file(), "--node-name", "laptop", "--output", "-")
	if err != nil {
		return err
	}
	go func() {
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			entries, err := health.DecodeMessage(lines.Text())
			if err != nil {
				continue // a line that is no report shows in that nothing matches
			}
			s.reports <- report{entries, time.Now(), lines.Text()}
		}
	}()
	return nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// do gives a command to a plugin.
func (s *stage) do(keyID, command string, args ...string) error {
	_, err := s.plugins[keyID].control.Do(s.ctx, command, args...)
	return err
}

// await waits for a report that is as wanted.
func (s *stage) await(what string, ok func([]health.Entry) bool) (report, error) {
	timeout := time.After(patience)
	for {
		select {
		case r := <-s.reports:
			s.last = r
			if ok(r.entries) {
				return r, nil
			}
		case <-timeout:
			return report{}, fmt.Errorf("expected, but not seen within %s: %s; the last report is %s", patience, what, s.last.line)
		case <-s.ctx.Done():
			return report{}, s.ctx.Err()
		}
	}
}

// skip passes over reports from before now.
func (s *stage) skip() {
	for len(s.reports) > 0 {
		<-s.reports
	}
}

// until waits for something that no report tells.
func (s *stage) until(what string, ok func() bool) error {
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) || s.ctx.Err() != nil {
			return fmt.Errorf("expected, but not seen within %s: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *stage) get(path string) (string, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + s.serving + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// logTail returns what the reporter logged last, for a demo that failed.
func (s *stage) logTail() error {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return fmt.Errorf("the reporter's log ends:\n%s", bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// close ends every process by its id, and removes the folder. A process that
// does not end well is an error.
func (s *stage) close() error {
	var errs []error
	if s.reporter != nil {
		errs = append(errs, end("kms-health-reporter", s.reporter))
	}
	for keyID, p := range s.plugins {
		errs = append(errs, end("kms-plugin "+keyID, p.process))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func end(name string, cmd *exec.Cmd) error {
	if cmd.ProcessState != nil {
		return nil // ended on stage
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only when it ended, which Wait tells
	kill := time.AfterFunc(parting, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// configMap is a folder as the kubelet mounts a ConfigMap.
type configMap struct {
	dir     string
	version int
}

func (c *configMap) file() string { return filepath.Join(c.dir, "config.yaml") }

// swap puts new content in place as the kubelet does: a new folder beside the
// old one, and one rename of the link that both are reached by.
func (c *configMap) swap(text string) error {
	old := fmt.Sprintf("..version-%d", c.version)
	c.version++
	name := fmt.Sprintf("..version-%d", c.version)
	if err := os.Mkdir(filepath.Join(c.dir, name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, name, "config.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	link := filepath.Join(c.dir, "..data")
	if err := os.Symlink(name, link+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		return err
	}
	if c.version == 1 {
		return os.Symlink(filepath.Join("..data", "config.yaml"), c.file())
	}
	return os.RemoveAll(filepath.Join(c.dir, old))
}

// configuration is the reporter's file for plugins given as keyID:role.
func (s *stage) configuration(plugins ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe:\n  interval: 1s\nplugins:\n")
	for _, p := range plugins {
		keyID, role, _ := strings.Cut(p, ":")
		fmt.Fprintf(&b, "- endpoint: unix://%s\n  role: %s\n", s.socket(keyID), role)
	}
	fmt.Fprintf(&b, "serving:\n  address: %s\n", s.serving)
	return b.String()
}
