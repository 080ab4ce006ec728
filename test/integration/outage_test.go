//go:build integration

package integration

import (
	"context"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/must"
)

// startAgain starts the API server unless it runs. Cleanups call it too.
func startAgain() (err error) {
	if cluster.APIServerPID() == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		err = cluster.StartAPIServer(ctx)
	}
	return err
}

func TestReporterStartsAndProbesWithoutAnAPIServer(t *testing.T) {
	r := newReporter(t)
	one := r.plugin("1")
	r.configure(toKube, "1:Write")
	must.Succeed(t, cluster.StopAPIServer(soon(t)))
	t.Cleanup(func() { must.Succeed(t, startAgain()) })
	began := time.Now()
	r.start()
	probes(t, one, 3)
	eventually(t, "the local view is healthy", func() bool { _, text := r.get("/kms-providers"); return text == "ok" })
	r.writes("unreachable")
	must.Succeed(t, startAgain())
	back := time.Now()
	r.freshCondition("1=healthy")
	t.Logf("fresh %s after the API server was live", time.Since(back).Round(time.Millisecond))
	most := 1 + int(time.Since(began)/time.Minute) // each cause once a minute
	if n := r.count(`result="unreachable"`); n < 1 || n > most {
		t.Errorf("logged %d times, want 1 to %d", n, most)
	}
}

func TestOutageDoesNotAffectProbingAndIsFollowedByAReportAtOnce(t *testing.T) {
	for _, c := range []struct {
		result     string
		begin, end func() error
	}{
		{"unreachable", cluster.KillAPIServer, startAgain},
		{"timeout", cluster.FreezeAPIServer, cluster.ThawAPIServer},
	} {
		t.Run(c.result, func(t *testing.T) {
			r, one := reporting(t)
			must.Succeed(t, c.begin())
			t.Cleanup(func() { must.Succeed(t, c.end()) })
			r.logged("Failed to write reports", `result="`+c.result+`"`)
			must.Succeed(t, one.Do("unhealthy", "sealed", "meanwhile"))
			probes(t, one, 4)
			r.writes(c.result)
			must.Succeed(t, c.end())
			r.freshCondition("1=unhealthy") // the latest report, not the one of the failed write
			r.logged("Writing reports works")
		})
	}
}
