package publish

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Without the zero, a counter's first success would be no increase, and the next may come minutes later.
func TestSuccessesAreCountedFromZero(t *testing.T) {
	s := newServer(t)
	s.answers(fails(http.StatusServiceUnavailable))
	p := run(t, credentialFiles(t, s), waitLimit)
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
