package reporter

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

var noon = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func answeredAs(status contract.Status, kekID string) probe.Result {
	return probe.Result{Answered: true, Status: status, KEKID: kekID}
}

var (
	madeOK     = probe.Trip{Made: true, KEKID: "k", Status: contract.Healthy}
	madeFailed = probe.Trip{Made: true, KEKID: "k", Status: contract.Unhealthy, Reason: contract.PermissionDenied, Detail: "Encrypt: no"}
	madeOther  = probe.Trip{Made: true, KEKID: "k", Status: contract.Error, Reason: contract.Unavailable, Detail: "Encrypt: down"}
	notMade    = probe.Trip{Detail: "Encrypt: EOF"}
	stalled    = probe.Trip{Stalled: true}
)

// after returns a plugin's trips after these outcomes. The last one began at noon.
func after(outcomes ...probe.Trip) *trips {
	t := &trips{}
	for i, outcome := range outcomes {
		t.after(time.Duration(i+1-len(outcomes))*time.Hour, answeredAs(contract.Healthy, "k"), outcome)
	}
	return t
}

// after adds a trip that began at a time after noon.
func (t *trips) after(since time.Duration, result probe.Result, outcome probe.Trip) {
	now := noon.Add(since)
	t.observe(now, time.Minute, result)
	t.begin(now, result)
	t.end(now, time.Minute, outcome)
}

func TestRoundTripsAreDue(t *testing.T) {
	const every = 5 * time.Minute
	healthy, unhealthy := answeredAs(contract.Healthy, "k"), answeredAs(contract.Unhealthy, "k")
	failing := answeredAs(contract.Error, "") // the plugin answers Status with an error
	busy, alternating, alternatingFailed := after(madeOK), after(madeOK), after(madeFailed)
	busy.busy, alternating.keys = true, keyIDs{last: "k", before: "l", changed: noon, alternates: true}
	alternatingFailed.keys = alternating.keys
	whileUnhealthy := after(madeOK)
	whileUnhealthy.unhealthy = true
	unhealthyInError := after(madeOK)
	unhealthyInError.unhealthy = true
	unhealthyInError.observe(noon, time.Minute, probe.Result{Status: contract.Error})
	healedForLong := after(slices.Repeat([]probe.Trip{madeFailed}, mostRetries)...)
	healedForLong.observe(noon, time.Minute, failing)
	unnamed := after()
	unnamed.after(0, answeredAs(contract.Unhealthy, ""), probe.Trip{Made: true, Status: contract.Healthy})
	requested := func(history *trips) *trips { history.request = "new"; return history }
	inError := after(madeOK)
	inError.observe(noon, time.Minute, probe.Result{Status: contract.Error})
	requestedAlternating, withdrawn, restarted := after(madeOK), after(madeOK), healthy
	requestedAlternating.keys, requestedAlternating.request = keyIDs{last: "k", before: "l", changed: noon, alternates: true}, "new"
	withdrawn.samples.Answered, restarted.Restarted = "old", true
	failedBoth := after(madeFailed)
	failedBoth.samples = samples{Current: "k", Kept: []*kept{{Sample: probe.Sample{KeyID: "k"}, Failed: 1, Next: noon.Add(-time.Minute)}}}
	failedSample := after(madeOK)
	failedSample.samples = samples{Current: "k", Kept: []*kept{{Sample: probe.Sample{KeyID: "k"}, Failed: 1, Next: noon.Add(time.Minute)}}}
	// aws-encryption-provider counts each refused call against the health of all of its keys for 30 s. Frequent round
	// trips under a disabled key kept its API server from becoming ready.
	forLong := after(slices.Repeat([]probe.Trip{madeFailed}, mostRetries)...)
	forLongSample := after(slices.Repeat([]probe.Trip{madeFailed}, mostRetries)...)
	forLongSample.samples = failedBoth.samples // a failed round trip does not try it
	failedSampleInError := after(madeOK)
	failedSampleInError.unhealthy = true
	failedSampleInError.samples = samples{Current: "k", Kept: []*kept{{Sample: probe.Sample{KeyID: "k"}, Failed: 1, Next: noon.Add(time.Minute)}}}
	failedSampleInError.observe(noon, time.Minute, failing)
	forLongUnhealthy := after(slices.Repeat([]probe.Trip{madeFailed}, mostRetries)...)
	forLongUnhealthy.unhealthy = true
	for name, tt := range map[string]struct {
		history *trips
		after   time.Duration
		every   time.Duration
		result  probe.Result
		want    bool
	}{
		"the first":                     {after(), 0, every, healthy, true},
		"the first of an unhealthy one": {after(), 0, every, answeredAs(contract.Unhealthy, ""), true},
		"off":                           {after(), 0, 0, healthy, false},
		"no answer":                     {after(), 0, every, probe.Result{Status: contract.Error}, false},
		"one is under way":              {busy, time.Hour, every, healthy, false},
		"not yet":                       {after(madeOK), 4 * time.Minute, every, healthy, false},
		"by the interval":               {after(madeOK), every, every, healthy, true},
		"a shorter interval since":      {after(madeOK), time.Minute, time.Minute, healthy, true},
		"a longer interval since":       {after(madeOK), time.Hour, 24 * time.Hour, healthy, false},
		"another key":                   {after(madeOK), time.Second, every, answeredAs(contract.Healthy, "l"), true},
		"another key after a failure":   {after(madeFailed), time.Second, every, answeredAs(contract.Healthy, "l"), true},
		"another key, unhealthy":        {after(madeOK), time.Second, every, answeredAs(contract.Unhealthy, "l"), false},
		"no key named":                  {after(madeOK), time.Second, every, answeredAs(contract.Healthy, ""), false},
		"the first key named":           {unnamed, time.Second, every, healthy, true},
		"back after an error":           {inError, time.Second, every, healthy, true},
		"back, but unhealthy":           {inError, tripRetry - 1, every, unhealthy, false},
		"requested":                     {requested(after(madeOK)), tripRetry, every, healthy, true},
		"requested, just made":          {requested(after(madeOK)), tripRetry - 1, every, healthy, false},
		"requested, round trips off":    {requested(after(madeOK)), time.Hour, 0, healthy, false},
		"keys alternate, requested":     {requestedAlternating, time.Minute, every, healthy, true},
		"so, just before":               {requestedAlternating, time.Minute - 1, every, healthy, false},
		"the request was withdrawn":     {withdrawn, time.Minute, every, healthy, false},
		"restarted without an error":    {after(madeOK), time.Second, every, restarted, true},
		"not made, by the interval":     {after(notMade, notMade, notMade, notMade, notMade, notMade), time.Minute, time.Minute, healthy, false},
		"a sample failed, Encrypt too":  {failedBoth, tripRetry - 1, every, healthy, false},
		"a sample failed":               {failedSample, time.Minute, every, healthy, true},
		"a sample failed, just before":  {failedSample, time.Minute - 1, every, healthy, false},
		"so, in an error that answers":  {failedSampleInError, time.Minute - 1, every, failing, false},
		"a sample failed, failed long":  {forLongSample, time.Minute, every, healthy, false},
		"so, also by the interval":      {forLongSample, every, every, healthy, true},
		"keys alternate":                {alternating, 59 * time.Second, every, answeredAs(contract.Healthy, "l"), false},
		"keys alternate, a minute":      {alternating, time.Minute, every, answeredAs(contract.Healthy, "l"), true},
		"keys alternate, failed":        {alternatingFailed, 59 * time.Second, every, healthy, false},
		"so, after a minute":            {alternatingFailed, time.Minute, every, healthy, true},
		"keys alternate, unhealthy":     {alternating, 59 * time.Second, every, unhealthy, false},
		"turned unhealthy":              {after(madeOK), tripRetry, every, unhealthy, true},
		"turned unhealthy, just made":   {after(madeOK), tripRetry - 1, every, unhealthy, false},
		"unhealthy as at the last":      {whileUnhealthy, time.Minute, every, unhealthy, false},
		"an error of the process":       {after(madeOK), tripRetry, every, failing, true},
		"so, and at the last":           {whileUnhealthy, time.Minute, every, failing, false},
		"so, failed for long":           {forLong, time.Minute, every, failing, false},
		"so, and healthy again":         {healedForLong, tripRetry, every, healthy, true},
		"so, failed, by the interval":   {forLong, every, every, failing, true},
		"unhealthy as before an error":  {unhealthyInError, tripRetry, every, unhealthy, true},
		"failed":                        {after(madeFailed), tripRetry, every, healthy, true},
		"failed, just before":           {after(madeFailed), tripRetry - 1, every, healthy, false},
		"failed for long":               {forLong, time.Minute, every, healthy, false},
		"so, by the interval":           {forLong, every, every, healthy, true},
		"so, turned unhealthy by it":    {forLong, time.Minute, every, unhealthy, false},
		"so, and recovered since":       {after(append(slices.Repeat([]probe.Trip{madeFailed}, mostRetries), madeOK, madeFailed)...), tripRetry, every, healthy, true},
		"so, no longer unhealthy":       {forLongUnhealthy, tripRetry, every, healthy, true},
		"unhealthy for long":            {forLongUnhealthy, time.Minute, every, unhealthy, false},
		"not made once":                 {after(notMade), 0, every, healthy, true},
		"so, after a good one":          {after(madeOK, notMade), 0, every, healthy, true},
		"not made twice":                {after(notMade, notMade), tripRetry, every, healthy, true},
		"not made twice, just before":   {after(notMade, notMade), tripRetry - 1, every, healthy, false},
		"not made again":                {after(notMade, notMade, notMade), 2 * tripRetry, every, healthy, true},
		"not made again, just before":   {after(notMade, notMade, notMade), 2*tripRetry - 1, every, healthy, false},
		"not made for long":             {after(slices.Repeat([]probe.Trip{notMade}, 30)...), mostTripRetry - 1, 24 * time.Hour, healthy, false},
		"not made for long, at last":    {after(slices.Repeat([]probe.Trip{notMade}, 30)...), mostTripRetry, 24 * time.Hour, healthy, true},
		"the reporter did not run":      {after(stalled), 0, every, healthy, true},
		"gone":                          {after(madeOK), time.Hour, every, probe.Result{Gone: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			history, now := *tt.history, noon.Add(tt.after)
			history.observe(now, time.Minute, tt.result)
			if got := history.due(now, tt.every, tt.result); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// Only a completed round trip replaces a verdict. Results from before an error of the plugin no longer count.
func TestVerdictAfterRoundTrips(t *testing.T) {
	breaks := func(times string) string {
		return "Unavailable: the connection broke during each of the last " + times + " round trips, so the plugin may end at this call: Encrypt: EOF"
	}
	const denied = "PermissionDenied: Encrypt: no"
	inError := func(outcomes ...probe.Trip) *trips {
		t := after(outcomes...)
		t.observe(noon, time.Minute, probe.Result{Status: contract.Error})
		return t
	}
	answered := func(outcome probe.Trip) *trips {
		t := after(outcome)
		t.observe(noon, time.Minute, answeredAs(contract.Error, ""))
		return t
	}
	overtaken := after()
	overtaken.begin(noon, answeredAs(contract.Healthy, "k"))
	overtaken.observe(noon, time.Minute, probe.Result{Status: contract.Error})
	overtaken.end(noon, time.Minute, madeOK)
	for name, tt := range map[string]struct {
		history *trips
		want    string
	}{
		"none":                           {after(), ""},
		"healthy, begun before an error": {overtaken, ""},
		"healthy":                        {after(madeOK), "healthy"},
		"failed":                         {after(madeOK, madeFailed), denied},
		"failed for another cause":       {after(madeFailed, madeOther), "Unavailable: Encrypt: down"},
		"failed and recovered":           {after(madeFailed, madeOK), "healthy"},
		"failed and not made since":      {after(madeFailed, notMade), denied},
		"failed and stalled since":       {after(madeFailed, stalled, stalled, stalled, stalled), denied},
		"not made once":                  {after(madeOK, notMade), "healthy"},
		"not made at first":              {after(notMade), ""},
		"not made twice":                 {after(madeOK, notMade, notMade), breaks("2")},
		"the reporter's own among it":    {after(notMade, stalled, stalled, notMade), breaks("2")},
		"no answer meanwhile":            {inError(notMade, notMade), breaks("2")},
		"not made, with one made":        {after(notMade, madeOK, notMade), "healthy"},
		"not made, and made at last":     {after(notMade, notMade, notMade, madeOK), "healthy"},
		"not made, and failed at last":   {after(notMade, notMade, notMade, madeFailed), denied},
		"healthy, and an error since":    {inError(madeOK), ""},
		"failed, and an error since":     {inError(madeFailed), ""},
		"healthy, and Status failed":     {answered(madeOK), ""},
		"failed, and Status, too":        {answered(madeFailed), denied},
		"under another key than Status'": {after(probe.Trip{Made: true, KEKID: "l", Status: contract.Healthy}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			switch v := tt.history.verdict(noon, answeredAs(contract.Healthy, "k")); {
			case !v.Made:
			case v.Status == contract.Healthy:
				got = string(v.Status)
			default:
				got = string(v.Reason) + ": " + v.Detail
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A request is fulfilled by a round trip that began after it, or by an answer that shows that none can be made.
func TestRequestIsFulfilled(t *testing.T) {
	healthy := answeredAs(contract.Healthy, "k")
	for name, tt := range map[string]struct {
		do   func(*trips)
		want bool
	}{
		"nothing was done":      {func(*trips) {}, false},
		"Status was answered":   {func(t *trips) { t.observe(noon, time.Minute, healthy) }, false},
		"a round trip was made": {func(t *trips) { t.after(0, healthy, madeOK) }, true},
		"one failed":            {func(t *trips) { t.after(0, healthy, madeFailed) }, true},
		"one stalled":           {func(t *trips) { t.after(0, healthy, stalled) }, false},
		"one could not be made": {func(t *trips) { t.after(0, healthy, notMade) }, false},
		"two could not be made": {func(t *trips) { t.after(0, healthy, notMade); t.after(0, healthy, notMade) }, true},
		"Status was not answered": {func(t *trips) {
			t.probing = t.request
			t.observe(noon, time.Minute, probe.Result{Status: contract.Error})
		}, true},
		"so, by a probe that began before it": {func(t *trips) { t.observe(noon, time.Minute, probe.Result{Status: contract.Error}) }, false},
		"one that began before it": {func(t *trips) {
			t.request = "old"
			t.begin(noon, healthy)
			t.request = "new"
			t.end(noon, time.Minute, madeOK)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			history := after(madeOK)
			history.request = "new"
			tt.do(history)
			if got := history.samples.Answered == "new"; got != tt.want || history.pending() == tt.want {
				t.Errorf("fulfilled: %t, pending: %t", got, history.pending())
			}
		})
	}
}

// A request that has to wait is tried again when a round trip is allowed, and not in a busy loop.
func TestRequestThatMustWaitIsTriedAgainLater(t *testing.T) {
	for name, tt := range map[string]struct {
		trips trips
		since time.Duration // since the last round trip began
		want  time.Duration // until the probe; zero: none
	}{
		"a round trip was just made":      {trips{request: "r"}, time.Second, tripRetry - time.Second},
		"it is long ago":                  {trips{request: "r"}, time.Hour, time.Second},
		"the key_id alternates":           {trips{request: "r", keys: keyIDs{alternates: true}}, tripRetry, tripGap - tripRetry},
		"one is under way for an old one": {trips{request: "r", busy: true, asked: "old"}, time.Minute, 0},
		"it is fulfilled":                 {trips{request: "r", samples: samples{Answered: "r"}}, time.Minute, 0},
		"there is none":                   {trips{samples: samples{Answered: "old"}}, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := &Reporter{config: decode(t, writeOne), events: make(chan func())}
				p := &plugin{ctx: ctx, probes: make(chan probe.Settings, 1), trips: tt.trips}
				began := time.Now()
				p.trips.at = began.Add(-tt.since)
				r.wake(p)
				if p.waking != (tt.want != 0) {
					t.Fatalf("waking: %t", p.waking)
				}
				if p.waking {
					(<-r.events)()
					if got := time.Since(began); got != tt.want || len(p.probes) != 1 {
						t.Errorf("%d probes after %s, want one after %s", len(p.probes), got, tt.want)
					}
				}
			})
		})
	}
}

func TestAKeyIDThatAlternates(t *testing.T) {
	const interval = 30 * time.Second
	for name, tt := range map[string]struct {
		interval time.Duration
		seen     string // the key_id at each interval; -: none
		want     bool
	}{
		"one key":                        {interval, "kkkk", false},
		"a rotation":                     {interval, "kkll", false},
		"a rotation, Status lags once":   {interval, "k-kl", false},
		"two, an interval apart":         {interval, "klm", true},
		"two, two intervals apart":       {interval, "kllm", false},
		"back and forth":                 {interval, "klkl", true},
		"over, for one interval":         {interval, "klkk", true},
		"over, for two":                  {interval, "klkkk", false},
		"two rotations, an hour apart":   {time.Hour, "klm", false},
		"nothing named between":          {interval, "k-l--m", false},
		"nothing named, and two of them": {interval, "kl-", true},
	} {
		t.Run(name, func(t *testing.T) {
			var keys keyIDs
			for i, key := range tt.seen {
				if key != '-' {
					keys.see(noon.Add(time.Duration(i)*tt.interval), tt.interval, string(key))
				}
			}
			if name == "nothing named, and two of them" { // the second key_id is seen within a round trip
				keys.see(noon.Add(2*tt.interval), tt.interval, "k")
			}
			history := trips{keys: keys}
			if v := history.verdict(noon, probe.Result{}); v.Made != tt.want || tt.want && v.Reason != contract.ProtocolViolation {
				t.Errorf("%+v", v)
			}
		})
	}
}

// After a restart Google's k8s-cloudkms-plugin names its key without a version, until the Encrypt call that Status
// makes has returned it (plugin/v2/plugin.go). So key_id changes twice within a round trip. kube-apiserver sees one
// change at most.
func TestAKeyIDThatIsCorrectedAfterARestartDoesNotAlternate(t *testing.T) {
	for name, shown := range map[string]probe.Result{
		"a replaced socket": {Restarted: true, Answered: true, Status: contract.Healthy, KEKID: "key"},
		"a missing socket":  {Status: contract.Error},
	} {
		t.Run(name, func(t *testing.T) {
			named := probe.Trip{Made: true, Status: contract.Healthy, KEKID: "key/1"}
			history, versioned := &trips{}, answeredAs(contract.Healthy, "key/1")
			history.after(0, versioned, named)
			history.observe(noon.Add(time.Hour), time.Minute, shown)
			named.Named = true
			history.after(time.Hour, answeredAs(contract.Healthy, "key"), named)
			history.observe(noon.Add(time.Hour), time.Minute, versioned)
			if v := history.verdict(noon.Add(time.Hour), versioned); !v.Made || v.Status != contract.Healthy {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestVerdictJoinsProbeAndRoundTrip(t *testing.T) {
	ok := probe.Result{Answered: true, Status: contract.Healthy}
	sealed := probe.Result{Answered: true, Status: contract.Unhealthy, Reason: contract.ReportedUnhealthy, Detail: `healthz is "err", not "ok"`}
	denied := probe.Trip{Made: true, Status: contract.Unhealthy, Reason: contract.PermissionDenied, Detail: "Encrypt: PermissionDenied: no role"}
	lost := probe.Result{Status: contract.Error, Reason: contract.ConnectFailed, Detail: "cannot connect"}
	for name, tt := range map[string]struct {
		result probe.Result
		trip   probe.Trip
		status contract.Status
		reason contract.Reason
		detail string
	}{
		"no trip":              {ok, probe.Trip{}, contract.Healthy, "", ""},
		"good trip":            {ok, probe.Trip{Made: true, Status: contract.Healthy}, contract.Healthy, "", ""},
		"failed trip":          {ok, denied, contract.Unhealthy, contract.PermissionDenied, "Encrypt: PermissionDenied: no role"},
		"lost during the trip": {ok, probe.Trip{Made: true, Status: contract.Error, Reason: contract.Unavailable, Detail: "x"}, contract.Error, contract.Unavailable, "x"},
		"both":                 {sealed, denied, contract.Unhealthy, contract.PermissionDenied, `healthz is "err", not "ok"; Encrypt: PermissionDenied: no role`},
		"a reason of its own":  {probe.Result{Answered: true, Status: contract.Unhealthy, Reason: contract.ProtocolViolation, Detail: "v3"}, denied, contract.Unhealthy, contract.ProtocolViolation, "v3; Encrypt: PermissionDenied: no role"},
		"no answer":            {lost, denied, contract.Error, contract.ConnectFailed, "cannot connect"},
		"good trip, unhealthy": {sealed, probe.Trip{Made: true, Status: contract.Healthy}, contract.Unhealthy, contract.ReportedUnhealthy, `healthz is "err", not "ok"`},
	} {
		if status, reason, detail := verdict(tt.result, tt.trip); status != tt.status || reason != tt.reason || detail != tt.detail {
			t.Errorf("%s: %s, %s, %q", name, status, reason, detail)
		}
	}
}
