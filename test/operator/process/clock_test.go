//go:build integration

package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// shiftedCluster shows the operator the cluster at another time: that is what an
// operator reads while its own clock is wrong.
type shiftedCluster struct {
	*httptest.Server
	ca []byte
	// date is how far the Date headers are ahead; content, the times in objects.
	date, content atomic.Int64
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

func shift(content []byte, by time.Duration) []byte {
	return timestamp.ReplaceAllFunc(content, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339, string(text))
		if err != nil {
			return text
		}
		return []byte(at.Add(by).UTC().Format(time.RFC3339))
	})
}

func newShiftedCluster(t *testing.T) *shiftedCluster {
	t.Helper()
	s := &shiftedCluster{}
	s.Server, s.ca = fixture.StartProxy(t, func(answer *http.Response) error {
		if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			answer.Header.Set("Date", at.Add(time.Duration(s.date.Load())).UTC().Format(http.TimeFormat))
		}
		answer.Body = &shiftedBody{ReadCloser: answer.Body, lines: bufio.NewReader(answer.Body), by: &s.content}
		return nil
	}, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Accept-Encoding")
			if body, err := io.ReadAll(r.Body); err == nil {
				r.Body = io.NopCloser(bytes.NewReader(shift(body, -time.Duration(s.content.Load()))))
			}
			forward.ServeHTTP(w, r)
		}
	})
	return s
}

// shiftedBody shifts a body line by line: a watch has an event on each.
type shiftedBody struct {
	io.ReadCloser
	lines *bufio.Reader
	by    *atomic.Int64
	rest  []byte
}

func (b *shiftedBody) Read(into []byte) (int, error) {
	if len(b.rest) == 0 {
		line, err := b.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		b.rest = shift(line, time.Duration(b.by.Load()))
	}
	n := copy(into, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Times in objects are by the clocks of the API servers that wrote them, and of nodes; Date is that of the API server
// that answers. No verdict depends on either.
func TestWrongClocksOfAPIServersAreNoVerdict(t *testing.T) {
	for name, by := range map[string]struct{ date, content time.Duration }{
		"the operator's own is an hour behind": {time.Hour, time.Hour},
		"the one that answers is ahead":        {20 * time.Minute, 0},
		"those that write are six hours ahead": {0, 6 * time.Hour},
		"those that write are behind":          {0, -6 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShiftedCluster(t)
			s.date.Store(int64(by.date))
			s.content.Store(int64(by.content))
			op := fixture.NewOperator(t)
			op.CA, op.Server = s.ca, s.URL
			reporters := fixture.StartReporting(t, op, nil, "1s")
			seen := fixture.RecordConditions(t, apiservers.Kube)
			fixture.Never(t, 6*time.Second, func() error {
				if found := append(seen.With("KMSPluginsDegraded True"), seen.With("KMSPluginsDegraded Unknown")...); len(found) > 0 {
					return fmt.Errorf("%s", strings.Join(found, "\n"))
				}
				return nil
			})
			fixture.RemoveTarget(t, op, reporters)
		})
	}
}
