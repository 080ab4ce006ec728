package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/kms-health/kms-health/test/controlplane"
)

// The series that are looked at. They are compared as they are printed, which
// the text format leaves no choice in: labels are sorted.
const (
	goroutines    = "go_goroutines"
	heap          = "go_memstats_heap_alloc_bytes"
	reloads       = `kms_health_reporter_config_reloads_total{result="applied"}`
	writes        = `kms_health_reporter_writes_total{form="Condition",result="success"}`
	healthyProbes = `kms_health_reporter_probes_total{key_id="1",status="healthy"}`
)

// scraper reads the metrics of one process over one kept connection, as
// Prometheus does.
type scraper struct {
	url    string
	token  string // none if empty
	client http.Client
}

func newScraper(address string) *scraper {
	return &scraper{url: "http://" + address + "/metrics", client: http.Client{Timeout: patience, Transport: &http.Transport{}}}
}

// newSecureScraper is for metrics that are told by TLS, and to some only.
func newSecureScraper(address string, ca *controlplane.CA, token string) *scraper {
	config := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	return &scraper{"https://" + address + "/metrics", token, http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config}}}
}

func (s *scraper) close() { s.client.CloseIdleConnections() }

func (s *scraper) scrape(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", s.url, answer.Status)
	}
	return parseMetrics(answer.Body)
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
