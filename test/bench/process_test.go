package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The series that are read. They are compared as text, because the format sorts labels.
const (
	goroutines    = "go_goroutines"
	heap          = "go_memstats_heap_alloc_bytes"
	reloaded      = `kms_health_reporter_config_reloads_total{result="applied"}`
	writes        = `kms_health_reporter_writes_total{result="success"}`
	healthyProbes = `kms_health_reporter_probes_total{key_id="1",status="healthy"}`
)

// scraper keeps its connections, as Prometheus does.
var scraper = http.Client{
	Timeout:   waitLimit,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// scrape reads metrics in Prometheus's text format without timestamps, as client_golang writes it.
func (f *fixture) scrape(url, token string) map[string]float64 {
	request, err := http.NewRequestWithContext(running, http.MethodGet, url+"/metrics", nil)
	f.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := scraper.Do(request)
	f.must(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		f.Fatalf("%s: %s", url, answer.Status)
	}
	found := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		line := lines.Text()
		if i := strings.LastIndexByte(line, ' '); i >= 0 && line[0] != '#' {
			found[line[:i]], err = strconv.ParseFloat(line[i+1:], 64)
			f.must(err)
		}
	}
	f.must(lines.Err())
	return found
}

// process is a running program.
type process struct {
	*fixture
	pid   int
	log   string // path of its output
	began time.Time
	end   func()
}

// cpuTime returns the CPU time of all threads of the process, to the nanosecond. It misses threads that have ended.
// Go's threads do not end unless a goroutine is locked to one.
func (p *process) cpuTime() (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
	p.must(err)
	for _, path := range threads {
		text, err := os.ReadFile(path)
		var ran time.Duration
		if err == nil { // otherwise the thread has just ended
			_, err = fmt.Sscan(string(text), &ran)
			p.must(err)
		}
		sum += ran
	}
	if sum == 0 {
		p.Fatalf("process %d: /proc has no CPU time", p.pid)
	}
	return sum
}

// memory is the resident memory of a process, in bytes.
type memory struct {
	all  int64 // VmRSS, including touched pages of the binary
	anon int64 // RssAnon, without the binary
}

// memory reads /proc/<pid>/status, proc_pid_status(5), where kB are 1,024 bytes.
func (p *process) memory() (m memory) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	p.must(err)
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d", &m.all) // the other lines fail
		_, _ = fmt.Sscanf(line, "RssAnon: %d", &m.anon)
	}
	if m.all == 0 || m.anon == 0 {
		p.Fatalf("process %d has no memory", p.pid)
	}
	return memory{m.all << 10, m.anon << 10}
}

// diskWrites is what a process caused to be written to disk, in bytes: write_bytes of
// /proc/<pid>/io, proc_pid_io(5).
func diskWrites(pid int) (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "write_bytes: %d", &bytes) // the other lines fail
	}
	if err == nil && bytes == 0 {
		err = fmt.Errorf("process %d has written nothing to disk: TMPDIR may be in memory (tmpfs)", pid)
	}
	return bytes, err
}

// descriptors counts the open file descriptors of the process.
func (p *process) descriptors() int {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	p.must(err)
	return len(open)
}

// until polls until the check succeeds.
func (f *fixture) until(what string, every time.Duration, check func() bool) {
	err := wait.PollUntilContextTimeout(running, every, 2*time.Minute, true, // a start on a busy machine
		func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		f.Fatalf("wait for %s: %v", what, err)
	}
}
