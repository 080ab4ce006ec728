package main

import (
	"errors"
	"fmt"
	"strconv"
)

// opinion is what one side reports of a plugin.
type opinion struct {
	ok bool
	// verdict and why are the side's own words, empty if ok.
	verdict, why string
}

func (o opinion) String() string {
	if o.ok {
		return "ok"
	}
	return o.verdict + ": " + o.why
}

// verdicts are the results of all sides for one plugin.
type verdicts struct {
	kube opinion
	// asked is how often kube-apiserver asked the plugin since its fault.
	asked int64
	// status is ours by Status alone, roundTrip ours with that check too.
	status, roundTrip opinion
}

// The numbers of the differences that a row can show.
const (
	notTried = 2
	tooLarge = 3
)

// difference is a way in which we may differ from kube-apiserver.
type difference struct {
	number    int
	what, why string
	// shows reports whether verdicts differ in just this way. Nil: no row may.
	shows func(verdicts) bool
}

// differences is the closed list: any other fails the run.
var differences = []difference{{
	number: 1,
	what:   "kube-apiserver's answer may lag by its own cache.",
	why:    fmt.Sprintf("It keeps a good answer for 20s and a bad one for 3s. Here %s are waited out, so no row shows it.", settle),
}, {
	number: notTried,
	what:   "Failures of encrypt and decrypt are seen by us with RoundTrip, by kube-apiserver's check only if it is encrypt and the key id changes.",
	why:    "It encrypts only to get a new seed, and never decrypts. RoundTrip does both, on a clock of its own.",
	shows: func(v verdicts) bool {
		return v.status.ok && !v.roundTrip.ok
	},
}, {
	number: tooLarge,
	what:   "An answer over 256 KiB (or headers over 64 KiB) is an error to us alone.",
	why:    "kube-apiserver takes gRPC's 4 and 16 MiB, of which gRPC makes up to a hundred times as much in memory. The reporter is small, and no plugin may fill its memory.",
	shows: func(v verdicts) bool {
		return v.kube.ok && !v.status.ok && !v.roundTrip.ok
	},
}}

// compare returns "same" where all sides agree, or the number of the difference
// that is allowed to this fault. All else is an error, also an allowed
// difference that does not show: RoundTrip is there to find those faults.
func compare(f fault, v verdicts) (string, error) {
	// A failure is new since the plugin was healthy; "ok" may be an old answer.
	if v.kube.ok && v.asked == 0 {
		return "", errors.New("kube-apiserver has not asked the plugin since the fault, so its answer is an old one")
	}
	if v.kube.ok == f.unhealthy {
		return "", fmt.Errorf("kube-apiserver reports %q: the fault has lost its effect, or the rules have changed", v.kube)
	}
	if f.differs == 0 {
		if v.status.ok != v.kube.ok {
			return "", fmt.Errorf("kube-apiserver reports %q, and we %q: not an allowed difference", v.kube, v.status)
		}
		if v.roundTrip.ok != v.kube.ok {
			return "", fmt.Errorf("kube-apiserver reports %q, and we with RoundTrip %q: not an allowed difference", v.kube, v.roundTrip)
		}
		return "same", nil
	}
	for _, d := range differences {
		if d.number == f.differs && d.shows != nil && d.shows(v) {
			return strconv.Itoa(d.number), nil
		}
	}
	return "", fmt.Errorf("difference %d does not show: kube-apiserver reports %q, we %q, with RoundTrip %q",
		f.differs, v.kube, v.status, v.roundTrip)
}
