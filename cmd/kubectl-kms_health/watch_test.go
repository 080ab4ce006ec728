package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// watched is a watcher of one target, whose clock stands still.
type watched struct {
	*watcher
	clock        *clocktesting.FakeClock
	stdout, errs bytes.Buffer
}

func newWatched(terminal func() int) *watched {
	w := &watched{clock: clocktesting.NewFakeClock(taken)}
	o := &options{targets: []string{"kubeapiservers"}, environment: environment{
		stdout: &w.stdout, stderr: &w.errs, clock: w.clock, terminal: terminal,
		getenv: func(string) string { return "" },
	}}
	w.watcher = newWatcher(o, func() time.Duration { return 0 })
	return w
}

// receive handles an update, and returns what is printed then.
func (w *watched) receive(t *testing.T, u source.Update) string {
	t.Helper()
	if u.Target == "" {
		u.Target = "kubeapiservers"
	}
	w.take(u)
	return w.look(t)
}

func (w *watched) look(t *testing.T) string {
	t.Helper()
	w.stdout.Reset()
	if err := w.draw(); err != nil {
		t.Fatal(err)
	}
	return w.stdout.String()
}

// update is an update with one node, checked just now.
func (w *watched) update(t *testing.T, status contract.Status, kek string) source.Update {
	t.Helper()
	message, err := contract.EncodeMessage([]contract.Entry{{KeyID: "2", KEKID: kek, Status: status, LastChecked: w.clock.Now(), Interval: 30 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	target := view.Read("kubeapiservers", &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": contract.ConditionType("a"), "message": message},
	}}}})
	return source.Update{Found: &target}
}

func TestATableIsPrintedWhenAStateChangesAndNotOnEveryReport(t *testing.T) {
	w := newWatched(nil)
	if out := w.look(t); out != "" {
		t.Errorf("before anything is known: %q", out)
	}
	for i, step := range []struct {
		status contract.Status
		kek    string
		prints bool
	}{
		{contract.Healthy, "k", true},
		{contract.Healthy, "k", false},
		{contract.Unhealthy, "k", true},
		{contract.Unhealthy, "k", false},
		{contract.Healthy, "k", true},
		{contract.Healthy, "l", true},
	} {
		w.clock.Step(30 * time.Second)
		out := w.receive(t, w.update(t, step.status, step.kek))
		if (out != "") != step.prints {
			t.Errorf("step %d: %q", i, out)
		}
		if out != "" && (!strings.HasPrefix(out, w.clock.Now().UTC().Format(time.RFC3339)+"\nTARGET") || !strings.Contains(out, string(step.status)) || strings.Contains(out, "\x1b")) {
			t.Errorf("step %d: %q", i, out)
		}
	}
	if out := w.receive(t, source.Update{}); !strings.Contains(out, "no operator resource is there") {
		t.Errorf("gone: %q", out)
	}
}

func TestAnEntryBecomesStaleWithoutAWrite(t *testing.T) {
	w := newWatched(nil)
	w.receive(t, w.update(t, contract.Healthy, "k"))
	wait, ok := w.wait()
	if !ok || wait != contract.StaleIntervals*contract.DefaultInterval+1 {
		t.Fatalf("%s, %t", wait, ok)
	}
	w.clock.Step(wait - 1)
	if out := w.look(t); out != "" {
		t.Errorf("too early: %q", out)
	}
	w.clock.Step(1)
	if out := w.look(t); !strings.Contains(out, "stale") {
		t.Errorf("%q", out)
	}
	if wait, ok := w.wait(); ok {
		t.Errorf("there is no other deadline: %s", wait)
	}
}

func TestATerminalIsRedrawnEachTime(t *testing.T) {
	w := newWatched(func() int { return 200 })
	for range 2 {
		out := w.receive(t, w.update(t, contract.Healthy, "k"))
		if !strings.HasPrefix(out, "\x1b[H\x1b[2J"+taken.Format(time.RFC3339)+"\nTARGET") || !strings.Contains(out, "\x1b[32mhealthy\x1b[0m") {
			t.Errorf("%q", out)
		}
	}
	if wait, ok := w.wait(); !ok || wait != refresh {
		t.Errorf("%s, %t: the ages are not updated", wait, ok)
	}
	away := problem(t, contract.ResourceNames())
	if out := w.receive(t, source.Update{Problem: away}); !strings.Contains(out, ", as last read: the API server") || !strings.Contains(out, "healthy") {
		t.Errorf("%q", out)
	}
}

// kube-apiserver quotes what a plugin answers.
func TestAProblemDoesNotControlTheTerminal(t *testing.T) {
	c := withoutOperatorResources(t)
	c.failing, c.message = map[string]int{"kubeapiservers": 500}, "rpc error: \x1b[2J\u009b\u202e"
	o := &options{kubeconfig: c.serve(t)[1], timeout: time.Minute, environment: environment{clock: clocktesting.NewFakeClock(taken)}}
	cluster, err := o.cluster()
	if err != nil {
		t.Fatal(err)
	}
	_, problems := cluster.Read(t.Context(), []string{"kubeapiservers"})
	w := newWatched(func() int { return 200 })
	clean := w.receive(t, w.update(t, contract.Healthy, "k"))
	out := w.receive(t, source.Update{Problem: unreachable(problems)})
	if !strings.Contains(out, "rpc error: ") || strings.Count(out, "\x1b") != strings.Count(clean, "\x1b") || strings.ContainsAny(out, "\u009b\u202e") {
		t.Errorf("%q", out)
	}
}

// problem is that of an unreachable API server.
func problem(t *testing.T, targets []string) *source.Problem {
	t.Helper()
	o := &options{kubeconfig: "testdata/kubeconfig", timeout: time.Second, environment: environment{clock: clocktesting.NewFakeClock(taken)}}
	c, err := o.cluster()
	if err != nil {
		t.Fatal(err)
	}
	_, problems := c.Read(context.Background(), targets)
	away := unreachable(problems)
	if away == nil {
		t.Fatal(problems)
	}
	return away
}

func TestAnUnreachableAPIServerIsReportedOnce(t *testing.T) {
	w := newWatched(nil)
	w.targets = nil // all
	away := problem(t, contract.ResourceNames())
	receive := func(u source.Update) string {
		w.errs.Reset()
		w.take(u)
		return w.errs.String()
	}
	if printed := receive(source.Update{Target: "kubeapiservers", Problem: away}); !strings.Contains(printed, "cannot be reached") || !strings.Contains(printed, "Trying again") {
		t.Errorf("%q", printed)
	}
	for _, target := range slices.Backward(contract.ResourceNames()) {
		if printed := receive(source.Update{Target: target, Problem: away}); printed != "" {
			t.Errorf("again: %q", printed)
		}
	}
	if out := w.look(t); out != "" {
		t.Errorf("nothing was read, and there is a table: %q", out)
	}
	for i, target := range contract.ResourceNames() {
		printed := receive(source.Update{Target: target})
		if last := i == len(contract.ResourceNames())-1; strings.Contains(printed, "can be read again") != last {
			t.Errorf("%s: %q", target, printed)
		}
	}
	if printed := receive(source.Update{Target: "kubeapiservers", Problem: away}); !strings.Contains(printed, "cannot be reached") {
		t.Errorf("the next time: %q", printed)
	}
}

func TestTheWatchEndsWithItsContextAndWithItsOutput(t *testing.T) {
	w := newWatched(nil)
	ctx, cancel := context.WithCancel(context.Background())
	updates, ended := make(chan source.Update), make(chan error)
	go func() { ended <- w.run(ctx, updates) }()
	u := w.update(t, contract.Healthy, "k")
	u.Target = "kubeapiservers"
	updates <- u
	cancel()
	if err := <-ended; err != nil || !strings.Contains(w.stdout.String(), "healthy") {
		t.Errorf("%v, %q", err, w.stdout.String())
	}

	broken := newWatched(nil)
	broken.options.stdout = full{}
	go func() { ended <- broken.run(context.Background(), updates) }()
	updates <- u
	if err := <-ended; !errors.Is(err, errFull) {
		t.Error(err)
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fmt.Errorf("write: %w", errFull) }

// interrupter presses Ctrl-C once something is printed.
type interrupter struct {
	bytes.Buffer
	interrupt func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	defer i.interrupt()
	return i.Buffer.Write(p)
}

func (i *interrupter) WriteString(s string) (int, error) { return i.Write([]byte(s)) }

func TestAWatchThatWaitsForTheAPIServerReportsThatAndEndsByCtrlC(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var stdout bytes.Buffer
	stderr := &interrupter{interrupt: cancel}
	code := run(ctx, []string{"watch", "--kubeconfig=testdata/kubeconfig"}, environment{
		stdout: &stdout, stderr: stderr, clock: clocktesting.NewFakeClock(taken), getenv: func(string) string { return "" },
	})
	printed := stderr.String()
	if code != 0 || stdout.Len() > 0 || strings.Count(printed, "cannot be reached") != 1 || !strings.Contains(printed, "Trying again") {
		t.Errorf("%d, %q, %q", code, stdout.String(), printed)
	}
}

// collection is an API server's resource with some objects, and one watch at a time.
type collection struct {
	names  chan []string // of each list
	events chan string   // of the watch, which ends at an empty one
}

func (c collection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		var items []string
		for _, name := range <-c.names {
			items = append(items, fmt.Sprintf(kmsHealth, name))
		}
		fmt.Fprintf(w, `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"KMSHealthList","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
		return
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case event := <-c.events:
			if event == "" {
				return
			}
			kind, name, _ := strings.Cut(event, " ")
			fmt.Fprintf(w, `{"type":%q,"object":`+kmsHealth+"}\n", kind, name)
		case <-r.Context().Done():
			return
		}
	}
}

// KMSHealths are followed as a whole: those that are created later, and those that were deleted
// while nothing was watched.
func TestAWatchSeesKMSHealthsComeAndGo(t *testing.T) {
	server := collection{make(chan []string, 1), make(chan string)}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	o := &options{kubeconfig: kubeconfig(t, h.URL), timeout: 10 * time.Second, environment: environment{clock: clock.RealClock{}}}
	c, err := o.cluster()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates := c.Follow(ctx, []string{"kmshealths"})
	expect := func(want ...string) {
		t.Helper()
		for _, one := range want {
			u := <-updates
			if got := fmt.Sprintf("%s %t", u.Target, u.Found != nil); got != one || u.Problem != nil {
				t.Fatalf("%s, want %s; %v", got, one, u.Problem)
			}
		}
	}
	server.names <- []string{"a"}
	expect("kmshealths/a true", "kmshealths false")
	server.events <- "ADDED b"
	expect("kmshealths/b true")
	server.events <- "DELETED a"
	expect("kmshealths/a false")
	server.events <- ""
	server.names <- nil
	expect("kmshealths false", "kmshealths/a false", "kmshealths/b false")

	w := newWatched(nil)
	w.targets = []string{"kmshealths"}
	u := w.update(t, contract.Healthy, "k")
	u.Target, u.Found.Name = "kmshealths/b", "kmshealths/b"
	w.receive(t, u)
	if out := w.receive(t, source.Update{Target: "kmshealths"}); !strings.Contains(out, "kmshealths/b") {
		t.Errorf("%q", out)
	}
}

// While KMSHealths cannot be read, nothing is known, and the watch goes on.
func TestAWatchWaitsForKMSHealthsThatCannotBeRead(t *testing.T) {
	c := withoutOperatorResources(t)
	c.message = "decrypting failed"
	var failed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := strings.HasSuffix(r.URL.Path, "/kmshealths")
		if list && r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if list && failed.Add(1) <= 3 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","message":"decrypting failed","code":500}`))
			return
		}
		c.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // long enough for any machine
	defer cancel()
	var stderr bytes.Buffer
	stdout := &interrupter{interrupt: cancel}
	code := run(ctx, []string{"watch", "--kubeconfig", kubeconfig(t, server.URL)}, environment{
		stdout: stdout, stderr: &stderr, clock: clock.RealClock{}, getenv: func(string) string { return "" },
	})
	if code != 0 || !strings.Contains(stdout.String(), "kmshealths/kube-apiserver") || strings.Count(stderr.String(), "decrypting failed") != 1 || !strings.Contains(stderr.String(), "Trying again") {
		t.Errorf("%d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// Who loses the right to KMSHealths that were listed has not seen them deleted.
func TestAWatchKeepsKMSHealthsWhenTheRightToThemIsLost(t *testing.T) {
	for seen, want := range map[bool]string{false: "kmshealths false <nil>", true: "kmshealths false no right to list and watch kmshealths"} {
		codes := make(chan int, 2)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("watch") != "" {
				return
			}
			w.WriteHeader(<-codes)
			fmt.Fprintf(w, `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"KMSHealthList","metadata":{"resourceVersion":"1"},"items":[`+kmsHealth+`]}`, "a")
		}))
		t.Cleanup(server.Close)
		o := &options{kubeconfig: kubeconfig(t, server.URL), timeout: 10 * time.Second, environment: environment{clock: clock.RealClock{}}}
		c, err := o.cluster()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		updates := c.Follow(ctx, []string{"kmshealths"})
		if seen {
			codes <- http.StatusOK
			<-updates
			<-updates
		}
		codes <- http.StatusForbidden
		u := <-updates
		if got := fmt.Sprintf("%s %t %v", u.Target, u.Found != nil, u.Problem); u.Problem == nil && got != want || !strings.HasPrefix(got, want) {
			t.Errorf("seen: %t: %s", seen, got)
		}
		cancel()
	}
}
