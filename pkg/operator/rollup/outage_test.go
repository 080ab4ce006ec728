package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Outages of any length end alike: reporters have their time to come back.
func TestSilenceDuringAnOutageIsNobodys(t *testing.T) {
	for _, lasts := range []time.Duration{5 * time.Second, 19 * time.Second, 25 * time.Second, 29900 * time.Millisecond, time.Minute, time.Hour} {
		for _, speaks := range []bool{true, false} {
			name := lasts.String() + ", and they speak again"
			if !speaks {
				name = lasts.String() + ", and they stay silent"
			}
			t.Run(name, func(t *testing.T) {
				withFixture(t, func(s *fixture) {
					stale := s.begin()
					s.until(stale - 3*time.Second)
					s.away()
					back := time.Since(s.start) + lasts
					s.until(back)
					s.wants(1, "while the API server is away")
					s.listing(cluster, nil)
					if speaks {
						s.until(back + 5*time.Second)
						s.report("a", "b")
						s.show()
						s.until(back + 30*time.Second)
						s.wants(1, "when they speak again")
						return
					}
					s.until(back + afterOutage - 1)
					s.wants(1, "before they could speak again")
					s.until(back + afterOutage + 2*time.Second) // the watch takes its time to come back
					if w := s.wants(2, "when they could have"); degraded(w.apply) != "Unknown ReporterStale" {
						t.Errorf("written: %s", w.body)
					}
				})
			})
		}
	}
}

// What is ill is told, though others are silent.
func TestAnIllPluginIsToldDuringAnOutage(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		s.until(10 * time.Second)
		s.reports["a"][0].Status = health.Error
		s.failing(errAway)
		s.show()
		s.settled()
		s.away()
		s.until(20 * time.Second)
		s.failing(nil)
		s.until(26 * time.Second)
		all := s.written()
		if last := all[len(all)-1]; degraded(last.apply) != "True PluginError" || last.at < 20*time.Second {
			t.Errorf("written: %+v", last)
		}
		if v, _ := s.Verdict("api"); v.Result.Condition(rollup.Degraded).Status != operatorcr.True {
			t.Errorf("the verdict is %+v", v)
		}
	})
}
