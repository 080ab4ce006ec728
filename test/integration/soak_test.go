//go:build integration

package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak takes; it is skipped without")
	soakSeed = flag.Uint64("soak-seed", 1, "what its moves are drawn with")
)

const (
	// seenAfter is how long a fault must last until the reporter must report it: the longest interval with its jitter,
	// a call that hangs for the same time, the health call after it, and a write.
	seenAfter = 7 * time.Second
	// statusGrace is how long a fault of Status may be reported after its end. tripGrace is the same for a fault of a
	// round trip: the reporter repeats it within 15 s once Status is answered.
	statusGrace, tripGrace = 5 * time.Second, 21 * time.Second
)

// kinds are the kinds of faults: the command that sets the fault, and how a report names it. A unique text replaces %s,
// so that each incident has a different cause.
var kinds = []struct {
	name, fault string
	trip        bool // only a round trip finds it; a rotation of the key causes one
	reason      contract.Reason
	detail      string
}{
	{"unhealthy", "unhealthy %s", false, contract.ReportedUnhealthy, "%s"},
	{"Status fails", "rpc-error Internal %s", false, contract.ReportedUnhealthy, "%s"},
	{"hangs", "hang", false, contract.Timeout, ""},
	{"crashed", "crash", false, contract.ConnectFailed, ""},
	{"no key_id", "status-key-id", false, contract.ProtocolViolation, "key_id is empty"},
	{"wrong version", "version %s", false, contract.ProtocolViolation, "%s"},
	{"Encrypt refused", "refuse-encrypt PermissionDenied %s", true, "PermissionDenied", "%s"},
	{"Decrypt refused", "refuse-decrypt PermissionDenied %s", true, "PermissionDenied", "%s"},
	{"Decrypt wrong", "wrong-decrypt", true, contract.RoundTripMismatch, "differ"},
}

// incident is one fault of one plugin.
type incident struct {
	plugin             int
	kind               int
	text               string
	start, end         time.Time
	disturbed, wasSeen bool
}

func (i *incident) String() string {
	return fmt.Sprintf("plugin %d %s (%s) from %s for %s", i.plugin, kinds[i.kind].name, i.text,
		i.start.Format(time.TimeOnly), i.end.Sub(i.start).Round(100*time.Millisecond))
}

// names reports whether an entry names the incident as a cause. It may name another cause too, and have the reason of
// that one: of an earlier round trip.
func (i *incident) names(e contract.Entry) bool {
	k := kinds[i.kind]
	own := k.detail != "" || e.Reason == k.reason || e.Reason == contract.Unavailable
	return e.KeyID == strconv.Itoa(i.plugin) && own &&
		strings.Contains(e.Detail, strings.ReplaceAll(k.detail, "%s", i.text))
}

// soak is the state of the run.
type soak struct {
	*reporter
	random    *rand.Rand
	plugins   []*kmsplugin.Plugin // number i+1
	active    []*incident         // by plugin; nil: none
	rotated   []time.Time
	all       []*incident
	disturbed time.Time // until when reports may be late
	proxy     *controlplane.Proxy
	counts    map[string]int

	seen   sync.Mutex
	states []contract.Entry // all entries seen that are not healthy
	times  []time.Time
}

// TestSoak causes random faults, restarts, edits and outages every few seconds. It checks that the reporter reports
// each fault that lasts, with its cause, and reports no other faults, and that its memory does not grow.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("takes as long as -soak says: see make soak")
	}
	s := newSoak(t)
	go s.follow(t.Context())
	began, memory := time.Now(), []int(nil)
	for time.Since(began) < *soakFor {
		s.move(time.Since(began) < *soakFor/3)
		if time.Since(began) > *soakFor/2 {
			memory = append(memory, s.rss())
		}
		time.Sleep(200*time.Millisecond + time.Duration(s.random.IntN(2000))*time.Millisecond)
	}
	for i := range s.plugins {
		s.heal(i)
	}
	s.configure(toKube, "1:Write", "2:Read", "3:Read")
	s.freshCondition("1=healthy", "2=healthy", "3=healthy")
	s.judge()
	if half := len(memory) / 2; half > 0 {
		early, late := slices.Max(memory[:half]), slices.Max(memory[half:])
		t.Logf("VmRSS: at most %d kB in the third quarter, %d kB in the last", early, late)
		if late > early+early/20 {
			t.Errorf("memory grew from %d to %d kB", early, late)
		}
	}
}

func newSoak(t *testing.T) *soak {
	proxy, err := controlplane.NewProxy(cluster.Address())
	must.Succeed(t, err)
	t.Cleanup(proxy.Close)
	s := &soak{reporter: newReporter(t), random: rand.New(rand.NewPCG(*soakSeed, 0)), proxy: proxy,
		active: make([]*incident, 3), rotated: make([]time.Time, 3), counts: map[string]int{}}
	t.Logf("seed %d, %s", *soakSeed, *soakFor)
	for i := range s.active {
		s.plugins = append(s.plugins, s.plugin(strconv.Itoa(i+1)))
	}
	s.token(s.proxy.URL())
	s.configure(toKube, "1:Write", "2:Read", "3:Read")
	s.start()
	s.freshCondition("1=healthy", "2=healthy", "3=healthy")
	return s
}

// move does one random action. restarts permits restarts of the reporter: not later, while its memory is measured.
func (s *soak) move(restarts bool) {
	switch n := s.random.IntN(400); {
	case n < 10:
		s.counts["edit"]++
		roles := []string{"1:Write", "2:Read", "3:Read"}
		if s.random.IntN(2) == 0 {
			roles = []string{"1:Read", "2:Write", "3:Read"}
		}
		s.configure(toKube, roles...)
	case n < 16:
		s.counts["connections cut"]++
		s.proxy.ResetConnections()
		s.disturb(3 * time.Second)
	case n < 20:
		s.counts["outage"]++
		mode := []controlplane.ProxyMode{controlplane.Refuse, controlplane.BlackHole}[s.random.IntN(2)]
		must.Succeed(s.t, s.proxy.SetMode(mode))
		time.Sleep(3 * time.Second)
		must.Succeed(s.t, s.proxy.SetMode(controlplane.Pass))
		s.disturb(15 * time.Second)
	case n == 20:
		s.counts["API server restarted"]++
		must.Succeed(s.t, cluster.KillAPIServer())
		must.Succeed(s.t, startAgain())
		s.disturb(15 * time.Second)
	case n < 24 && restarts:
		s.counts["reporter restarted"]++
		if s.random.IntN(2) == 0 {
			s.stop()
		} else {
			must.Succeed(s.t, s.process.Process.Signal(syscall.SIGKILL))
			<-s.process.Ended
		}
		s.start()
		s.disturb(5 * time.Second)
	default:
		i := s.random.IntN(len(s.plugins))
		if s.active[i] == nil {
			s.fail(i)
		} else if s.random.IntN(3) == 0 {
			s.heal(i)
		}
	}
}

// disturb permits late reports for this time.
func (s *soak) disturb(d time.Duration) {
	s.disturbed = time.Now().Add(d)
	for _, i := range s.active {
		if i != nil {
			i.disturbed = true
		}
	}
}

func (s *soak) fail(i int) {
	kind := s.random.IntN(len(kinds))
	if kinds[kind].trip && time.Since(s.rotated[i]) < 10*time.Second {
		return // a key_id that changes twice in an interval is another fault
	}
	now := &incident{plugin: i + 1, kind: kind, text: fmt.Sprintf("cause-%d.", len(s.all)), start: time.Now()}
	now.disturbed = time.Now().Before(s.disturbed)
	s.active[i], s.all = now, append(s.all, now)
	s.counts[kinds[kind].name]++
	words := strings.Fields(strings.ReplaceAll(kinds[kind].fault, "%s", now.text))
	must.Succeed(s.t, s.plugins[i].Do(words[0], words[1:]...))
	if kinds[kind].trip {
		s.rotated[i] = time.Now()
		must.Succeed(s.t, s.plugins[i].Do("rotate"))
	}
}

func (s *soak) heal(i int) {
	if s.active[i] == nil {
		return
	}
	must.Succeed(s.t, s.plugins[i].ClearFaults())
	s.active[i].end, s.active[i] = time.Now(), nil
}

// follow records all reports that are not healthy.
func (s *soak) follow(ctx context.Context) {
	client := administrator().Resource(controlplane.OperatorGVR(resource))
	for ctx.Err() == nil {
		if object, err := client.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{}); err == nil {
			s.seen.Lock()
			for _, e := range entriesIn(object, s.node) {
				known := slices.ContainsFunc(s.states, func(state contract.Entry) bool { return reflect.DeepEqual(state, e) })
				if e.Status != contract.Healthy && !known {
					s.states, s.times = append(s.states, e), append(s.times, time.Now())
				}
			}
			s.seen.Unlock()
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// judge compares the reports with the incidents.
func (s *soak) judge() {
	s.seen.Lock()
	defer s.seen.Unlock()
	for n, e := range s.states {
		explained := false
		for _, i := range s.all {
			if i.names(e) && !e.LastChecked.Before(i.start.Truncate(time.Second)) && !e.LastChecked.After(s.until(i)) {
				explained = true
				i.wasSeen = i.wasSeen || s.times[n].Before(i.end.Add(2*time.Second))
			}
		}
		if !explained {
			s.t.Errorf("reported without that cause: %+v", e)
		}
	}
	long := 0
	for _, i := range s.all {
		if i.end.Sub(i.start) < seenAfter || i.disturbed {
			continue
		}
		if long++; !i.wasSeen {
			s.t.Errorf("not reported: %s", i)
		}
	}
	s.t.Logf("%d incidents, %d of them longer than %s and undisturbed; %d reports; %v", len(s.all), long, seenAfter, len(s.states), s.counts)
	if long == 0 {
		s.t.Error("no fault lasted")
	}
}

// until returns when reports of an incident must end. A failed round trip is reported until one succeeds, which needs
// a plugin without another fault.
func (s *soak) until(i *incident) time.Time {
	if !kinds[i.kind].trip {
		return i.end.Add(statusGrace)
	}
	until := i.end.Add(tripGrace)
	for _, later := range s.all {
		if later.plugin == i.plugin && later.start.After(i.start) && later.start.Before(until) {
			until = later.end.Add(tripGrace)
		}
	}
	return until
}

// rss returns the reporter's memory in kB.
func (s *soak) rss() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	must.Succeed(s.t, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must.Succeed(s.t, err)
	return n
}
