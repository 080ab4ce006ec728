package publish

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
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
	p.report(t, "1", NoNodeName, 2)
	const want = "KMS_HEALTH_NODE"
	text, logged := p.awaitError(t), strings.Join(lines(), "\n")
	if !strings.Contains(text, want) || strings.Count(logged, want) != 1 || len(s.requests) != 0 {
		t.Errorf("%q, %d requests, logged %q", text, len(s.requests), logged)
	}
}

func TestEachWriteIsLoggedAtLevelTwo(t *testing.T) {
	for level, want := range map[string]int{"1": 0, "2": 2} {
		t.Run(level, func(t *testing.T) {
			lines := logLines(t) // also restores the level
			must.Succeed(t, new(klog.Level).Set(level))
			_, p := reportTo(t, nil, waitLimit)
			p.waitFor(t, Success, 1)
			p.report(t, "1", Success, 2)
			await(t, "the lines", func() bool { return strings.Count(strings.Join(lines(), "\n"), `"Write ended"`) == want })
		})
	}
}
