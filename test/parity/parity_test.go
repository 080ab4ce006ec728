//go:build integration

package parity

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// timeout is each provider's, and our probe's.
	timeout = 3 * time.Second
	// positiveTTL is how long kube-apiserver keeps a good verdict
	// (kmsPluginHealthzPositiveTTL of k8s.io/apiserver's encryptionconfig).
	positiveTTL = 20 * time.Second
	// settle is when its answer is newer than a fault: a call that began just
	// before the fault may take its timeout and is then kept for positiveTTL.
	settle = positiveTTL + timeout + time.Second
	// recovery bounds how long kube-apiserver may take to see all healed. It keeps a bad
	// verdict for 3 s, but redials a lost connection by a backoff of up to two minutes:
	// that is no verdict on an answer, so it is not judged.
	recovery = 3 * time.Minute
)

// Roles of a provider. Each fault is compared in both.
const (
	write = "Write"
	read  = "Read"
)

// maxTurns is how often a plugin that answers by turns is asked.
const maxTurns = 3

var compared = flag.Bool("compare", false, "compare; otherwise this is skipped, since it takes minutes")

// subject is one plugin, its fault and role, and our two long-lived probes of it.
type subject struct {
	fault
	role              string
	plugin            *kmsplugin.Plugin
	status, roundTrip *probe.Plugin
	found             verdicts
}

// TestVerdictsAreThoseOfKubeAPIServer has a plugin for each fault in each role, all of them
// providers of one kube-apiserver, so its cache must be waited out once and not once a fault.
func TestVerdictsAreThoseOfKubeAPIServer(t *testing.T) {
	if !*compared {
		t.Skip("not compared without -compare: see make parity")
	}
	all := startSubjects(t)
	server := controlplane.StartForTest(t, controlplane.Options{EncryptionConfig: encryptionConfig(all)})
	client, err := rest.HTTPClientFor(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	ask := func() []opinion { return ask(t, client, server.URL(), len(all)) }

	// Before its fault both sides find each plugin healthy: what they report afterwards is
	// then the fault's doing, and our probe has, like kube-apiserver, a connection and a
	// version to hold the next answer against.
	for i, o := range ask() {
		if o != "" {
			t.Fatalf("%s: before the fault, kube-apiserver reports %q", all[i], o)
		}
	}
	mustBeHealthy(t, all, "before the fault")
	for _, s := range all {
		s.do(t, s.steps)
		s.plugin.ResetCounters()
	}
	judge(t, all, ask)
	for _, s := range all {
		if problem := s.compare(s.found); problem != "" {
			t.Errorf("%s: %s", s, problem)
		} else {
			t.Logf("%-60s %s", s, cmp.Or(s.differs, none))
		}
	}
	mustHeal(t, all, ask)
}

// mustHeal ends all faults. Ours must see it by the next probe; kube-apiserver is waited for.
func mustHeal(t *testing.T, all []*subject, ask func() []opinion) {
	t.Helper()
	for _, s := range all {
		if err := s.plugin.ClearFaults(); err != nil {
			t.Fatal(err)
		}
		s.do(t, s.start)
	}
	mustBeHealthy(t, all, "healed")
	healed := time.Now()
	for unhealthy := ask(); slices.ContainsFunc(unhealthy, func(o opinion) bool { return o != "" }); unhealthy = ask() {
		if time.Since(healed) > recovery {
			t.Fatalf("kube-apiserver does not see within %s that all are healed: %q", recovery, unhealthy)
		}
		time.Sleep(time.Second)
	}
	t.Logf("Healed, all: ours showed it at the first probe, kube-apiserver after %s.",
		time.Since(healed).Round(time.Second))
}

// judge asks both sides about the active faults, kube-apiserver first: until we ask, every
// call that a plugin receives is kube-apiserver's.
func judge(t *testing.T, all []*subject, ask func() []opinion) {
	t.Helper()
	for again, turn := true, 0; again && turn < maxTurns; turn++ {
		again = false
		time.Sleep(settle)
		for i, o := range ask() {
			s := all[i]
			if s.found.kube == "" { // else it was so in an earlier turn, which stays
				s.found.kube = o
			}
			s.found.asked = s.plugin.Calls(kmsplugin.CallStatus).Count
			again = again || s.turns && s.found.kube == ""
		}
	}
	each(all, func(s *subject) { s.found.status, s.found.roundTrip = s.probe(t.Context()) })
}

func mustBeHealthy(t *testing.T, all []*subject, when string) {
	t.Helper()
	each(all, func(s *subject) {
		if status, roundTrip := s.probe(t.Context()); status != "" || roundTrip != "" {
			t.Errorf("%s: %s, we report %q, and with a round trip %q", s, when, status, roundTrip)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// each does something with all subjects at once.
func each(all []*subject, do func(*subject)) {
	var done sync.WaitGroup
	for _, s := range all {
		done.Go(func() { do(s) })
	}
	done.Wait()
}

// startSubjects starts a plugin for each fault in each role, healthy but for what holds from
// the start.
func startSubjects(t *testing.T) (all []*subject) {
	t.Helper()
	dir := program.SocketDir(t)
	for i, f := range faults {
		for _, role := range []string{write, read} {
			path := filepath.Join(dir, fmt.Sprintf("%d-%s.sock", i, role))
			plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + path, StateDir: path + ".keys"})
			if err != nil {
				t.Fatalf("%s: start the plugin: %v", f.name, err)
			}
			s := &subject{
				fault: f, role: role, plugin: plugin, status: probe.NewPlugin(path), roundTrip: probe.NewPlugin(path),
			}
			t.Cleanup(func() {
				s.status.Close()
				s.roundTrip.Close()
				if err := plugin.Close(); err != nil {
					t.Error(err)
				}
			})
			s.do(t, f.start)
			all = append(all, s)
		}
	}
	return all
}

func (s *subject) String() string { return s.name + ", " + s.role }

// do gives commands to the plugin.
func (s *subject) do(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		if err := s.plugin.Do(words[0], words[1:]...); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// probe asks ours, as often as it takes for a plugin that answers by turns.
func (s *subject) probe(ctx context.Context) (status, roundTrip opinion) {
	turns := 1
	if s.turns {
		turns = maxTurns
	}
	ours := func(plugin *probe.Plugin, trip bool) (o opinion) {
		settings := probe.Settings{Timeout: timeout}
		for turn := 0; turn < turns && o == ""; turn++ {
			r := plugin.Probe(ctx, settings)
			switch {
			case r.Gone:
				o = "gone: the socket's folder was deleted"
			case r.Status != contract.Healthy:
				o = opinion(string(r.Status) + ": " + r.Detail)
			case trip:
				if t := plugin.RoundTrip(ctx, settings, r.KEKID); !t.Made || t.Status != contract.Healthy {
					o = opinion(string(t.Status) + ": " + t.Detail)
				}
			}
		}
		return o
	}
	return ours(s.status, false), ours(s.roundTrip, true)
}

// encryptionConfig names the plugins in their order, so that the providers' numbers are
// theirs. Each fault has a resource, whose first provider is the one that writes.
func encryptionConfig(all []*subject) []byte {
	var text strings.Builder
	text.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for i, s := range all {
		if s.role == write {
			fmt.Fprintf(&text, "- resources: [resource-%d.parity.example.com]\n  providers:\n", i)
		}
		fmt.Fprintf(&text, "  - kms: {apiVersion: v2, name: parity-%d, endpoint: %q, timeout: %s}\n",
			i, s.plugin.Endpoint(), timeout)
	}
	return []byte(text.String())
}

var checkName = regexp.MustCompile(`kms-provider-(\d+): `)

// ask returns kube-apiserver's opinion of each provider. It asks them one after another, each
// by kmsv2PluginProbe.check, and does not stop at the first that is unhealthy. The answer is
// "ok", or one text in which each provider that is unhealthy has its check's name and an error
// (k8s.io/apiserver's encryptionconfig, kmsHealthChecker).
func ask(t *testing.T, client *http.Client, url string, providers int) []opinion {
	t.Helper()
	response, err := client.Get(url + "/healthz/kms-providers")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, opinions := string(raw), make([]opinion, providers)
	names := checkName.FindAllStringSubmatchIndex(body, -1)
	switch {
	case response.StatusCode == http.StatusOK && body == "ok":
		return opinions
	case response.StatusCode != http.StatusInternalServerError || len(names) == 0:
		t.Fatalf("kube-apiserver answers %s, and not what it is known to: %.300s", response.Status, body)
	}
	for i, name := range names {
		number, err := strconv.Atoi(body[name[2]:name[3]])
		if err != nil || number >= providers {
			t.Fatalf("kube-apiserver names a provider that is not there: %.300s", body[name[0]:])
		}
		end := len(body)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		opinions[number] = opinion("failed: " + strings.TrimRight(body[name[1]:end], ", \n"))
	}
	return opinions
}
