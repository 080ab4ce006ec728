package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	size amount = "bytes of its database's file"
	sent amount = "bytes to etcd's clients"
)

// etcdSeries are those of etcd that are read.
var etcdSeries = map[amount]string{
	wal:     "etcd_disk_wal_write_bytes_total",
	size:    "etcd_mvcc_db_total_size_in_bytes",
	inUse:   "etcd_mvcc_db_total_size_in_use_in_bytes",
	sent:    "etcd_network_client_grpc_sent_bytes_total",
	commits: "etcd_disk_backend_commit_duration_seconds_count",
}

// etcd is the one of a control plane, asked past the API server.
type etcd struct {
	pid     int
	url     string
	key     string // of the object that is written
	metrics *scraper
}

// newEtcd finds where a process of etcd listens.
func newEtcd(t testing.TB, pid int, key string) *etcd {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if url, ok := strings.CutPrefix(arg, "--listen-client-urls="); ok {
			return &etcd{pid, url, key, newScraper(t, strings.TrimPrefix(url, "http://"), nil, "")}
		}
	}
	t.Fatalf("the arguments of process %d have no address", pid)
	return nil
}

// call asks etcd's gRPC gateway.
func (e *etcd) call(t testing.TB, path string, question, answer any) {
	t.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.metrics.client.Post(e.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, answer)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v: %s", path, response.Status, err, text)
	}
}

// stored returns what etcd has of the object: its revision and how often the object was
// written, and the bytes of it.
func (e *etcd) stored(t testing.TB) (counts amounts, bytes int) {
	t.Helper()
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		KVs []struct {
			Version int64  `json:"version,string"`
			Value   []byte `json:"value"`
		} `json:"kvs"`
	}
	e.call(t, "/v3/kv/range", map[string][]byte{"key": []byte(e.key)}, &answer)
	if len(answer.KVs) != 1 {
		t.Fatalf("etcd has no %s", e.key)
	}
	return amounts{revisions: float64(answer.Header.Revision), versions: float64(answer.KVs[0].Version)}, len(answer.KVs[0].Value)
}

// compact forgets all revisions before one, and returns when that is done.
func (e *etcd) compact(t testing.TB, revision int64) {
	t.Helper()
	var nothing struct{}
	e.call(t, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true}, &nothing)
}

// read returns what etcd has done so far.
func (e *etcd) read(t testing.TB) amounts {
	t.Helper()
	metrics := e.metrics.scrape(t)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", e.pid))
	if err != nil {
		t.Fatal(err)
	}
	written, err := parseIO(string(text))
	if err != nil {
		t.Fatal(err)
	}
	now, _ := e.stored(t)
	for what, series := range etcdSeries {
		value, has := metrics[series]
		if !has {
			t.Fatalf("etcd has no metric %s", series)
		}
		now[what] = value
	}
	// What is neither sent nor of the log is of the file. Its other output is a few
	// lines, and the answers to our questions.
	now[file] = float64(written) - now[wal] - now[sent]
	now[etcdCPU] = cpuTime(t, e.pid).Seconds()
	return now
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

func TestBytesWrittenAreReadOfAProcess(t *testing.T) {
	n, err := parseIO("rchar: 1\nwchar: 4711\nsyscr: 2\nwrite_bytes: 3\n")
	if err != nil || n != 4711 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := parseIO("rchar: 1\n"); err == nil {
		t.Error("there is none, and no error")
	}
}

// writeResult returns the result that a reporter's series counts writes of, if it does.
func writeResult(series string) (result string, ok bool) {
	labels, ok := strings.CutPrefix(series, "kms_health_reporter_writes_total{")
	_, result, _ = strings.Cut(labels, `result="`)
	result, _, _ = strings.Cut(result, `"`)
	return result, ok
}
