//go:build integration

package process

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// All that the operator does with the API server goes on in an outage: watches, the
// lease, and reviews of who reads its metrics, which are read every few seconds.
func TestOutageIsLoggedOnceForEachKindOfRequest(t *testing.T) {
	proxy, err := controlplane.NewProxy(fixture.Cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	address := fixture.FreeAddress(t)
	op := fixture.NewOperator(t, "--leader-elect=true", "--metrics-bind-address", address)
	op.Configure(fixture.AllTargets)
	op.Start(proxy.URL())
	op.AwaitLogged("the lease is held", "Successfully acquired lease", 1)
	scraper := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	tokens := 0
	scrape := func() (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		tokens++
		request.Header.Set("Authorization", fmt.Sprintf("Bearer unknown-%d", tokens)) // each is reviewed
		response, err := scraper.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	answered := func(code int) func() error {
		return func() error {
			got, err := scrape()
			if err == nil && got != code {
				err = fmt.Errorf("%d, want %d", got, code)
			}
			return err
		}
	}
	fixture.Eventually(t, "/metrics is served", answered(http.StatusUnauthorized))
	time.Sleep(5 * time.Second) // the first delivery
	before := len(lines(op))

	if err := proxy.SetMode(controlplane.Refuse); err != nil {
		t.Fatal(err)
	}
	proxy.ResetConnections()
	// One that starts meanwhile has nothing but failed lists.
	late := fixture.NewOperator(t)
	late.Configure(fixture.AllTargets)
	late.Start(proxy.URL())
	for range 6 { // the lease is renewed every 26 s
		time.Sleep(5 * time.Second)
		if err := answered(http.StatusServiceUnavailable)(); err != nil {
			t.Errorf("/metrics in an outage: %v", err)
		}
	}
	outage := lines(op)[before:]
	// One for the watches, the reviews, and for each of three targets; one for each try to renew
	// the lease.
	if most := 7; len(outage) > most {
		t.Errorf("%d lines in 30 s without an API server, must be at most %d; the first:\n%s", len(outage), most, strings.Join(outage[:most], "\n"))
	}
	// With its start, of some 12 lines.
	if all := lines(late); len(all) > 20 {
		t.Errorf("%d lines of an operator that finds no API server, must be at most 20; the last:\n%s", len(all), strings.Join(all[len(all)-6:], "\n"))
	}
	if n := count(outage, "to review who reads /metrics"); n != 1 {
		t.Errorf("%d lines about reviews, want 1", n)
	}
	if n := count(outage, "lease lock"); n < 1 || n > 2 {
		t.Errorf("%d lines about the lease in 30 s, want 1 or 2", n)
	}
	if err := proxy.SetMode(controlplane.Pass); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "/metrics is reviewed again", answered(http.StatusUnauthorized))
}

// lines are those of the operator's log.
func lines(op *fixture.Operator) []string { return strings.Split(strings.TrimSpace(op.Logged()), "\n") }

func count(lines []string, text string) int {
	return len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, text) }))
}
