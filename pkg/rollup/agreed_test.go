package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// agrees returns KMSWriteKeyAgreed. entries are the entries of nodes a, b and so on.
func (p *process) agrees(seconds int, entries ...contract.Entry) string {
	var nodes []Node
	var reports []operatorstatus.Report
	for i, e := range entries {
		name := string(rune('a' + i))
		reports, nodes = append(reports, wrote(name, e)), append(nodes, on(name, "2"))
	}
	return p.at(seconds, nodes, reports...).agreed()
}

// checked returns an entry with its check at a time since the start.
func checked(seconds int, e Entry) contract.Entry {
	e.LastChecked = in(seconds)
	return e.Entry
}

const isSettling, settled = "Unknown Settling", int(SettlePeriod / time.Second)

// A new process does not know the age of reports that it finds. Reports that no reporter confirms must not agree.
func TestReportsThatNobodyConfirmsAgreeOnNothing(t *testing.T) {
	s := &process{}
	found := checked(0, every(60, healthy("2", 0)))
	for at := 0; at < 300; at += 10 {
		if got := s.agrees(at, found); got != isSettling {
			t.Fatalf("at %d s: %s", at, got)
		}
	}
	if got := s.agrees(300, found); got != stale {
		t.Errorf("stale: %s", got)
	}
	s = &process{}
	s.agrees(0, found)
	s.agrees(40, found)
	for at := 50; at <= 50+settled; at += 10 {
		want := isSettling
		if at == 50+settled {
			want = agreed
		}
		if got := s.agrees(at, checked(at, every(60, healthy("2", 0)))); got != want {
			t.Fatalf("confirmed, at %d s: %s, want %s", at, got, want)
		}
	}
}

// An existing condition stems from another process only at the first evaluation. Later it may differ because a write
// failed.
func TestAgreementThatEndedSettlesAnewThoughThatCouldNotBeWritten(t *testing.T) {
	first := func(at int) contract.Entry { return checked(at, healthy("2", 0)) }
	written := Evaluate(&Input{Now: now, WriteKey: "2", Agreement: agreement2, Nodes: abc("2"), Reports: ok}).Conditions
	s := &process{previous: written}
	if got := s.agrees(0, first(0), first(0)); got != agreed {
		t.Fatalf("an earlier process's: %s", got)
	}
	if got := s.agrees(30, first(30), checked(30, naming("k-8", healthy("2", 0)))); got != differ {
		t.Fatalf("one names another KEK ID: %s", got)
	}
	s.previous = written // that could not be written
	if got := s.agrees(60, first(60), first(60)); got != isSettling {
		t.Errorf("it names the first again: %s", got)
	}
}

// After a timeout the last KEK ID counts for a while, but only if it came from the same socket.
func TestKEKIDIsOfThePluginAtItsSocket(t *testing.T) {
	entry := func(seconds int, socket string, e Entry) contract.Entry { return checked(seconds, at(socket, e)) }
	s := &process{agreement: agreement2}
	s.agrees(0, entry(0, "/run/kms-2.sock", healthy("2", 0)))
	if got := s.agrees(30, entry(30, "/run/kms-2.sock", timedOut(0, 0))); got != agreed {
		t.Errorf("at the same socket: %s", got)
	}
	s = &process{agreement: agreement2}
	s.agrees(0, entry(0, "/old/kms-2.sock", healthy("2", 0)))
	s.agreement = agreement2
	if got := s.agrees(30, entry(30, "/run/kms-2.sock", timedOut(0, 0))); got != keyUnhealthy {
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
			got := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, WriteKey: "2", Nodes: abc("2"),
				Others: []Node{tt.other}, Reports: ok}).agreed()
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
