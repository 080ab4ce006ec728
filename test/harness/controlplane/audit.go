package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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

var errNoAudit = errors.New("no audit log: start the control plane with Options.Audit")

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
	if !c.options.Audit {
		return nil, errNoAudit
	}
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return parseAudit(log, nil, filters...)
}

// AuditEventsByUser is AuditEvents with ByUser, and many times faster on a long
// log: of other users' events nothing is decoded.
func (c *ControlPlane) AuditEventsByUser(name string, filters ...AuditFilter) ([]auditv1.Event, error) {
	if !c.options.Audit {
		return nil, errNoAudit
	}
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
	if !c.options.Audit {
		return nil, errNoAudit
	}
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return &AuditTail{path: c.AuditLog(), from: int64(bytes.LastIndexByte(log, '\n') + 1)}, nil
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
	log, err := readFrom(a.path, read.offset)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	log = log[:bytes.LastIndexByte(log, '\n')+1]
	more, err := parseAudit(log, fmt.Appendf(nil, `"username":%q`, name), ByUser(name))
	if err != nil {
		return nil, fmt.Errorf("from byte %d on: %w", read.offset, err)
	}
	read.offset += int64(len(log))
	read.events = append(read.events, more...)
	if a.read == nil {
		a.read = map[string]auditRead{}
	}
	a.read[name] = read
	var events []auditv1.Event
	for i := range read.events {
		if passes(&read.events[i], filters) {
			events = append(events, read.events[i])
		}
	}
	return events, nil
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

// parseAudit reads events, one JSON object a line. The last line counts only
// when it is complete: the server may be writing it, or was killed over it. A
// restarted server goes on where the killed one stopped, so a line may hold the
// stump of one event and the whole of the next; the stump's request was never
// recorded, and what follows it is saved. Lines without the bytes in holding are
// passed over.
func parseAudit(log, holding []byte, filters ...AuditFilter) ([]auditv1.Event, error) {
	var events []auditv1.Event
	for number := 1; ; number++ {
		line, rest, complete := bytes.Cut(log, []byte("\n"))
		if !complete {
			return events, nil
		}
		log = rest
		if !bytes.Contains(line, holding) {
			continue
		}
		event, err := parseAuditLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the audit log: %w", number, err)
		}
		if event != nil && passes(event, filters) {
			events = append(events, *event)
		}
	}
}

func parseAuditLine(line []byte) (*auditv1.Event, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var event auditv1.Event
	err := json.Unmarshal(line, &event)
	if err == nil {
		return &event, nil
	}
	// Every event starts with its kind.
	if start := bytes.LastIndex(line, []byte(`{"kind":"Event"`)); start > 0 {
		event = auditv1.Event{}
		if json.Unmarshal(line[start:], &event) == nil {
			return &event, nil
		}
	}
	return nil, err
}

func passes(event *auditv1.Event, filters []AuditFilter) bool {
	for _, filter := range filters {
		if !filter(event) {
			return false
		}
	}
	return true
}

// AuditFence makes a request of its own and waits until the log holds it. Events
// of requests that were answered before the call are in the log then.
func (c *ControlPlane) AuditFence(ctx context.Context) error {
	if !c.options.Audit {
		return errNoAudit
	}
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
