package probe

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// childSocket makes the test binary a process that probes the plugin on a socket, and that the test can stop.
const childSocket = "PROBE_TEST_SOCKET"

// probeByCommand probes a plugin that must be healthy, and then executes commands from its standard input. It writes
// one line for each.
func probeByCommand(address string) {
	plugin := NewPlugin(address)
	var last Result
	probe := func(s Settings) {
		last = plugin.Probe(context.Background(), s)
		fmt.Printf("%+v\n", last)
	}
	probe(writer(generous))
	if last.Status != contract.Healthy {
		os.Exit(1)
	}
	keyID := last.KEKID
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		switch commands.Text() {
		case "probe":
			probe(Settings{Timeout: time.Second})
		case "goroutines":
			_, v := call(context.Background(), time.Second, "Status", oneAfterAnother, 10)
			fmt.Printf("%+v\n", v)
		case "round trip":
			fmt.Printf("%+v\n", plugin.RoundTrip(context.Background(), writer(time.Second), keyID, nil))
		}
	}
}

func startReporter(t *testing.T, plugin *kmsplugin.Plugin) *process {
	t.Helper()
	return startChild(t, childSocket+"="+strings.TrimPrefix(plugin.Endpoint(), "unix://"))
}

// stopDuring stops the reporter while it waits for the answer to a call that a command makes.
func (p *process) stopDuring(plugin *kmsplugin.Plugin, call kmsplugin.Call, command string) {
	p.t.Helper()
	calls := plugin.Calls(call).Count
	_, err := fmt.Fprintln(p.input, command)
	must.Succeed(p.t, err)
	must.Succeed(p.t, plugin.WaitForCalls(p.t.Context(), call, calls+1))
	p.signal(syscall.SIGSTOP)
}

// An answer that is present when the stopped reporter continues may have come in time, so it counts. Chance decides
// whether the reporter notices the timeout or the answer first, so there are eight reporters. The time in which it did
// not run does not count against a round trip's bound either.
func TestAnswerThatArrivedWhileTheReporterDidNotRunCounts(t *testing.T) {
	const timeout = time.Second // the child's timeout
	for i, tt := range slices.Repeat([]struct {
		command, fault string
		call           kmsplugin.Call // the call during which the reporter is stopped
		stopped        time.Duration
		want           string
	}{
		{"probe", "slow 500ms", kmsplugin.CallStatus, timeout * 3 / 2, "Status:healthy"},
		{"round trip", "slow 500ms encrypt", kmsplugin.CallEncrypt, writer(timeout).Bound + timeout/2, "Status:healthy"},
	}, 8) {
		t.Run(fmt.Sprint(tt.command, i), func(t *testing.T) {
			t.Parallel() // it waits
			real := start(t)
			reporter := startReporter(t, real)
			set(t, real, tt.fault)
			reporter.stopDuring(real, tt.call, tt.command)
			time.Sleep(tt.stopped)
			reporter.signal(syscall.SIGCONT)
			if got := reporter.line(); !strings.Contains(got, tt.want) {
				t.Errorf("%s", got)
			}
		})
	}
}

func TestReporterThatDidNotRunDoesNotBlameThePlugin(t *testing.T) {
	const (
		notMade   = "{Made:false Stalled:true "
		notProbed = "NotProbed:the reporter itself did not run for a time: "
	)
	for name, tt := range map[string]struct {
		faults  string
		command string
		call    kmsplugin.Call // the call during which the reporter is stopped
		want    string
	}{
		"Encrypt":                {"hang encrypt", "round trip", kmsplugin.CallEncrypt, notMade},
		"Status after Encrypt":   {"encrypt-key-id other; hang", "round trip", kmsplugin.CallStatus, notMade},
		"Status":                 {"hang", "probe", kmsplugin.CallStatus, notProbed + "Status"},
		"diagnosis of a timeout": {"hang all", "probe", kmsplugin.CallHealth, "Detail:Status: no answer within 1s KEKID:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			real := start(t)
			reporter := startReporter(t, real)
			for line := range strings.SplitSeq(tt.faults, "; ") {
				set(t, real, line)
			}
			for inTime := false; !inTime; { // on a busy machine the call may end before SIGSTOP
				reporter.stopDuring(real, tt.call, tt.command)
				inTime = time.Since(real.Calls(tt.call).Latest) < diagnosisTimeout*4/5
				time.Sleep(2500 * time.Millisecond)
				reporter.signal(syscall.SIGCONT)
				if got := reporter.line(); inTime && !strings.Contains(got, tt.want) {
					t.Errorf("%s", got)
				}
			}
		})
	}
}

// oneAfterAnother simulates a gRPC call that completes only after several goroutines have run, one after another.
func oneAfterAnother(ctx context.Context, goroutines int, _ ...grpc.CallOption) (any, error) {
	for range goroutines {
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(30 * time.Millisecond):
		}
	}
	return nil, nil
}

// A container with few CPU shares on a busy node runs only for a moment now and then.
func TestReporterThatHardlyRunsDoesNotBlameThePlugin(t *testing.T) {
	reporter := startReporter(t, start(t))
	_, err := fmt.Fprintln(reporter.input, "goroutines")
	must.Succeed(t, err)
	ended := make(chan string, 1)
	go func() { ended <- reporter.line() }()
	for {
		reporter.signal(syscall.SIGSTOP)
		time.Sleep(150 * time.Millisecond)
		reporter.signal(syscall.SIGCONT)
		select {
		case got := <-ended:
			if got != "<nil>\n" && !strings.Contains(got, "stalled:true") {
				t.Errorf("%s", got)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
