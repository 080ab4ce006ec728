package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// etcd is the one of a control plane, asked past the API server.
type etcd struct {
	pid    int
	url    string
	key    string // of the object that is written
	client http.Client
}

// newEtcd finds where a process of etcd listens.
func newEtcd(pid int, key string) (*etcd, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if url, ok := strings.CutPrefix(arg, "--listen-client-urls="); ok {
			return &etcd{pid: pid, url: url, key: key, client: http.Client{Timeout: patience, Transport: &http.Transport{}}}, nil
		}
	}
	return nil, fmt.Errorf("process %d does not say where it listens", pid)
}

func (e *etcd) close() { e.client.CloseIdleConnections() }

// call asks etcd's gRPC gateway.
func (e *etcd) call(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// stored is what etcd has of the object.
type stored struct {
	revision int64 // of all of etcd
	version  int64 // how often the object was written
	bytes    int   // the object's
}

func (e *etcd) stored(ctx context.Context) (stored, error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		KVs []struct {
			Version int64  `json:"version,string"`
			Value   []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := e.call(ctx, "/v3/kv/range", map[string][]byte{"key": []byte(e.key)}, &answer); err != nil {
		return stored{}, err
	}
	if len(answer.KVs) != 1 {
		return stored{}, fmt.Errorf("etcd has no %s", e.key)
	}
	return stored{answer.Header.Revision, answer.KVs[0].Version, len(answer.KVs[0].Value)}, nil
}

// compact forgets all revisions before one, and returns when that is done.
func (e *etcd) compact(ctx context.Context, revision int64) error {
	var nothing struct{}
	return e.call(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true}, &nothing)
}

// The series of etcd that are looked at.
const (
	etcdWAL     = "etcd_disk_wal_write_bytes_total"
	etcdSize    = "etcd_mvcc_db_total_size_in_bytes"
	etcdInUse   = "etcd_mvcc_db_total_size_in_use_in_bytes"
	etcdSent    = "etcd_network_client_grpc_sent_bytes_total"
	etcdCommits = "etcd_disk_backend_commit_duration_seconds_count"
)

// etcdReading is what etcd has done so far.
type etcdReading struct {
	stored
	wal, file, sent float64 // bytes to its log, to its database's file, to its clients
	size, inUse     float64 // bytes of its database
	commits         float64
	cpu             time.Duration
}

func (e *etcd) read(ctx context.Context) (r etcdReading, err error) {
	scraper := newScraper(strings.TrimPrefix(e.url, "http://"))
	defer scraper.close()
	m, err := scraper.scrape(ctx)
	if err != nil {
		return r, err
	}
	for _, series := range []string{etcdWAL, etcdSize, etcdInUse, etcdSent, etcdCommits} {
		if _, has := m[series]; !has {
			return r, fmt.Errorf("etcd does not tell %s", series)
		}
	}
	r = etcdReading{wal: m[etcdWAL], sent: m[etcdSent], size: m[etcdSize], inUse: m[etcdInUse], commits: m[etcdCommits]}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", e.pid))
	if err != nil {
		return r, err
	}
	written, err := parseIO(string(text))
	if err != nil {
		return r, err
	}
	// What is neither sent nor of the log is of the file. Its other output is a few
	// lines, and the answers to our questions.
	r.file = float64(written) - r.wal - r.sent
	if r.stored, err = e.stored(ctx); err != nil {
		return r, err
	}
	r.cpu, err = cpuTime(e.pid)
	return r, err
}

// parseIO reads wchar of /proc/<pid>/io, proc_pid_io(5): the bytes that were given
// to write(2) and its like, for files and sockets.
func parseIO(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "wchar:"); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("there is no wchar in %q", text)
}
