package reporter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
)

func decode(t *testing.T, plugins ...string) *v1alpha1.ReporterConfiguration {
	t.Helper()
	c, err := v1alpha1.DecodeReporter([]byte("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nplugins: [" + strings.Join(plugins, ", ") + "]\n"))
	if err != nil {
		t.Fatal(err)
	}
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

func TestOnlyObservedPluginsAreReported(t *testing.T) {
	result := probe.Result{Status: contract.Error, Detail: "why", At: noon}
	list := observed([]*plugin{
		{wanted: wanted{identity: identity{keyID: "new"}}},
		{wanted: wanted{identity: identity{keyID: "seen"}}, probed: true, last: result},
		{wanted: wanted{identity: identity{keyID: "gone"}}, probed: true, last: probe.Result{Gone: true, At: noon}},
	}, time.Minute)
	want := []contract.Entry{{KeyID: "seen", Status: contract.Error, Detail: "why", LastChecked: noon, Interval: time.Minute}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
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
