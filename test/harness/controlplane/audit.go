package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// auditPolicy writes one event for each request, when it is answered. The stage RequestReceived would add a second
// event, without the answer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

const auditFenceTimeout = 2 * time.Minute

// AuditFilter picks events.
type AuditFilter func(*auditv1.Event) bool

// AuditEvents returns the events of a user that pass all filters, over all runs of the API server, in the order in
// which it wrote them. An empty user means all users. A request has no event while it is being served, and the event
// may follow the answer. To prove that something did not happen, call AuditFence first.
func (c *ControlPlane) AuditEvents(user string, filters ...AuditFilter) ([]auditv1.Event, error) {
	return ReadAudit(c.auditLog(), user, filters...)
}

// ReadAudit is AuditEvents for any audit log. With a user it is many times faster, since it does not decode the
// events of other users.
func ReadAudit(path, user string, filters ...AuditFilter) ([]auditv1.Event, error) {
	events, _, err := readAudit(path, 0, user, filters)
	return events, err
}

// AuditTail is the audit log from a given time on. It is for callers that read repeatedly: for each user it reads
// each line only once.
type AuditTail struct {
	path string
	from int64
	mu   sync.Mutex
	end  map[string]int64 // the offset up to which the log was read, by user
	read map[string][]auditv1.Event
}

// AuditTail returns the log from now on.
func (c *ControlPlane) AuditTail() (*AuditTail, error) {
	_, end, err := readAudit(c.auditLog(), 0, "of no event", nil)
	return &AuditTail{path: c.auditLog(), from: end, end: map[string]int64{}, read: map[string][]auditv1.Event{}}, err
}

// ByUser is AuditEvents for the tail. The events share memory with the tail: do not change what they point to.
func (a *AuditTail) ByUser(name string, filters ...AuditFilter) ([]auditv1.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	more, end, err := readAudit(a.path, max(a.from, a.end[name]), name, nil)
	if err != nil {
		return nil, err
	}
	a.end[name], a.read[name] = end, append(a.read[name], more...)
	return slices.DeleteFunc(slices.Clone(a.read[name]), func(e auditv1.Event) bool { return !passes(&e, filters) }), nil
}

// readAudit reads events, one JSON object a line, from an offset on. It returns the offset of the next line. It
// ignores an incomplete last line: the server may be writing it, or was killed while it wrote it. A restarted server
// appends to that line, so a line may hold a part of one event and then a whole event. With a user, readAudit skips
// the events of other users.
func readAudit(path string, from int64, user string, filters []AuditFilter) ([]auditv1.Event, int64, error) {
	log, err := readFrom(path, from)
	if err != nil {
		return nil, 0, fmt.Errorf("read the audit log (Options.Audit): %w", err)
	}
	var holding []byte
	if user != "" {
		holding = fmt.Appendf(nil, `"username":%q`, user)
		filters = append(slices.Clone(filters), func(e *auditv1.Event) bool { return e.User.Username == user })
	}
	var events []auditv1.Event
	for line := range bytes.Lines(log[:bytes.LastIndexByte(log, '\n')+1]) {
		from += int64(len(line))
		if !bytes.Contains(line, holding) {
			continue
		}
		var event auditv1.Event
		start := max(0, bytes.LastIndex(line, []byte(`{"kind":"Event"`))) // every event begins so
		if err := json.Unmarshal(line[start:], &event); err != nil {
			return nil, 0, fmt.Errorf("audit log, before byte %d: %w", from, err)
		}
		if passes(&event, filters) {
			events = append(events, event)
		}
	}
	return events, from, nil
}

func passes(event *auditv1.Event, filters []AuditFilter) bool {
	return !slices.ContainsFunc(filters, func(f AuditFilter) bool { return !f(event) })
}

func readFrom(path string, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, offset, math.MaxInt64-offset))
}

// AuditFence sends a request and waits until the log has it. Then the log also has the events of all requests that
// were answered before the call.
func (c *ControlPlane) AuditFence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditFenceTimeout)
	defer cancel()
	before, err := os.Stat(c.auditLog())
	if err != nil {
		return err
	}
	id := string(uuid.NewUUID())
	made := false
	return wait.Until(ctx, func(ctx context.Context) error {
		if !made { // repeated until answered: a busy API server may exceed the timeout
			if err := get(ctx, c.adminTLS(), c.URL()+"/version?"+id, c.adminToken); err != nil {
				return fmt.Errorf("make a request to find in the audit log: %w", err)
			}
			made = true
		}
		log, err := readFrom(c.auditLog(), before.Size())
		if err == nil && !bytes.Contains(log, []byte(id)) {
			err = fmt.Errorf("request %s is not in the audit log", id)
		}
		return err
	})
}
