package publish

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// increase() does not see a counter's first value, so the counter must start at 0: the next success may be minutes
// later.
func TestSuccessesAreCountedFromZero(t *testing.T) {
	_, p := reportTo(t, fails(http.StatusServiceUnavailable), waitLimit)
	want := contract.MetricWrites.Name + `{result="success"} 0`
	await(t, want, func() bool { return strings.Contains(string(p.metrics.Text()), want+"\n") })
}

func TestWithoutANodeNameNothingIsSentAndThatIsShown(t *testing.T) {
	lines := logLines(t)
	s := newServer(t)
	p := runAs(t, credentialFiles(t, s), func(c *Config) { c.Node = "" })
	p.offer("1")
	p.waitFor(t, NoNodeName, 2)
	const want = "KMS_HEALTH_NODE"
	text, logged := p.awaitError(t), strings.Join(lines(), "\n")
	if !strings.Contains(text, want) || strings.Count(logged, want) != 1 || len(s.requests) != 0 {
		t.Errorf("%q, %d requests, logged %q", text, len(s.requests), logged)
	}
}

func TestEachWriteIsLoggedAtLevelTwo(t *testing.T) {
	for name, tt := range map[string]struct {
		level klog.Level
		want  int
	}{
		"off":        {1, 0},
		"each write": {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			lines := logLines(t) // also restores the level
			var level klog.Level
			must(t, level.Set(fmt.Sprint(int(tt.level))))
			_, p := reportTo(t, nil, waitLimit)
			p.waitFor(t, Success, 1)
			p.offer("1")
			p.waitFor(t, Success, 2)
			await(t, "the lines", func() bool { return strings.Count(strings.Join(lines(), "\n"), `"Write ended"`) >= tt.want })
			if got := strings.Count(strings.Join(lines(), "\n"), `"Write ended"`); got != tt.want {
				t.Errorf("got %d lines, want %d", got, tt.want)
			}
		})
	}
}
