package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// scenes are played in order. Each does something, waits until the reporter says
// what it should, and shows that.
var scenes = []func(*stage) error{
	begin, healthy, fault, crash, rotation, reload, brokenFile, asCondition, finish,
}

// is wants exactly these plugins, as keyID=status, in this order.
func is(want ...string) func([]health.Entry) bool {
	return func(entries []health.Entry) bool {
		var got []string
		for _, e := range entries {
			got = append(got, e.KeyID+"="+string(e.Status))
		}
		return slices.Equal(got, want)
	}
}

// expect waits for a report and shows it.
func (s *stage) expect(what string, ok func([]health.Entry) bool) error {
	r, err := s.await(what, ok)
	if err == nil {
		s.table(r)
	}
	return err
}

func begin(s *stage) error {
	s.say("kms-health-reporter sits beside an API server, asks the KMS plugins that encrypt")
	s.say("its Secrets how they are, and says so where admins look. Here it watches plugins")
	s.say("that serve the real KMS v2 protocol on unix sockets, once a second. What is shown")
	s.say("in tables is what the reporter wrote; nothing is shown that did not happen.")

	s.title("The reporter starts. There is no file yet and no plugin: it waits.")
	if err := s.startReporter(); err != nil {
		return err
	}
	s.shell("kms-health-reporter --config %s --node-name laptop --output -", s.config.file())
	line := "No configuration file yet"
	if err := s.until("the log says: "+line, func() bool { return s.logged(line) != "" }); err != nil {
		return err
	}
	s.text(s.logged(line))
	return nil
}

// logged returns the log's last line that holds a text, from its message on.
func (s *stage) logged(text string) string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return ""
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		if _, message, ok := strings.Cut(string(line), "] "); ok && strings.Contains(message, text) {
			return message
		}
	}
	return ""
}

func healthy(s *stage) error {
	s.title("Two plugins and a file that names them appear. Both plugins are healthy.")
	for _, keyID := range []string{"1", "2"} {
		if err := s.startPlugin(keyID); err != nil {
			return err
		}
	}
	text := s.configuration("2:Write", "1:Read")
	s.shell("cat %s", s.config.file())
	s.text(text)
	if err := s.config.swap(text); err != nil {
		return err
	}
	return s.expect("both are healthy, the write key first", is("2=healthy", "1=healthy"))
}

func fault(s *stage) error {
	s.title("The vault behind plugin 2 is sealed: it answers, and not well. Then it is unsealed.")
	s.shell(`kms-plugin ctl … unhealthy "vault is sealed"`)
	if err := s.do("2", "unhealthy", "vault is sealed"); err != nil {
		return err
	}
	sealed := func(e []health.Entry) bool {
		return is("2=unhealthy", "1=healthy")(e) && e[0].Detail == `healthz is "vault is sealed", not "ok"`
	}
	if err := s.expect("2 is unhealthy, and says why", sealed); err != nil {
		return err
	}
	s.shell("kms-plugin ctl … heal")
	if err := s.do("2", "heal"); err != nil {
		return err
	}
	return s.expect("2 is healthy again", is("2=healthy", "1=healthy"))
}

func crash(s *stage) error {
	s.title("Plugin 1 crashes: there is no answer to judge. Then it returns.")
	s.shell("kms-plugin ctl … crash")
	if err := s.do("1", "crash"); err != nil {
		return err
	}
	refused := func(e []health.Entry) bool {
		return is("2=healthy", "1=error")(e) && e[1].Reason == health.ConnectFailed && strings.Contains(e[1].Detail, "connection refused")
	}
	if err := s.expect("1 is an error, with the reason", refused); err != nil {
		return err
	}
	s.shell("kms-plugin ctl … return")
	if err := s.do("1", "return"); err != nil {
		return err
	}
	return s.expect("1 is seen again by the next probe", is("2=healthy", "1=healthy"))
}

func rotation(s *stage) error {
	s.title("The remote key of plugin 2 is rotated: another KEK ID, which a key rotation waits for.")
	before := s.last.entries[0].KEKID
	s.shell("kms-plugin ctl … rotate")
	if err := s.do("2", "rotate"); err != nil {
		return err
	}
	return s.expect("2 names another key", func(e []health.Entry) bool {
		return is("2=healthy", "1=healthy")(e) && e[0].KEKID != before
	})
}

func reload(s *stage) error {
	s.title("The file changes as the kubelet changes a ConfigMap: key 3 comes, key 1 goes. No restart.")
	if err := s.startPlugin("3"); err != nil {
		return err
	}
	pid := s.reporter.Process.Pid
	s.shell("ln -s ..version-2 ..data_tmp && mv -T ..data_tmp ..data")
	s.skip()
	began := time.Now()
	if err := s.config.swap(s.configuration("3:Write", "2:Read")); err != nil {
		return err
	}
	if err := s.expect("3 and 2, and no more of 1", is("3=healthy", "2=healthy")); err != nil {
		return err
	}
	state, err := s.plugins["3"].control.State(s.ctx)
	if err != nil {
		return err
	}
	first := state.Calls["Status"].First
	if first.Before(began) {
		return fmt.Errorf("plugin 3 was probed at %s, before it was in the file at %s", first, began)
	}
	s.say("   Plugin 3 was probed %d ms after the change, by the same process, %d.", first.Sub(began).Milliseconds(), pid)
	return nil
}

func brokenFile(s *stage) error {
	s.title("A broken file: the last good one stays in force, and everyone who asks is told.")
	if err := s.config.swap(strings.Replace(s.configuration("3:Write", "2:Read"), "interval: 1s", "interval: 1ns\n  retries: 3", 1)); err != nil {
		return err
	}
	complaint := `probe.retries: Invalid value: "3": unknown field; probe.interval: Invalid value: "1ns": must be from 1s to 1h0m0s`
	var answer string
	err := s.until("/healthz tells of the broken file", func() bool {
		var err error
		answer, err = s.get("/healthz?verbose")
		return err == nil && strings.Contains(answer, complaint)
	})
	if err != nil {
		return err
	}
	s.shell("curl http://%s/healthz?verbose", s.serving)
	s.text(answer)
	s.skip()
	if err := s.expect("the plugins are still probed", is("3=healthy", "2=healthy")); err != nil {
		return err
	}
	return s.config.swap(s.configuration("3:Write", "2:Read"))
}

func asCondition(s *stage) error {
	s.title("Beside an API server, the same goes into one condition of its operator resource.")
	r, err := s.await("a report", is("3=healthy", "2=healthy"))
	if err != nil {
		return err
	}
	s.text(fmt.Sprintf("- type: %s\n  status: %q\n  reason: %s\n  message: '%s'", health.ConditionType("laptop"), health.ConditionStatus, health.ConditionReason, r.line))
	return nil
}

func finish(s *stage) error {
	s.title("SIGTERM ends it.")
	began := time.Now()
	if err := end("kms-health-reporter", s.reporter); err != nil {
		return err
	}
	s.say("   It ended with exit code %d after %d ms.", s.reporter.ProcessState.ExitCode(), time.Since(began).Milliseconds())
	return nil
}
