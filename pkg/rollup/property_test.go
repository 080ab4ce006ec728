package rollup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// dice makes random inputs from few values, which are near bounds, so that coincidences are common.
type dice struct{ *rand.Rand }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func (d dice) input() *Input {
	in := &Input{Now: now.Add(time.Duration(d.IntN(3)) * 500 * time.Millisecond), WriteKey: pick(d, "", "1", "2"),
		Agreement: pick(d, agreement2, Agreement{}, Agreement{AgreedKey: agreement2.AgreedKey, Seen: ago(60)})}
	in.Wall = in.Now
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"}[:d.IntN(8)] {
		in.Reports = append(in.Reports, d.reports(name)...)
		if d.chance(85) {
			in.Nodes = append(in.Nodes, d.node(name))
		}
	}
	// There are no current conditions, or they are random, or the result of the same input earlier.
	switch d.IntN(3) {
	case 0:
		in.Previous = map[string]operatorstatus.Condition{}
		for _, kind := range Types {
			in.Previous[kind] = operatorstatus.Condition{Type: kind,
				Status:             pick(d, operatorstatus.True, operatorstatus.False, operatorstatus.Unknown),
				Reason:             pick(d, contract.PluginError, contract.AsExpected, contract.ReporterStale),
				Message:            pick(d, "x", "key 2 on node a: error: attempt 1"),
				LastTransitionTime: pick(d, ago(500), time.Time{})}
		}
	case 1:
		earlier := *in
		earlier.Now, earlier.Wall = ago(60), ago(60)
		in.Previous = Evaluate(&earlier).Conditions
	}
	return in
}

func (d dice) reports(node string) []Report {
	var all []Report
	for _, make := range []func(string, ...Entry) Report{from, thirdParty} {
		if d.chance(40) {
			continue
		}
		var entries []Entry
		for _, key := range []string{"2", "1", "3"}[:d.IntN(4)] {
			e := healthy(key, pick(d, 0, 3, 4, 5, 5, 5, 39, 40, 41, 119, 120, 121, 130, 300, 3600))
			e.KEKID = pick(d, "k-7", "k-7", "k-8", "unknown", "")
			e.Status = pick(d, contract.Healthy, contract.Healthy, contract.Unhealthy, contract.Error)
			e.Reason = pick(d, "", contract.Timeout, contract.SocketMissing)
			e.Interval = time.Duration(pick(d, 0, 1, 10, 30, 30, 60, 3600)) * time.Second
			e.Standing, e.Outage, e.NamedAt = d.chance(15), d.chance(15), ago(pick(d, 5, 119, 120, 300))
			e.LastChecked = ago(pick(d, 0, 300, -300, 30*86400, -30*86400))
			if e.Status != contract.Healthy {
				e.Detail = pick(d, "", "sealed", "attempt 1", "attempt 2 (of 9)", "\x1b[31m\n", strings.Repeat("é1 ", 500))
			}
			entries = append(entries, e)
		}
		d.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		r := make(node, entries...)
		if d.chance(5) {
			r.Entries, r.Err = nil, errors.New("bad\nmessage")
		}
		all = append(all, r)
	}
	return all
}

func (d dice) node(name string) Node {
	n := on(name, pick(d, [][]string{nil, {}, {"2"}, {"2"}, {"2", "1"}, {"1"}}...)...)
	if n.Ready = d.chance(80); !n.Ready {
		n.DownUntil = in(pick(d, -1, 0, 1, 900))
	}
	n.PodSeen = ago(pick(d, 1, 5, 60, 179, 180, 3600))
	if d.chance(50) {
		n.QuietUntil = n.PodSeen.Add(QuietPeriod)
	}
	if d.chance(10) {
		shared(pick(d, -1, 1))(&n)
	}
	if d.chance(10) {
		broken(pick(d, "kms-2", "kms-health"), pick(d, "ImagePullBackOff", "exit code 1"))(&n)
	}
	return n
}

// diff returns the difference of two values. It is fast for equal ones.
func diff(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return "differ:\n" + cmp.Diff(a, b)
}

// withLostKeys returns the input with all optional fields of its entries set, which are only for people.
func withLostKeys(in *Input) *Input {
	more := *in
	more.Reports = slices.Clone(in.Reports)
	for i := range more.Reports {
		entries := slices.Clone(more.Reports[i].Entries)
		for j := range entries {
			e := &entries[j]
			e.Lost, e.Requested, e.Since, e.RoundTrip = []string{"k-6", e.KEKID}, "r-1", in.Now, in.Now.Add(time.Hour)
		}
		more.Reports[i].Entries = entries
	}
	return &more
}

// snapshotOf returns the conditions and rows of a result.
func snapshotOf(r *Result) []any { return []any{r.Conditions, r.Rows} }

func TestAnyInput(t *testing.T) {
	const inputs = 3000
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(inputs) {
		d := dice{rand.New(rand.NewPCG(seed, i))}
		in := d.input()
		first := Evaluate(in)
		fail := func(what, diff string) {
			t.Helper()
			t.Fatalf("seeds %d, %d: %s:\n%s\nnow %s\nnodes %+v\nreports %+v", seed, i, what, diff, in.Now, in.Nodes, in.Reports)
		}

		// Order and repetition do not matter.
		shuffled := *in
		shuffled.Nodes, shuffled.Reports = slices.Clone(in.Nodes), slices.Clone(in.Reports)
		for range d.IntN(4) {
			if len(in.Reports) > 0 {
				shuffled.Reports = append(shuffled.Reports, pick(d, in.Reports...))
			}
		}
		d.Shuffle(len(shuffled.Nodes), reflect.Swapper(shuffled.Nodes))
		d.Shuffle(len(shuffled.Reports), reflect.Swapper(shuffled.Reports))
		other := Evaluate(&shuffled)
		if diff := diff(snapshotOf(first), snapshotOf(other)); diff != "" || first.Deadline != other.Deadline {
			fail("another order is another verdict", fmt.Sprintf("%s%s, %s", diff, first.Deadline, other.Deadline))
		}

		// Lost keys, and a round trip's fields, do not change the verdict.
		if diff := diff(first.Conditions, Evaluate(withLostKeys(in)).Conditions); diff != "" {
			fail("lost keys are another verdict", diff)
		}

		// When nothing has changed, nothing is written.
		again := *in
		again.Previous, again.Agreement = first.Conditions, first.Agreement
		second := Evaluate(&again)
		if diff := diff(first.Conditions, second.Conditions); diff != "" || !second.Same(again.Previous) {
			fail("its own conditions change it", diff)
		}

		// Nothing changes before the deadline.
		instants := []time.Time{in.Now.Add(time.Duration(d.Int64N(int64(10 * 365 * 24 * time.Hour))))}
		if ahead := first.Deadline.Sub(in.Now); !first.Deadline.IsZero() {
			if ahead <= 0 {
				fail("the deadline is past", first.Deadline.String())
			}
			instants = []time.Time{first.Deadline.Add(-1), in.Now.Add(time.Duration(d.Int64N(int64(ahead))))}
		}
		for _, at := range instants {
			again.Now = at
			then := Evaluate(&again)
			if diff := diff(snapshotOf(first), snapshotOf(then)); diff != "" || !then.Deadline.Equal(first.Deadline) {
				fail(fmt.Sprintf("at %s, before the deadline %s, it is another (then: %s)", at, first.Deadline, then.Deadline),
					diff)
			}
		}

		for _, c := range first.Conditions {
			if len(c.Message) > maxMessage || c.Message == "" || c.Reason == "" || !utf8.ValidString(c.Message) {
				fail("a bad condition", fmt.Sprintf("%+v", c))
			}
		}
	}
}
