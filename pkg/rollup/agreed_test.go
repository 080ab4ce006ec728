package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// settling evaluates a roll-up over time. Writes of its conditions may fail.
type settling struct {
	seen      Seen
	agreement Agreement
	previous  map[string]operatorstatus.Condition
}

// at returns KMSWriteKeyAgreed at a time since the start. entries are the entries of nodes a, b and so on. written
// means that the conditions could be written.
func (s *settling) at(seconds int, written bool, entries ...contract.Entry) string {
	in := &Input{Now: in(seconds), Wall: in(seconds), Previous: s.previous, Agreement: s.agreement}
	var reports []operatorstatus.Report
	for i, e := range entries {
		name := string(rune('a' + i))
		reports, in.Nodes = append(reports, wrote(name, e)), append(in.Nodes, listening(on(name, "2")))
	}
	in.Reports = s.seen.Observe(in.Now, reports)
	r := Evaluate(in)
	if s.agreement = r.Agreement; written {
		s.previous = r.Conditions
	}
	c := r.Conditions[contract.WriteKeyAgreed]
	return c.Status + " " + c.Reason
}

// checked returns an entry with its check at a time since the start.
func checked(seconds int, e Entry) contract.Entry {
	e.LastChecked = in(seconds)
	return e.Entry
}

const isSettling, settled = "Unknown Settling", int(SettlePeriod / time.Second)

// A new process does not know the age of reports that it finds. Reports that no reporter confirms must not agree.
func TestReportsThatNobodyConfirmsAgreeOnNothing(t *testing.T) {
	s := &settling{}
	found := checked(0, every(60, healthy("2", 0)))
	for at := 0; at < 300; at += 10 {
		if got := s.at(at, true, found); got != isSettling {
			t.Fatalf("at %d s: %s", at, got)
		}
	}
	if got := s.at(300, true, found); got != stale {
		t.Errorf("stale: %s", got)
	}
	s = &settling{}
	s.at(0, true, found)
	s.at(40, true, found)
	for at := 50; at <= 50+settled; at += 10 {
		want := isSettling
		if at == 50+settled {
			want = agreed
		}
		if got := s.at(at, true, checked(at, every(60, healthy("2", 0)))); got != want {
			t.Fatalf("confirmed, at %d s: %s, want %s", at, got, want)
		}
	}
}

// An existing condition stems from another process only at the first evaluation. Later it may differ because a write
// failed.
func TestAgreementThatEndedSettlesAnewThoughThatCouldNotBeWritten(t *testing.T) {
	first := func(at int) contract.Entry { return checked(at, healthy("2", 0)) }
	s := &settling{previous: Evaluate(&Input{Now: now, Agreement: agreement2, Nodes: abc("2"), Reports: ok}).Conditions}
	if got := s.at(0, true, first(0), first(0)); got != agreed {
		t.Fatalf("an earlier process's: %s", got)
	}
	if got := s.at(30, false, first(30), checked(30, naming("k-8", healthy("2", 0)))); got != differ {
		t.Fatalf("one names another KEK ID: %s", got)
	}
	if got := s.at(60, false, first(60), first(60)); got != isSettling {
		t.Errorf("it names the first again: %s", got)
	}
}

// After a timeout the last KEK ID counts for a while, but only if it came from the same socket.
func TestKEKIDIsOfThePluginAtItsSocket(t *testing.T) {
	entry := func(seconds int, socket string, e Entry) contract.Entry { return checked(seconds, at(socket, e)) }
	s := &settling{agreement: agreement2}
	s.at(0, true, entry(0, "/run/kms-2.sock", healthy("2", 0)))
	if got := s.at(30, true, entry(30, "/run/kms-2.sock", timedOut(0, 0))); got != agreed {
		t.Errorf("at the same socket: %s", got)
	}
	s = &settling{agreement: agreement2}
	s.at(0, true, entry(0, "/old/kms-2.sock", healthy("2", 0)))
	s.agreement = agreement2
	if got := s.at(30, true, entry(30, "/run/kms-2.sock", timedOut(0, 0))); got != keyUnhealthy {
		t.Errorf("at another socket: %s", got)
	}
}

// A pod that is being deleted, or a node's second pod, need not report, but still writes with its key.
func TestOtherPodsNeedNotReportAndWriteWithTheKey(t *testing.T) {
	for name, tt := range map[string]struct {
		other Node
		want  string
	}{
		"with this one":     {on("d", "2"), agreed},
		"with another one":  {on("d", "1"), notYet},
		"that is not known": {Node{Name: "d", Keys: []string{"2"}, WriteKeyNotKnown: true}, noKey},
	} {
		t.Run(name, func(t *testing.T) {
			c := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, WriteKey: "2", Nodes: abc("2"),
				Others: []Node{tt.other}, Reports: ok}).Conditions[contract.WriteKeyAgreed]
			if have := c.Status + " " + c.Reason; have != tt.want {
				t.Errorf("%s, want %s: %s", have, tt.want, c.Message)
			}
		})
	}
}
