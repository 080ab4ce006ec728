package controlplane

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// A single question to a server that does not answer must not use up the
// whole wait: a starting server accepts connections before it serves them.
const pollCallTimeout = 2 * time.Second

// getOK gets url once and requires 200.
func getOK(ctx context.Context, client *http.Client, url, token string) error {
	_, err := get(ctx, client, url, token)
	return err
}

// get gets url once, requires 200, and returns at most 64 KiB of the response.
func get(ctx context.Context, client *http.Client, url, token string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pollCallTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status + " from " + url + ": " + failedChecks(string(body)))
	}
	return body, nil
}

// failedChecks cuts the answer of /livez or /readyz to the checks that failed.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) == 0 {
		return strings.TrimSpace(body)
	}
	return strings.Join(failed, ", ")
}
