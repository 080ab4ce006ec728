package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	writingSettle = 5 * time.Second
	followers     = 50 // the watchers in the run that has some
	// apiServerCompacts is how often kube-apiserver has etcd compacted
	// (--etcd-compaction-interval). It forgets what was there the time before, so that
	// etcd holds the revisions of one to two of these.
	apiServerCompacts = 5 * time.Minute
)

// amount is what is measured of some time, or what has been so far.
type amount string

const (
	seconds   amount = "seconds"
	requests  amount = "the reporters' requests"
	failed    amount = "of those, failed"
	versions  amount = "writes of the object"
	revisions amount = "revisions of etcd"
	wal       amount = "bytes to etcd's log"
	file      amount = "bytes to its database's file"
	inUse     amount = "bytes in use in its database"
	commits   amount = "commits of it"
	etcdCPU   amount = "seconds of etcd's CPU"
	apiCPU    amount = "seconds of kube-apiserver's CPU"
)

type amounts map[amount]float64

func (a amounts) since(before amounts) amounts {
	grown := amounts{}
	for what, value := range a {
		grown[what] = value - before[what]
	}
	return grown
}

// each is what one of n cost, beyond what every second costs anyway.
func (a amounts) each(n float64, idle amounts) amounts {
	each := amounts{}
	for what, value := range a {
		each[what] = (value - idle[what]*a[seconds]) / n
	}
	return each
}

func (a amounts) cpu() string { return cpuOf(a[apiCPU]) + ", " + cpuOf(a[etcdCPU]) }

func cpuOf(s float64) string { return perCycle(time.Duration(s * float64(time.Second))) }

func TestAWriteIsNotChargedWithWhatTheTimeCostsAnyway(t *testing.T) {
	idle := amounts{revisions: 10, wal: 100, apiCPU: 1}.each(10, nil)
	got := amounts{seconds: 60, requests: 180, revisions: 240, wal: 180_600, apiCPU: 15}.each(180, idle)
	if got[revisions] != 1 || got[wal] != 1000 || got[apiCPU] != 0.05 || got[requests] != 1 {
		t.Errorf("%+v", got)
	}
}

// writing is three reporters that write every second to a kube-apiserver and an etcd
// that have nothing else to do.
type writing struct {
	*fixture
	admin   dynamic.Interface
	etcd    *etcd
	nodes   []*node
	running bool

	idle amounts // of each second, without reporters
	bare int     // bytes of the object without reports
}

// TestWrites measures what their writes cost.
func TestWrites(t *testing.T) {
	f := newFixture(t)
	f.startCluster()
	w := &writing{fixture: f}
	var err error
	w.admin, err = dynamic.NewForConfig(f.cluster.RESTConfig())
	f.must(err)
	f.fill(w.admin, apiservers.Kube)
	w.etcd = newEtcd(f, f.cluster.EtcdPID(), "/registry/"+controlplane.OperatorGroup+"/"+apiservers.Kube.Resource+"/"+controlplane.ClusterObject)
	reporter := f.program("kms-health-reporter")
	for _, name := range nodeNames {
		w.nodes = append(w.nodes, f.newNode(name, reporter, 2))
	}

	f.progress("no writes, for %s", f.writing/2)
	idle := w.measure(f.writing / 2)
	w.idle = idle.each(idle[seconds], nil)
	_, w.bare = w.etcd.stored(f)
	f.add(row{what: "writes: the object without reports, with 100 conditions", measured: fmt.Sprintf("%d bytes", w.bare)})
	f.add(row{what: "  idle, each second: CPU of kube-apiserver, of etcd", measured: w.idle.cpu(), value: fmt.Sprintf("%.2f revisions", w.idle[revisions])})
	condition := w.inForm("Condition")
	event := w.watched(condition)
	w.removeReports()
	w.inForm("HealthReports")
	w.inForm("Both")
	w.compaction()
	w.scale(condition, event)
}

// inForm measures reporters that write in one form.
func (w *writing) inForm(form string) amounts {
	w.Helper()
	w.progress("3 reporters write %s every second, for %s", form, w.plan.writing)
	all := w.reported(form, nil)
	_, size := w.etcd.stored(w)
	if all[versions] < all[seconds]*float64(len(w.nodes))*0.8 {
		w.Fatalf("the object was written %.0f times in %.0f s: this would not measure the work", all[versions], all[seconds])
	}
	each := all.each(all[versions], w.idle)
	perRequest := each[revisions] * all[versions] / all[requests]
	w.add(row{
		what: fmt.Sprintf("writes, %s, %.0f requests (%.0f failed), %.0f changes of the object: revisions for each request",
			form, all[requests], all[failed], all[versions]),
		measured: fmt.Sprintf("%.2f", perRequest), bound: fmt.Sprintf("%.2f", maxRevisions), verdict: atMost(perRequest, maxRevisions),
	})
	share := (size - w.bare) / len(w.nodes)
	report := row{what: "  bytes of the object, of each node's report", measured: fmt.Sprint(size), value: fmt.Sprintf("%d bytes", share)}
	if form != "Both" {
		report.bound, report.verdict = fmt.Sprintf("%d bytes", maxReportSize), atMost(share, maxReportSize)
	}
	w.add(report)
	w.add(row{
		what: "  each write: bytes to etcd's log, to its database's file", measured: fmt.Sprintf("%.0f, %.0f", each[wal], each[file]),
		value: fmt.Sprintf("%.2fx the object", (each[wal]+each[file])/float64(size)),
	})
	w.add(row{what: "  each write: bytes more in use in the database; commits of it", measured: fmt.Sprintf("%.0f, %.2f", each[inUse], each[commits])})
	w.add(row{what: "  each write: CPU of kube-apiserver, of etcd", measured: each.cpu()})
	return each
}

// watched measures what watchers add, and returns the bytes of an event.
func (w *writing) watched(alone amounts) (event int64) {
	w.Helper()
	w.progress("and %d watchers, for %s", followers, w.plan.writing)
	var clients *watchers
	all := w.reported("Condition", func() { clients = w.startWatchers(followers) })
	w.must(clients.stop())
	events := clients.events.Load()
	if received := float64(events) / followers; received < all[versions] {
		w.Fatalf("%d watchers received %d events of %.0f writes", followers, events, all[versions])
	}
	event = clients.bytes.Load() / events
	w.add(row{what: fmt.Sprintf("writes, each event to each of %d watchers: bytes", followers), measured: fmt.Sprint(event)})
	each := all.each(all[versions], w.idle)
	w.add(row{
		what: "  each write, with all of them: CPU of kube-apiserver, of etcd", measured: each.cpu(),
		value: cpuOf((each[apiCPU]-alone[apiCPU])/followers) + " for each watcher",
	})
	return event
}

// reported runs the reporters and measures what they cost. beside, where it is given,
// is called when they write.
func (w *writing) reported(form string, beside func()) amounts {
	w.Helper()
	w.running = true
	var ends []func()
	defer func() {
		w.running = false
		for _, end := range ends {
			end()
		}
	}()
	for _, n := range w.nodes {
		n.configureAll(w.access(), form)
		_, end := n.run()
		ends = append(ends, end)
	}
	w.pause(writingSettle)
	if beside != nil {
		beside()
	}
	return w.measure(w.plan.writing)
}

func (w *writing) measure(d time.Duration) amounts {
	w.Helper()
	before := w.read()
	w.pause(d)
	return w.read().since(before)
}

// read returns what was done so far. Of the API server no more than its CPU is read: its
// own metrics are a large part of a second's work.
func (w *writing) read() amounts {
	w.Helper()
	now := w.etcd.read(w)
	now[seconds] = time.Since(w.began).Seconds()
	now[apiCPU] = cpuTime(w, w.cluster.APIServerPID()).Seconds()
	if !w.running {
		return now
	}
	for _, n := range w.nodes {
		metrics := newScraper(w, n.serving, nil, "")
		for series, count := range metrics.scrape(w) {
			switch result, isWrite := writeResult(series); {
			case !isWrite:
			case result == "success":
				now[requests] += count
			default:
				now[requests] += count
				now[failed] += count
			}
		}
		metrics.client.CloseIdleConnections()
	}
	return now
}

// removeReports takes the conditions of the reporters off the object.
func (w *writing) removeReports() {
	w.Helper()
	object := apiservers.Kube.Status()
	delete(object, "status")
	for _, n := range w.nodes {
		w.must(apiservers.Apply(running, w.admin, health.ConditionManager(n.name), controlplane.OperatorGVR(apiservers.Kube.Resource), "", object, "status"))
	}
	if _, size := w.etcd.stored(w); size != w.bare {
		w.Errorf("without reports the object had %d bytes, and now has %d", w.bare, size)
	}
}

// compaction measures what it costs etcd to forget all that was written.
func (w *writing) compaction() {
	w.Helper()
	w.progress("a compaction")
	before := w.etcd.read(w)
	w.etcd.compact(w, int64(before[revisions]))
	after := w.etcd.read(w)
	for range 3 { // what was freed is reported by the commit after the next
		w.fill(w.admin, apiservers.Kube)
		w.pause(time.Second)
	}
	later, n := w.etcd.read(w), before[revisions]
	w.add(row{
		what:     fmt.Sprintf("writes: compaction of %.0f revisions: in use before and after", n),
		measured: megabytes(before[inUse]) + ", " + megabytes(later[inUse]), value: "file " + megabytes(later[size]),
	})
	w.add(row{
		what:     "  for each revision: CPU of etcd; bytes to the file",
		measured: fmt.Sprintf("%s; %.0f", cpuOf((after[etcdCPU]-before[etcdCPU])/n), (after[file]-before[file])/n),
	})
}

// scale multiplies the writes of one node to an hour, each of them a revision.
func (w *writing) scale(each amounts, event int64) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, time.Minute} {
		n := float64(time.Hour / interval)
		w.add(row{
			what:     fmt.Sprintf("writes: a node in an hour, every %s: revisions; to etcd's disk; to each watcher", interval),
			measured: fmt.Sprintf("%.0f; %s; %s", n, megabytes(n*(each[wal]+each[file])), megabytes(n*float64(event))),
			value:    fmt.Sprintf("%.1f s of CPU", n*(each[apiCPU]+each[etcdCPU])),
		})
		held := float64(2 * apiServerCompacts / interval)
		w.add(row{what: fmt.Sprintf("  held in etcd's database, of %s", 2*apiServerCompacts), measured: megabytes(held * each[inUse])})
	}
}

// watchers follow the object that is written, and count what they receive.
type watchers struct {
	end    context.CancelFunc
	ended  sync.WaitGroup
	events atomic.Int64
	bytes  atomic.Int64
	failed atomic.Pointer[error]
}

// startWatchers has some clients follow the object, each by a connection of its own, in
// JSON, as custom resources are served.
func (w *writing) startWatchers(n int) *watchers {
	w.Helper()
	ctx, end := context.WithCancel(running)
	all := &watchers{end: end}
	config := w.cluster.RESTConfig()
	trust, err := rest.TLSConfigFor(config)
	w.must(err)
	query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + controlplane.ClusterObject}}
	path := config.Host + "/apis/" + controlplane.OperatorGroup + "/v1/" + apiservers.Kube.Resource + "?" + query.Encode()
	for range n {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
		answer, err := get(ctx, client, path, config.BearerToken)
		if err != nil {
			w.Fatal(errors.Join(err, all.stop()))
		}
		all.ended.Go(func() {
			defer client.CloseIdleConnections()
			defer answer.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := answer.Read(buffer)
				all.bytes.Add(int64(n))
				all.events.Add(int64(bytes.Count(buffer[:n], []byte("\n")))) // each is a line
				if err != nil {
					if ctx.Err() == nil {
						err = fmt.Errorf("a watch ended by itself: %w", err)
						all.failed.Store(&err)
					}
					return
				}
			}
		})
	}
	return all
}

func (w *watchers) stop() error {
	w.end()
	w.ended.Wait()
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}
