package logging

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Bounds of a queue. Entries being written count apart from those that wait, so at
// most twice as much is held in memory.
const (
	maxEntries = 1024
	maxBytes   = 256 << 10
)

// Queue is an io.Writer that takes one log entry per Write, and writes it as one line
// to another writer in a goroutine of its own. Its methods may be called
// concurrently.
type Queue struct {
	out io.Writer

	mu      sync.Mutex
	waiting [][]byte
	bytes   int // of waiting
	dropped int // entries that were not written, and not reported yet
	idle    chan struct{}
}

// NewQueue returns a Queue that writes to out. It needs no closing: its goroutine
// ends when everything is written.
func NewQueue(out io.Writer) *Queue {
	q := &Queue{out: out, idle: make(chan struct{})}
	close(q.idle)
	return q
}

// Write adds an entry. It never blocks and never fails: an entry for which there is
// no room is dropped and counted.
func (q *Queue) Write(entry []byte) (int, error) {
	line := escapeLine(entry)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == maxEntries || q.bytes+len(line) > maxBytes {
		q.dropped++
		return len(entry), nil
	}
	q.waiting = append(q.waiting, line)
	q.bytes += len(line)
	select {
	case <-q.idle:
		q.idle = make(chan struct{})
		go q.write(q.idle)
	default: // it is being written already
	}
	return len(entry), nil
}

// Flush waits until everything is written, for at most the given time, and reports
// whether it is.
func (q *Queue) Flush(bound time.Duration) bool {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}

// write writes until nothing waits. What was dropped came after what was waiting
// then, so its number stands in the right place at the end of a batch.
func (q *Queue) write(idle chan struct{}) {
	for {
		q.mu.Lock()
		batch, dropped := q.waiting, q.dropped
		q.waiting, q.bytes, q.dropped = nil, 0, 0
		if len(batch) == 0 {
			q.dropped = dropped // of writes that failed; reported with the next entry
			close(idle)
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		failed := 0
		for _, line := range batch {
			if _, err := q.out.Write(line); err != nil {
				failed++
			}
		}
		if dropped += failed; dropped > 0 {
			if _, err := fmt.Fprintf(q.out, "%s\"Dropped log lines: they were not read or could not be written\" count=%d\n", header(time.Now()), dropped); err == nil {
				dropped = 0
			}
		}
		q.mu.Lock()
		q.dropped += dropped
		q.mu.Unlock()
	}
}
