package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// The series that are read. They are compared as they are printed, which the text
// format leaves no choice in: labels are sorted.
const (
	goroutines    = "go_goroutines"
	heap          = "go_memstats_heap_alloc_bytes"
	reloaded      = `kms_health_reporter_config_reloads_total{result="applied"}`
	writes        = `kms_health_reporter_writes_total{result="success"}`
	healthyProbes = `kms_health_reporter_probes_total{key_id="1",status="healthy"}`
)

// scraper reads the metrics of one process over one kept connection, as
// Prometheus does.
type scraper struct {
	url    string
	token  string // none if empty
	client http.Client
}

// newScraper scrapes without TLS where there is no CA.
func newScraper(t testing.TB, address string, ca *controlplane.CA, token string) *scraper {
	s := &scraper{url: "http://" + address + "/metrics", token: token}
	transport := &http.Transport{}
	if ca != nil {
		s.url = "https://" + address + "/metrics"
		transport.TLSClientConfig = &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	}
	s.client = http.Client{Timeout: waitLimit, Transport: transport}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *scraper) scrape(t testing.TB) map[string]float64 {
	t.Helper()
	answer, err := get(running, &s.client, s.url, s.token)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	found, err := parseMetrics(answer)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// get wants 200.
func get(ctx context.Context, client *http.Client, url, token string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return answer.Body, nil
}

// parseMetrics reads Prometheus's text format, as client_golang writes it: no
// timestamps. All of it is read, so that the connection is kept.
func parseMetrics(text io.Reader) (map[string]float64, error) {
	found := map[string]float64{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		found[line[:i]] = value
	}
	return found, lines.Err()
}
