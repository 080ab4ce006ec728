package reporter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/harness/must"
)

func decode(t *testing.T, plugins ...string) *v1alpha1.ReporterConfiguration {
	t.Helper()
	c, err := v1alpha1.DecodeReporter([]byte("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nplugins: [" + strings.Join(plugins, ", ") + "]\n"))
	must.Succeed(t, err)
	return c
}

const (
	readOne   = "{endpoint: 'unix:///r/kms-1.sock', role: Read}"
	writeOne  = "{endpoint: 'unix:///r/kms-1.sock', role: Write}"
	writeTwo  = "{endpoint: 'unix:///r/kms-2.sock', role: Write}"
	movedTwo  = "{endpoint: 'unix:///moved/kms-2.sock', role: Write}"
	readThree = "{endpoint: 'unix:///r/kms-3.sock', role: Read}"
)

func TestReloadKeepsUnchangedPlugins(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after           []string
		order, changed, dropped string
	}{
		"first":                   {nil, []string{readOne, writeTwo}, "2 1", "2 1", ""},
		"nothing changed":         {[]string{readOne, writeTwo}, []string{writeTwo, readOne}, "2 1", "", ""},
		"one more":                {[]string{writeOne}, []string{writeTwo, readOne}, "2 1", "2", ""},
		"one less":                {[]string{readOne, writeTwo}, []string{writeTwo}, "2", "", "1"},
		"role":                    {[]string{writeOne, readThree}, []string{readOne, readThree}, "1 3", "", ""},
		"same key, other socket":  {[]string{writeTwo}, []string{movedTwo}, "2", "2", "2"},
		"all gone":                {[]string{writeTwo, readOne}, nil, "", "", "2 1"},
		"readers keep file order": {nil, []string{readThree, readOne, writeTwo}, "2 3 1", "2 3 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			create := func(w wanted) *plugin {
				ctx, cancel := context.WithCancel(t.Context())
				return &plugin{wanted: w, ctx: ctx, cancel: cancel}
			}
			have, _, _ := arrange(nil, want(decode(t, tt.before...)), create)
			after := want(decode(t, tt.after...))
			plugins, changed, leftOver := arrange(have, after, create)
			for _, list := range []struct {
				what string
				got  []*plugin
				want string
			}{{"plugins", plugins, tt.order}, {"changed", changed, tt.changed}, {"left over", leftOver, tt.dropped}} {
				got := ""
				for _, p := range list.got {
					got += p.keyID + " "
				}
				if got = strings.TrimSpace(got); got != list.want {
					t.Errorf("%s: %q, want %q", list.what, got, list.want)
				}
			}
			for i, w := range after {
				if plugins[i].settings != w.settings {
					t.Errorf("%s has settings %+v, want %+v", w.keyID, plugins[i].settings, w.settings)
				}
			}
		})
	}
}

// Until a round trip has a verdict for the key_id of the latest Status, a first entry is withheld. An earlier entry
// stays unchanged, with its time.
func TestEntryIsMadeByAVerdict(t *testing.T) {
	const on, off = "1m", "0s"
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	probed := func(minute int, status contract.Status, kekID string) probe.Result {
		return probe.Result{Answered: status != contract.Error, Status: status, KEKID: kekID, At: at(minute)}
	}
	ended := func(status contract.Status, kekID string) *probe.Trip {
		return &probe.Trip{Made: true, Status: status, KEKID: kekID, Reason: contract.Reason(map[contract.Status]string{contract.Unhealthy: "Timeout"}[status])}
	}
	type step struct {
		result probe.Result
		trip   *probe.Trip // the round trip after the result; nil: under way, or not due
	}
	healthy := step{probed(0, contract.Healthy, "a"), ended(contract.Healthy, "a")}
	for name, tt := range map[string]struct {
		trips string
		steps []step
		want  string
	}{
		"no round trip has ended":               {on, []step{{probed(0, contract.Healthy, "a"), nil}}, "none"},
		"round trips are off":                   {off, []step{{probed(0, contract.Healthy, "a"), nil}}, "healthy a 0m since 0m"},
		"one succeeded":                         {on, []step{healthy}, "healthy a 0m since 0m"},
		"probed again":                          {on, []step{healthy, {probed(1, contract.Healthy, "a"), nil}}, "healthy a 1m since 0m"},
		"one failed":                            {on, []step{{probed(0, contract.Healthy, "a"), ended(contract.Unhealthy, "a")}}, "unhealthy a 0m since 0m Timeout"},
		"another key, not tried yet":            {on, []step{healthy, {probed(1, contract.Healthy, "b"), nil}}, "healthy a 0m since 0m"},
		"another key, tried":                    {on, []step{healthy, {probed(1, contract.Healthy, "b"), ended(contract.Healthy, "b")}}, "healthy b 1m since 0m"},
		"another key, which failed":             {on, []step{healthy, {probed(1, contract.Healthy, "b"), ended(contract.Unhealthy, "b")}}, "unhealthy b 1m since 1m Timeout"},
		"a fault of the former key":             {on, []step{{probed(0, contract.Healthy, "a"), ended(contract.Unhealthy, "a")}, {probed(1, contract.Healthy, "b"), nil}}, "unhealthy a 0m since 0m Timeout"},
		"a key that was named during the trip":  {on, []step{{probed(0, contract.Healthy, "a"), ended(contract.Healthy, "b")}}, "none"},
		"no answer":                             {on, []step{{probed(0, contract.Error, ""), nil}}, "error  0m since 0m"},
		"back after an error":                   {on, []step{healthy, {probed(1, contract.Error, ""), nil}, {probed(2, contract.Healthy, "a"), nil}}, "error  1m since 1m"},
		"back, and tried":                       {on, []step{healthy, {probed(1, contract.Error, ""), nil}, {probed(2, contract.Healthy, "a"), ended(contract.Healthy, "a")}}, "healthy a 2m since 2m"},
		"back with a key, another is named":     {on, []step{healthy, {probed(1, contract.Error, ""), nil}, {probed(2, contract.Healthy, "b"), ended(contract.Healthy, "a")}}, "error  1m since 1m"},
		"back after a restart without an error": {on, []step{healthy, {probe.Result{Answered: true, Restarted: true, Status: contract.Healthy, KEKID: "a", At: at(1)}, nil}}, "healthy a 0m since 0m"},
		"unhealthy needs no round trip":         {on, []step{{probed(0, contract.Unhealthy, "a"), nil}}, "unhealthy a 0m since 0m"},
		"no longer unhealthy, with a good trip": {on, []step{healthy, {probed(1, contract.Unhealthy, "a"), nil}, {probed(2, contract.Healthy, "a"), nil}}, "healthy a 2m since 2m"},
		"its pod was deleted":                   {on, []step{healthy, {probe.Result{Gone: true, At: at(1)}, nil}}, "none"},
		"back after its pod was deleted":        {on, []step{healthy, {probe.Result{Gone: true, At: at(1)}, nil}, {probed(2, contract.Healthy, "a"), nil}}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			c := v1alpha1.DefaultProbe()
			if c.Checks.RoundTrip.Interval.Duration = 0; tt.trips == on {
				c.Checks.RoundTrip.Interval.Duration = time.Minute
			}
			p := &plugin{wanted: wanted{keyID: "1", address: "/run/kms.sock"}}
			for _, s := range tt.steps {
				p.last = s.result
				p.trips.busy = false
				p.trips.observe(s.result.At, time.Second, s.result)
				if p.trips.due(s.result.At, c.Checks.RoundTrip.Interval.Duration, s.result) {
					p.trips.begin(s.result.At, s.result)
					p.judge(s.result.At, c)
					if s.trip != nil {
						p.trips.end(s.result.At, time.Second, *s.trip)
					}
				}
				p.judge(s.result.At, c)
			}
			got := "none"
			if e := p.entry; p.observed {
				got = strings.TrimSpace(fmt.Sprintf("%s %s %gm since %gm %s", e.Status, e.KEKID, e.LastChecked.Sub(noon).Minutes(), e.Since.Sub(noon).Minutes(), e.Reason))
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if list := entriesOf([]*plugin{p}); (len(list) == 1) != (tt.want != "none") {
				t.Errorf("reported: %+v", list)
			}
		})
	}
}

func TestJitterIsATenthEitherWay(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 10_000 {
		d := jitter(10 * time.Second)
		low, high = min(low, d), max(high, d)
	}
	if low < 9*time.Second || high > 11*time.Second || high-low < time.Second {
		t.Errorf("from %s to %s", low, high)
	}
}
