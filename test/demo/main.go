// Command demo shows kms-health-reporter at work beside KMS plugins: real processes, no
// cluster, no root, no internet. It ends with 0 only if everything that it showed is what
// happened.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/demo/script"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// reporter is one with its plugins, its file, and what it reported.
type reporter struct {
	*script.Script
	config  string // the folder of its file
	version int    // of the file
	log     string // its log, with a report in each line that is none of the log
	serving string
	process *script.Process
	passed  int // lines of the log that are of no more interest
	last    []contract.Entry
	message string // the same as it was printed
}

func main() { script.Main("demo", 2*time.Minute, scenes) }

func scenes(s *script.Script) {
	r := &reporter{
		Script: s, config: filepath.Join(s.Dir, "config"), log: filepath.Join(s.Dir, "reporter.log"), serving: freeAddress(s),
	}
	s.Must(os.Mkdir(r.config, 0o700))
	s.Must(os.Mkdir(filepath.Join(s.Dir, "kmsplugin"), 0o700))
	for _, scene := range []func(){
		r.begin, r.healthy, r.unhealthy, r.crash, r.rotation, r.reload, r.brokenFile, r.asCondition, r.end,
	} {
		scene()
	}
	s.Next = "Next: docs/quickstart/laptop.md explains how to run it on a plugin of yours, and\n" +
		"`bin/kms-health-reporter --help` lists its options."
}

func freeAddress(s *script.Script) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (r *reporter) file() string { return filepath.Join(r.config, "config.yaml") }

func (r *reporter) socket(keyID string) string {
	return filepath.Join(r.Dir, "kmsplugin", "kms-"+keyID+".sock")
}

func (r *reporter) control(keyID string) string {
	return filepath.Join(r.Dir, "control-"+keyID+".sock")
}

// configuration is the reporter's file for plugins given as keyID:role.
func (r *reporter) configuration(plugins ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe:\n  interval: 1s\nplugins:\n")
	for _, p := range plugins {
		keyID, role, _ := strings.Cut(p, ":")
		fmt.Fprintf(&b, "- endpoint: unix://%s\n  role: %s\n", r.socket(keyID), role)
	}
	fmt.Fprintf(&b, "serving:\n  address: %s\n", r.serving)
	return b.String()
}

// configure writes the file as a kubelet writes a ConfigMap's volume.
func (r *reporter) configure(text string) {
	r.version++
	version := fmt.Sprintf("..version-%d", r.version)
	r.Must(os.Mkdir(filepath.Join(r.config, version), 0o700))
	r.Must(os.WriteFile(filepath.Join(r.config, version, "config.yaml"), []byte(text), 0o600))
	r.Must(os.Symlink(version, filepath.Join(r.config, "..data_tmp")))
	r.Must(os.Rename(filepath.Join(r.config, "..data_tmp"), filepath.Join(r.config, "..data")))
	if r.version == 1 {
		r.Must(os.Symlink(filepath.Join("..data", "config.yaml"), r.file()))
	}
}

func (r *reporter) startPlugin(keyID string) {
	r.Start("kms-plugin", "plugin-"+keyID+".log", "--endpoint", "unix://"+r.socket(keyID), "--state-dir", filepath.Join(r.Dir, "state-"+keyID), "--control", r.control(keyID))
	r.Until("plugin "+keyID+" runs", func() error {
		state, err := r.state(keyID)
		if err == nil && !state.Listening {
			err = errors.New("it does not listen")
		}
		return err
	})
}

func (r *reporter) state(keyID string) (kmsplugin.State, error) {
	client, err := kmsplugin.NewClient(r.control(keyID))
	if err != nil {
		return kmsplugin.State{}, err
	}
	return client.State(r.Ctx)
}

// do gives a command to a plugin.
func (r *reporter) do(keyID string, args ...string) {
	words := slices.Clone(args)
	for i := range words {
		if strings.Contains(words[i], " ") {
			words[i] = `"` + words[i] + `"`
		}
	}
	r.Shell("kms-plugin ctl … %s", strings.Join(words, " "))
	r.Command(r.control(keyID), args...)
}

// lines are those of the log that are complete.
func (r *reporter) lines() []string {
	text, err := os.ReadFile(r.log)
	r.Must(err)
	all := strings.Split(string(text), "\n")
	return all[:len(all)-1]
}

// skip leaves out reports from before now.
func (r *reporter) skip() { r.passed = len(r.lines()) }

// expect waits for a report as wanted, and shows it.
func (r *reporter) expect(what string, ok func([]contract.Entry) bool) {
	r.await(what, ok)
	var lines []script.Line
	for _, e := range r.last {
		lines = append(lines, script.Line{Status: e.Status, Cells: []string{e.KeyID, string(e.Status), e.KEKID, e.LastChecked.Format(time.TimeOnly), e.Detail}})
	}
	r.Table("KEY\tSTATUS\tKEK ID\tCHECKED\tDETAIL", lines)
}

func (r *reporter) await(what string, ok func([]contract.Entry) bool) {
	r.Until(what, func() error {
		all := r.lines()
		for _, text := range all[r.passed:] {
			r.passed++
			entries, err := contract.DecodeMessage(text)
			if err != nil {
				continue // a line of the log
			}
			r.last, r.message = entries, text
			if ok(entries) {
				return nil
			}
		}
		return fmt.Errorf("the last report is %s", r.message)
	})
}

// is requires exactly these plugins, as keyID=status, in this order.
func is(want ...string) func([]contract.Entry) bool {
	return func(entries []contract.Entry) bool {
		var got []string
		for _, e := range entries {
			got = append(got, e.KeyID+"="+string(e.Status))
		}
		return slices.Equal(got, want)
	}
}

func (r *reporter) begin() {
	r.Say("kms-health-reporter runs beside an API server, checks the KMS plugins that encrypt")
	r.Say("its Secrets, and reports their state on the operator resource. Here it")
	r.Say("watches plugins that serve the real KMS v2 protocol on unix sockets, once a second.")
	r.Say("Tables show what the reporter wrote; nothing is shown that did not happen.")

	r.Title("The reporter starts. There is no file yet and no plugin: it waits.")
	r.process = r.Start("kms-health-reporter", "reporter.log", "--config", r.file(), "--node-name", "laptop", "--output", "-")
	r.Alive = r.process
	r.Shell("kms-health-reporter --config %s --node-name laptop --output -", r.file())
	const want = "No configuration file yet"
	var message string
	r.Until("the log has "+want, func() error {
		for _, text := range slices.Backward(r.lines()) {
			if _, after, ok := strings.Cut(text, "] "); ok && strings.Contains(after, want) {
				message = after
				return nil
			}
		}
		return errors.New("it has not")
	})
	r.Text(message)
}

func (r *reporter) healthy() {
	r.Title("Two plugins and a file that names them appear. Both plugins are healthy.")
	r.startPlugin("1")
	r.startPlugin("2")
	text := r.configuration("2:Write", "1:Read")
	r.Shell("cat %s", r.file())
	r.Text(text)
	r.configure(text)
	r.expect("both are healthy, the write key first", is("2=healthy", "1=healthy"))
}

func (r *reporter) unhealthy() {
	r.Title("The vault behind plugin 2 is sealed: it answers that it is unhealthy. Then it is unsealed.")
	r.do("2", "unhealthy", "vault is sealed")
	r.expect("2 is unhealthy, with the reason", func(e []contract.Entry) bool {
		return is("2=unhealthy", "1=healthy")(e) && e[0].Detail == `healthz is "vault is sealed", not "ok"`
	})
	r.do("2", "heal")
	r.expect("2 is healthy again", is("2=healthy", "1=healthy"))
}

func (r *reporter) crash() {
	r.Title("Plugin 1 crashes: there is no answer to judge. Then it returns.")
	r.do("1", "crash")
	r.expect("1 is an error, with the reason", func(e []contract.Entry) bool {
		return is("2=healthy", "1=error")(e) && e[1].Reason == contract.ConnectFailed && strings.Contains(e[1].Detail, "connection refused")
	})
	r.do("1", "return")
	r.expect("1 is healthy at the next probe", is("2=healthy", "1=healthy"))
}

func (r *reporter) rotation() {
	r.Title("The remote key of plugin 2 is rotated: another KEK ID, which a key rotation waits for.")
	before := r.last[0].KEKID
	r.do("2", "rotate")
	r.expect("2 names another key", func(e []contract.Entry) bool {
		return is("2=healthy", "1=healthy")(e) && e[0].KEKID != before
	})
}

func (r *reporter) reload() {
	r.Title("The file changes as the kubelet changes a ConfigMap: key 3 is added, key 1 is removed. No restart.")
	r.startPlugin("3")
	r.Shell("ln -s ..version-2 ..data_tmp && mv -T ..data_tmp ..data")
	r.skip()
	began := time.Now()
	r.configure(r.configuration("3:Write", "2:Read"))
	r.expect("3 and 2, and no more of 1", is("3=healthy", "2=healthy"))
	state, err := r.state("3")
	r.Must(err)
	first := state.Calls["Status"].First
	if first.Before(began) {
		r.Fail("plugin 3 was probed at %s, before it was in the file at %s", first, began)
	}
	r.Note("Plugin 3 was probed %d ms after the change, by the same process, %d.", first.Sub(began).Milliseconds(), r.process.Process.Pid)
}

func (r *reporter) brokenFile() {
	r.Title("An invalid file: the last valid one stays active, and /healthz reports the error.")
	good := r.configuration("3:Write", "2:Read")
	r.configure(strings.Replace(good, "interval: 1s", "interval: 1ns\n  retries: 3", 1))
	want := `unknown field "probe.retries"; probe.interval: Invalid value: "1ns": must be a duration with its unit, from 1s to 1h0m0s`
	client := http.Client{Timeout: script.WaitLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	var answer []byte
	r.Until("/healthz reports the broken file", func() error {
		response, err := client.Get("http://" + r.serving + "/healthz?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if answer, err = io.ReadAll(response.Body); err == nil && !bytes.Contains(answer, []byte(want)) {
			err = fmt.Errorf("it answers %s", answer)
		}
		return err
	})
	r.Shell("curl http://%s/healthz?verbose", r.serving)
	r.Text(string(answer))
	r.skip()
	r.expect("the plugins are still probed", is("3=healthy", "2=healthy"))
	r.configure(good)
}

func (r *reporter) asCondition() {
	r.Title("Beside an API server, the same goes into one condition of its operator resource.")
	r.await("a report", is("3=healthy", "2=healthy"))
	r.Text(fmt.Sprintf("- type: %s\n  status: %q\n  reason: %s\n  message: '%s'", contract.ConditionType("laptop"), contract.ConditionStatus, contract.ConditionReason, r.message))
}

func (r *reporter) end() {
	r.Title("SIGTERM ends it.")
	began := time.Now()
	r.Must(r.process.Stop())
	r.Note("It ended with exit code 0 after %d ms.", time.Since(began).Milliseconds())
}
