//go:build integration

package parity

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	configv1alpha1 "github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// timeout is the timeout of each provider and of the reporter, and the reporter's interval. kube-apiserver checks the
	// providers one after another, and waits this long for each that does not answer.
	timeout = time.Second
	// positiveTTL is how long kube-apiserver caches a good result
	// (kmsPluginHealthzPositiveTTL in k8s.io/apiserver's encryptionconfig).
	positiveTTL = 20 * time.Second
	// settle is how long after a fault kube-apiserver's result must be new: a call that began just before
	// the fault may take its timeout, and its result is then cached for positiveTTL.
	settle = positiveTTL + timeout + time.Second
	// tripped is how long after a fault the reporter must have made a round trip: a minute, a jitter of a tenth, and
	// the time of its calls.
	tripped = 90 * time.Second
	// healed bounds the wait until all plugins are reported as healthy, with requests for round trips.
	healed = 5 * time.Minute
	// paused is how long a pause takes: each reporter has seen the earlier steps, and has made a round trip.
	paused = 10 * time.Second
	// gap is the time between two requests for round trips. At least minRequests are made. With maxRequests, each kept
	// sample gets its turn.
	gap, minRequests, maxRequests = 16 * time.Second, 3, 8
	// stagger is the time between the starts of two reporters: round trips of all at the same time would be too slow.
	stagger = time.Second
	// maxTurns is how often kube-apiserver is asked about a plugin that answers by turns.
	maxTurns = 3
	// perReporter is how many plugins one reporter probes.
	perReporter = 16
)

var compared = flag.Bool("compare", false, "compare; otherwise this is skipped, since it takes minutes")

func skipUnlessCompared(t *testing.T) {
	if !*compared {
		t.Skip("not compared without -compare: see make parity")
	}
}

// subject is one plugin, its fault and its role.
type subject struct {
	fault
	role     string
	number   int
	resource schema.GroupVersionResource
	plugin   *kmsplugin.Plugin
	wire     *wire // nil: the plugin's own socket
	endpoint string
	next     *subject // another plugin of the same row
	found    verdicts
	since    time.Time // a later check saw the fault
}

func (s *subject) String() string { return s.name + ", " + s.role }

// The test has a plugin for each fault in each role. All are providers of one kube-apiserver, so the test waits for its
// cache to expire only once, and not for each fault.
func TestVerdictsAreThoseOfKubeAPIServer(t *testing.T) {
	skipUnlessCompared(t)
	all := startSubjects(t)
	// First, the providers with the role read write.
	server := controlplane.StartForTest(t, controlplane.Options{
		EncryptionConfig: encryptionConfig(all, read, write, unused),
		// One request checks all providers, and waits for each that does not answer.
		ExtraArgs: []string{"--request-timeout=10m"},
	})
	client := dynamic.NewForConfigOrDie(server.RESTConfig())
	define(t, server, all)
	mustCreate(t, client, all, read)
	restart(t, server, encryptionConfig(all, write, read, unused))
	mustCreate(t, client, all, write)

	reporters := newReporters(t, all)
	reporters.start(t)
	// Before the faults, both sides report all plugins as healthy. So later reports are caused by the faults.
	for i, o := range opinionsOf(t, server, len(all)) {
		if o != "" {
			t.Fatalf("%s: before the fault, kube-apiserver reports %q", all[i], o)
		}
	}
	reporters.awaitHealthy(t, "before the fault", healed)
	began := begin(t, all)
	judge(t, server, all)
	time.Sleep(time.Until(began.Add(tripped)))
	reporters.judge(t, func(s *subject) *opinion { return &s.found.ours })

	reporters.stop(t)
	for _, s := range all {
		s.do(t, s.later)
		s.since = time.Time{} // the next process starts after the fault
	}
	restart(t, server, nil)
	reporters.start(t)
	began = time.Now()
	judgeNext(t, client, server, all)
	time.Sleep(time.Until(began.Add(tripped)))
	reporters.judge(t, func(s *subject) *opinion { return &s.found.next })
	report(t, all)
	for _, s := range all {
		if problem := s.compare(s.role, s.found); problem != "" {
			t.Errorf("%s: %s", s, problem)
		}
		must.Succeed(t, s.plugin.ClearFaults())
		if s.wire != nil {
			s.wire.becomes(t, "", s.wire.plugin)
		}
		s.do(t, s.start)
	}
	reporters.awaitHealthy(t, "healed", healed)
}

// begin makes all plugins unhealthy.
func begin(t *testing.T, all []*subject) time.Time {
	for _, s := range all {
		before, _ := s.parts()
		s.do(t, before)
	}
	time.Sleep(paused)
	for _, s := range all {
		_, after := s.parts()
		s.do(t, after)
		s.plugin.ResetCounters()
		s.since = time.Now().Add(timeout) // an answer from before the fault may have a later timestamp
	}
	return time.Now()
}

// askInTurns asks kube-apiserver, and asks again while a plugin that answers by turns has not failed.
func askInTurns(t *testing.T, server *controlplane.ControlPlane, all []*subject, found func(*subject) *opinion) {
	for again, turn := true, 0; again && turn < maxTurns; turn++ {
		again = false
		time.Sleep(settle)
		for i, o := range opinionsOf(t, server, len(all)) {
			s := all[i]
			if *found(s) == "" { // a failure in an earlier turn stays
				*found(s) = o
			}
			again = again || s.turns && *found(s) == ""
		}
	}
}

// judge asks the running kube-apiserver about the active faults.
func judge(t *testing.T, server *controlplane.ControlPlane, all []*subject) {
	askInTurns(t, server, all, func(s *subject) *opinion { return &s.found.running })
	for _, s := range all {
		s.found.asked = s.plugin.Calls(kmsplugin.CallStatus).Count
		if s.wire != nil {
			s.found.asked++ // the wire may not forward calls
		}
	}
}

// judgeNext asks the next kube-apiserver, and tries whether it can read and write with each plugin.
func judgeNext(t *testing.T, client dynamic.Interface, server *controlplane.ControlPlane, all []*subject) {
	askInTurns(t, server, all, func(s *subject) *opinion { return &s.found.restarted })
	var requests errgroup.Group
	requests.SetLimit(8)
	for _, s := range all {
		requests.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if s.role != unused {
				s.found.reads = failure(func() error {
					_, err := client.Resource(s.resource).Get(ctx, s.role, metav1.GetOptions{})
					return err
				})
			}
			if s.role == write {
				s.found.writes = failure(func() error { return create(ctx, client, s, "after") })
			}
			return nil
		})
	}
	must.Succeed(t, requests.Wait())
}

// failure returns the error of a request, or "". It tries three times, since requests may fail on a busy machine.
func failure(request func() error) opinion {
	var err error
	for range 3 {
		if err = request(); err == nil {
			return ""
		}
	}
	return opinion("failed: " + err.Error())
}

// report logs the comparison as a table.
func report(t *testing.T, all []*subject) {
	short := func(o opinion) string {
		before, _, _ := strings.Cut(string(o), ":")
		return cmp.Or(before, "ok")
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FAULT\tROLE\tHEALTHZ\tRESTARTED\tREADS\tWRITES\tREPORTER\tNEXT\tDIFFERENCE")
	for _, s := range all {
		reads, writes := short(s.found.reads), short(s.found.writes)
		if s.role == unused {
			reads = "-"
		}
		if s.role != write {
			writes = "-"
		}
		_, differs := s.expected(s.role)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.name, s.role, short(s.found.running),
			short(s.found.restarted), reads, writes, short(s.found.ours), short(s.found.next), differs)
	}
	_ = table.Flush()
	version, err := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver"), "--version").Output()
	must.Succeed(t, err)
	t.Logf("%s%s", version, text.String())
}

// startSubjects starts a plugin for each fault in each role, with the faults in start.
func startSubjects(t *testing.T) (all []*subject) {
	dir := program.SocketDir(t)
	for i, f := range faults {
		row := len(all)
		for _, role := range []string{write, read, unused} {
			all = append(all, startSubject(t, dir, f, role, len(all), fmt.Sprintf("faults%d", i)))
		}
		for j := range 3 {
			all[row+j].next = all[row+(j+1)%3]
		}
	}
	return all
}

func startSubject(t *testing.T, dir string, f fault, role string, number int, resource string) *subject {
	socket := filepath.Join(dir, fmt.Sprintf("%d.sock", number))
	s := &subject{fault: f, role: role, number: number, endpoint: "unix://" + socket,
		resource: schema.GroupVersionResource{Group: "parity.example.com", Version: "v1", Resource: resource}}
	own := socket
	if len(f.steps) > 0 && strings.HasPrefix(f.steps[0], "wire ") {
		own = socket + ".own"
		s.wire = &wire{socket: socket, plugin: own}
		s.wire.becomes(t, "", own)
		t.Cleanup(s.wire.close)
	}
	s.plugin = kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + own, StateDir: socket + ".keys"})
	s.do(t, f.start)
	return s
}

// do sends commands to the plugin, or to the wire in front of it.
func (s *subject) do(t *testing.T, lines []string) {
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case words[0] != "wire":
			must.Succeed(t, s.plugin.Do(words[0], words[1:]...))
		case words[1] == "exchange":
			s.wire.becomes(t, "", s.next.wire.plugin)
		default:
			s.wire.becomes(t, words[1], s.wire.plugin)
		}
	}
}

// encryptionConfig returns a configuration with a resource for each fault, and its providers in the order of roles.
func encryptionConfig(all []*subject, roles ...string) []byte {
	var text strings.Builder
	text.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for row := range slices.Chunk(all, len(roles)) {
		fmt.Fprintf(&text, "- resources: [%s]\n  providers:\n", row[0].resource.GroupResource())
		for _, role := range roles {
			s := row[slices.IndexFunc(row, func(s *subject) bool { return s.role == role })]
			fmt.Fprintf(&text, "  - kms: {apiVersion: v2, name: parity-%d, endpoint: %q, timeout: %s}\n",
				s.number, s.endpoint, timeout)
		}
	}
	return []byte(text.String())
}

func restart(t *testing.T, server *controlplane.ControlPlane, config []byte) {
	must.Succeed(t, server.StopAPIServer(t.Context()))
	if config != nil {
		must.Succeed(t, server.SetEncryptionConfig(config))
	}
	must.Succeed(t, server.StartAPIServer(t.Context()))
}

// define installs a resource for each fault.
func define(t *testing.T, server *controlplane.ControlPlane, all []*subject) {
	var files []string
	for row := range slices.Chunk(all, 3) {
		r := row[0].resource
		file := filepath.Join(t.TempDir(), r.Resource)
		content := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  names: {kind: %s, plural: %s}
  scope: Cluster
  versions:
  - {name: %s, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`, r.GroupResource(), r.Group, kind(r), r.Resource, r.Version)
		disk.Write(t, file, []byte(content))
		files = append(files, file)
	}
	for some := range slices.Chunk(files, 10) {
		must.Succeed(t, server.InstallCRDs(t.Context(), some...))
	}
}

func kind(r schema.GroupVersionResource) string { return "F" + r.Resource[1:] }

func create(ctx context.Context, client dynamic.Interface, s *subject, name string) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(s.resource.GroupVersion().String())
	object.SetKind(kind(s.resource))
	object.SetName(name)
	_, err := client.Resource(s.resource).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// mustCreate creates an object for each fault, with the name of the role that writes now.
func mustCreate(t *testing.T, client dynamic.Interface, all []*subject, role string) {
	for _, s := range all {
		if s.role == role {
			must.Succeed(t, create(t.Context(), client, s, role))
		}
	}
}

// reporters are processes that probe all subjects, perReporter each.
type reporters struct {
	all     []*subject
	binary  string
	running []*running
}

// running is one reporter process.
type running struct {
	subjects []*subject
	file     string // path of its configuration
	samples  string // path of its state
	child    *program.Child
	output   *program.Output // one line for each report
}

func newReporters(t *testing.T, all []*subject) *reporters {
	binary, err := program.Build(t.TempDir(), "cmd/kms-health-reporter")
	must.Succeed(t, err)
	r := &reporters{all: all, binary: binary}
	for some := range slices.Chunk(all, perReporter) {
		dir := t.TempDir()
		r.running = append(r.running, &running{
			subjects: some, file: filepath.Join(dir, "config.yaml"), samples: filepath.Join(dir, "samples"),
		})
	}
	return r
}

// losesAny selects the reporters of a plugin with loses. Round trips of all plugins at the same time would take more
// than the timeout.
func losesAny(one *running) bool {
	return slices.ContainsFunc(one.subjects, func(s *subject) bool { return s.loses })
}

func every(*running) bool { return true }

// request writes the configuration files. Those that some selects get a request for a round trip.
func (r *reporters) request(t *testing.T, request string, some func(*running) bool) {
	for _, one := range r.running {
		its := "none"
		if some(one) {
			its = request
		}
		var text strings.Builder
		_, _ = fmt.Fprintf(&text, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: %s, checks: {roundTrip: {interval: 1m, requested: %s}}}
plugins:
`, timeout, its)
		for _, s := range one.subjects {
			role := configv1alpha1.RoleRead
			if s.role == write {
				role = configv1alpha1.RoleWrite
			}
			_, _ = fmt.Fprintf(&text, "- {keyID: %q, endpoint: %q, role: %s}\n", strconv.Itoa(s.number), s.endpoint, role)
		}
		must.Succeed(t, disk.Replace(one.file, []byte(text.String())))
	}
}

// start starts the processes. Each uses the samples of the process before it.
func (r *reporters) start(t *testing.T) {
	r.request(t, "start", losesAny)
	for _, one := range r.running {
		cmd := exec.Command(r.binary, "--config", one.file, "--output", "-", "--state", one.samples)
		output, log := &program.Output{}, &program.Output{}
		cmd.Stdout, cmd.Stderr = output, log
		one.child, one.output = program.Start(t, cmd), output
		time.Sleep(stagger)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("a reporter's log: %s", log.Text())
			}
		})
	}
}

func (r *reporters) stop(t *testing.T) {
	for _, one := range r.running {
		one.child.End(t, time.Minute, os.Interrupt)
	}
}

// judge records the verdicts of these processes, and early reports of "healthy". A plugin that answers by turns counts
// as unhealthy if one report says so. Another plugin counts as healthy if one of the last two reports says so, since
// answers may be late on a busy machine. judge requests round trips until lost keys are named.
func (r *reporters) judge(t *testing.T, found func(*subject) *opinion) {
	unseen := func(s *subject) bool { return (s.loses || s.turns) && *found(s) == "" }
	before := make([]opinion, len(r.all))
	for n := 0; n < minRequests || n < maxRequests && slices.ContainsFunc(r.all, unseen); n++ {
		r.request(t, fmt.Sprintf("request-%d", n), losesAny)
		time.Sleep(gap)
		now := r.opinions(t)
		for i, s := range r.all {
			switch {
			case s.turns && *found(s) != "": // it stays unhealthy
			case s.turns || now[i] == "" || strings.HasPrefix(string(now[i]), lost):
				*found(s) = now[i]
			default:
				*found(s) = before[i]
			}
		}
		before = now
	}
	for _, one := range r.running {
		for line := range strings.Lines(one.output.Text()) {
			for number, e := range entriesOf(t, line) {
				s := r.all[number]
				late := e.LastChecked.After(s.since) && (s.since.IsZero() || s.tripsAtOnce())
				if e.Status == contract.Healthy && late && s.found.early == "" {
					s.found.early = opinion(fmt.Sprintf("healthy under %q, checked at %s", e.KEKID, e.LastChecked))
				}
			}
		}
	}
}

// entriesOf returns the entries in a line of output, by the number of their subject. It returns nil for an incomplete
// line.
func entriesOf(t *testing.T, line string) map[int]contract.Entry {
	message, whole := strings.CutSuffix(line, "\n")
	if !whole {
		return nil
	}
	entries, err := contract.DecodeMessage(message)
	must.Succeed(t, err)
	byNumber := map[int]contract.Entry{}
	for _, e := range entries {
		number, err := strconv.Atoi(e.KeyID)
		must.Succeed(t, err)
		byNumber[number] = e
	}
	return byNumber
}

// notReported means that no entry is about the plugin.
const notReported opinion = "not reported"

// lost is a prefix of the opinion on a healthy plugin that no longer has a former key.
const lost = "lost: "

// opinions returns the latest verdict on each subject.
func (r *reporters) opinions(t *testing.T) []opinion {
	opinions := slices.Repeat([]opinion{notReported}, len(r.all))
	for _, one := range r.running {
		lines := strings.SplitAfter(one.output.Text(), "\n")
		if len(lines) < 2 {
			continue
		}
		for number, e := range entriesOf(t, lines[len(lines)-2]) { // the last complete line
			switch {
			case e.Status != contract.Healthy:
				opinions[number] = opinion(string(e.Status) + ": " + e.Detail)
			case len(e.Lost) > 0:
				opinions[number] = opinion(lost + strings.Join(e.Lost, ", "))
			default:
				opinions[number] = ""
			}
		}
	}
	return opinions
}

// awaitHealthy waits until all plugins are reported as healthy, except for those with healsLate. It requests round
// trips repeatedly: each tries only one kept sample, and the lost key's turn may come last.
func (r *reporters) awaitHealthy(t *testing.T, when string, limit time.Duration) {
	requests, next := 0, time.Now()
	err := wait.For(t.Context(), limit, "the reporters find all plugins healthy", func(context.Context) error {
		if now := time.Now(); !now.Before(next) {
			r.request(t, fmt.Sprintf("%s-%d", strings.ReplaceAll(when, " ", "-"), requests), every)
			requests, next = requests+1, now.Add(gap)
		}
		for i, o := range r.opinions(t) {
			if o != "" && !(when == "healed" && r.all[i].healsLate()) {
				return fmt.Errorf("%s: %s: %s", when, r.all[i], o)
			}
		}
		return nil
	})
	must.Succeed(t, err)
}

// opinionsOf returns kube-apiserver's opinion on each provider.
func opinionsOf(t *testing.T, server *controlplane.ControlPlane, providers int) []opinion {
	failures, err := server.KMSProviders(t.Context())
	must.Succeed(t, err)
	opinions := make([]opinion, providers)
	for i, failure := range failures {
		opinions[i] = opinion("failed: " + failure)
	}
	return opinions
}
