package kmsplugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	kmsapi "k8s.io/kms/apis/v2"
)

// Call names a remote procedure that the plugin serves.
type Call string

// The calls that are counted, and that a fault can name.
const (
	CallStatus  Call = "Status"
	CallEncrypt Call = "Encrypt"
	CallDecrypt Call = "Decrypt"
	// CallHealth is Check of grpc.health.v1.
	CallHealth Call = "Health"
)

// allCalls returns every call, in the order in which they are shown.
func allCalls() []Call {
	return []Call{CallStatus, CallEncrypt, CallDecrypt, CallHealth}
}

// callOf returns the call behind a gRPC method, and "" for one that is neither
// counted nor subject to faults.
func callOf(fullMethod string) Call {
	switch fullMethod {
	case kmsapi.KeyManagementService_Status_FullMethodName:
		return CallStatus
	case kmsapi.KeyManagementService_Encrypt_FullMethodName:
		return CallEncrypt
	case kmsapi.KeyManagementService_Decrypt_FullMethodName:
		return CallDecrypt
	case healthpb.Health_Check_FullMethodName:
		return CallHealth
	}
	return ""
}

// parseCalls reads calls as a user writes them: separated by spaces or commas,
// in any case, "all" for all.
func parseCalls(text string) ([]Call, error) {
	var calls []Call
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		if strings.EqualFold(word, "all") {
			return allCalls(), nil
		}
		found := false
		for _, call := range allCalls() {
			if strings.EqualFold(word, string(call)) {
				calls, found = append(calls, call), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no call %q: want some of %v, or all", word, allCalls())
		}
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("no call named: want some of %v, or all", allCalls())
	}
	return calls, nil
}

// CallStats is how often a call was received. First and Latest are zero, and
// omitted from the JSON, until there was one.
type CallStats struct {
	Count  int64     `json:"count"`
	First  time.Time `json:"first,omitzero"`
	Latest time.Time `json:"latest,omitzero"`
}

// ConnectionStats is how many connections were accepted, and how many of
// them are open now.
type ConnectionStats struct {
	Accepted int64 `json:"accepted"`
	Open     int64 `json:"open"`
}

// counters counts what arrives. It is kept when a crash ends the gRPC servers.
type counters struct {
	mu          sync.Mutex
	calls       map[Call]CallStats
	connections ConnectionStats
	// changed is closed, and replaced, when a call is counted.
	changed chan struct{}
}

func newCounters() *counters {
	return &counters{calls: map[Call]CallStats{}, changed: make(chan struct{})}
}

func (c *counters) record(call Call, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.calls[call]
	if stats.Count == 0 {
		stats.First = now
	}
	stats.Count++
	stats.Latest = now
	c.calls[call] = stats
	close(c.changed)
	c.changed = make(chan struct{})
}

// connection counts a connection that opened (+1) or closed (-1).
func (c *counters) connection(delta int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connections.Open += delta
	if delta > 0 {
		c.connections.Accepted += delta
	}
}

// reset resets all but the number of open connections, which is a state.
func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = map[Call]CallStats{}
	c.connections.Accepted = 0
}

func (c *counters) snapshot() (map[Call]CallStats, ConnectionStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := make(map[Call]CallStats, len(allCalls()))
	for _, call := range allCalls() {
		calls[call] = c.calls[call]
	}
	return calls, c.connections
}

func (c *counters) wait(ctx context.Context, call Call, n int64) error {
	for {
		c.mu.Lock()
		count, changed := c.calls[call].Count, c.changed
		c.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d %s calls, got %d: %w", n, call, count, ctx.Err())
		}
	}
}
