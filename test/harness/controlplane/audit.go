package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// One event for each request, when it is answered: RequestReceived would be a
// second one, without the answer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

const (
	auditFenceTimeout = 15 * time.Second
	// k8s.io/apiserver/pkg/apis/audit.HeaderAuditID
	auditIDHeader = "Audit-ID"
)

// AuditFilter picks events.
type AuditFilter func(*auditv1.Event) bool

// ByUser picks the requests of one user, as which the request was authenticated:
// "admin", a certificate's common name, or ServiceAccountUser's result.
func ByUser(name string) AuditFilter {
	return func(event *auditv1.Event) bool { return event.User.Username == name }
}

// AuditEvents returns the events that pass all filters, in the order in which
// the API server wrote them, over all its runs. A request that is still being
// served has none yet, and the event of one that was just answered may follow
// its answer: to prove that something did not happen, call AuditFence first.
func (c *ControlPlane) AuditEvents(filters ...AuditFilter) ([]auditv1.Event, error) {
	events, _, err := readAudit(c.AuditLog(), 0, nil, filters...)
	return events, err
}

// AuditEventsByUser is AuditEvents with ByUser, and many times faster on a long
// log: of other users' events nothing is decoded.
func (c *ControlPlane) AuditEventsByUser(name string, filters ...AuditFilter) ([]auditv1.Event, error) {
	return (&AuditTail{path: c.AuditLog()}).ByUser(name, filters...)
}

// AuditTail is the audit log from a given time. It is for callers that read again and
// again: what was read for a user is not read for the same user again.
type AuditTail struct {
	path string
	from int64
	mu   sync.Mutex
	read map[string]auditRead // by user
}

// auditRead is what was read of the audit log for a user.
type auditRead struct {
	offset int64
	events []auditv1.Event
}

// AuditTail returns the log from now on.
func (c *ControlPlane) AuditTail() (*AuditTail, error) {
	_, end, err := readAudit(c.AuditLog(), 0, []byte("no event holds this"))
	return &AuditTail{path: c.AuditLog(), from: end, read: map[string]auditRead{}}, err
}

// ByUser is AuditEventsByUser of the tail. What an event points to is for reading
// only.
func (a *AuditTail) ByUser(name string, filters ...AuditFilter) ([]auditv1.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	read, ok := a.read[name]
	if !ok {
		read.offset = a.from
	}
	more, end, err := readAudit(a.path, read.offset, fmt.Appendf(nil, `"username":%q`, name), ByUser(name))
	if err != nil {
		return nil, err
	}
	read.offset, read.events = end, append(read.events, more...)
	if a.read != nil {
		a.read[name] = read
	}
	return slices.DeleteFunc(slices.Clone(read.events), func(e auditv1.Event) bool { return !passes(&e, filters) }), nil
}

// readAudit reads events from an offset on, one JSON object a line, and returns where the next
// line begins. The last line counts only when it is complete: the server may be writing it, or was
// killed over it. A restarted server goes on where the killed one stopped, so a line may hold the
// stump of one event and the whole of the next. Lines without the bytes in holding are passed over.
func readAudit(path string, from int64, holding []byte, filters ...AuditFilter) ([]auditv1.Event, int64, error) {
	log, err := readFrom(path, from)
	if err != nil {
		return nil, 0, fmt.Errorf("read the audit log (Options.Audit): %w", err)
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
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// AuditFence makes a request of its own and waits until the log holds it. Events
// of requests that were answered before the call are in the log then.
func (c *ControlPlane) AuditFence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditFenceTimeout)
	defer cancel()
	before, err := os.Stat(c.AuditLog())
	if err != nil {
		return fmt.Errorf("look at the audit log: %w", err)
	}
	// The server adopts this as the event's id.
	id := uuid.NewUUID()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/version", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.adminToken)
	request.Header.Set(auditIDHeader, string(id))
	response, err := c.adminClient().Do(request)
	if err != nil {
		return fmt.Errorf("make a request to find in the audit log: %w", err)
	}
	response.Body.Close()
	recorded := fmt.Appendf(nil, `"auditID":%q`, id)
	return wait.Until(ctx, func(context.Context) error {
		log, err := readFrom(c.AuditLog(), before.Size())
		switch {
		case err != nil:
			return wait.Final(err)
		case !bytes.Contains(log, recorded):
			return fmt.Errorf("request %s is not in the audit log", id)
		}
		return nil
	})
}
