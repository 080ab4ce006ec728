package reportercontroller

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Each text is what the annotation has at a sync; empty: it is not there.
func TestAnInvalidRequestIsIgnoredWithOneEvent(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		texts  []string
		want   string // what the last sync requests
		events int
	}{
		"no annotation":              {[]string{"", ""}, "", 0},
		"a request":                  {[]string{"r1", "r1"}, "r1", 0},
		"another one":                {[]string{"r1", "R-2_b.c"}, "R-2_b.c", 0},
		"deleted":                    {[]string{"r1", ""}, "", 0},
		"an invalid one":             {[]string{"two words", "two words", "two words"}, "", 1},
		"two invalid ones":           {[]string{"two words", long, long}, "", 2},
		"invalid after a valid one":  {[]string{"r1", "\x1b[31m"}, "", 1},
		"a valid one after that":     {[]string{"\x1b[31m", "r1"}, "r1", 1},
		"invalid, deleted, and anew": {[]string{"?", "", "?"}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			c := &Controller{Options: Options{Event: func(target, eventType, reason, message string) {
				events = append(events, strings.Join([]string{target, eventType, reason, message}, " "))
			}}}
			var s *Snapshot
			e := &serverState{}
			for _, text := range tt.texts {
				s = fixture(t, v1alpha1.ModeCompanionPod)
				s.Resource = &operatorstatus.Status{Requested: text}
				c.readRequest(s, e)
			}
			if s.Requested != tt.want || len(events) != tt.events {
				t.Errorf("requested %q, want %q; %d Events, want %d: %q", s.Requested, tt.want, len(events), tt.events, events)
			}
			for _, event := range events {
				if !strings.HasPrefix(event, "api Warning "+contract.EventRequestInvalid) || strings.ContainsRune(event, '\x1b') ||
					strings.Contains(event, long) {
					t.Error(event)
				}
			}
		})
	}
}

func TestNoOperatorResourceIsNoRequest(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod)
	(&Controller{}).readRequest(s, &serverState{requested: "r1"})
	if s.Requested != "" {
		t.Errorf("requested %q", s.Requested)
	}
}
