package bench

import (
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

const (
	fleetSize      = 1000
	fleetNodes     = 3                // in each cluster
	fleetInterval  = 30 * time.Second // of each node's reporter
	fleetOthers    = 100              // conditions that are not ours
	fleetUnhealthy = 100              // one cluster in so many gets an unhealthy plugin
	fleetRate      = fleetSize * fleetNodes / float64(fleetInterval/time.Second)
)

var fleetKeys = []string{"2", "1"} // the one that writes first

func fleetNode(cluster, node int) string {
	return fmt.Sprintf("master-%d.cluster-%04d.example.com", node, cluster)
}

// TestFleet has one process roll up for 1,000 clusters, at the rate at which they report.
func TestFleet(t *testing.T) {
	f := newFixture(t)
	f.progress("a process rolls up for %d clusters", fleetSize)
	p := f.startRollup()
	clusters := newFleet(t, time.Now())
	for i := range clusters.all { // its start: all clusters at once
		p.send(request{Cluster: i, Event: clusters.event(t, i)})
	}
	listed := p.ask(false)
	if listed.Writes != fleetSize || listed.Degraded != 0 {
		t.Fatalf("of %d new clusters %d were written to, and %d were unhealthy: this is not the work to be measured", fleetSize, listed.Writes, listed.Degraded)
	}
	f.add(row{what: fmt.Sprintf("fleet: start, %d resources of %d bytes: CPU", listed.Events, listed.Bytes/listed.Events), measured: milliseconds(listed.CPU)})

	f.progress("%.0f reports/s for %s, all healthy", fleetRate, f.fleet)
	healthy := p.drive(clusters, f.fleet)
	if healthy.Writes != 0 || healthy.Degraded != 0 {
		t.Fatalf("all is healthy, and %d verdicts changed, %d clusters are unhealthy", healthy.Writes, healthy.Degraded)
	}
	f.addPhase("healthy", healthy, f.fleet)

	unhealthy, d := clusters.failEvery(fleetUnhealthy), max(f.fleet, fleetInterval+time.Second)
	f.progress("%.0f reports/s for %s, %d clusters unhealthy", fleetRate, d, unhealthy)
	failing := p.drive(clusters, d) // each is reported by its last node
	if failing.Writes != unhealthy || failing.Degraded != unhealthy {
		t.Fatalf("%d clusters are unhealthy, and %d verdicts changed, %d are Degraded", unhealthy, failing.Writes, failing.Degraded)
	}
	f.addPhase(fmt.Sprintf("%d unhealthy", unhealthy), failing, d)

	m := memoryOf(f, p.cmd.Process.Pid)
	f.add(row{
		what: "fleet: the most that was ever resident (VmHWM)", measured: megabytes(m.peak),
		bound: megabytes(int64(maxFleetResident)), verdict: atMost(m.peak, maxFleetResident),
	})
	f.add(row{what: "  resident at the end (VmRSS), not the binary's (RssAnon)", measured: megabytes(m.all) + ", " + megabytes(m.anon)})
	live := p.ask(true).HeapLive
	f.add(row{what: "  live heap, for each cluster", measured: megabytes(int64(live)), value: fmt.Sprintf("%d bytes", live/fleetSize)})
}

func (f *fixture) addPhase(what string, found phase, d time.Duration) {
	share := found.CPU.Seconds() / d.Seconds()
	f.add(row{
		what: fmt.Sprintf("fleet, %s, %d reports in %s: CPU, of one core", what, found.Events, d), measured: milliseconds(found.CPU),
		value: percent(share), bound: percent(maxFleetCPU), verdict: atMost(share, maxFleetCPU),
	})
	f.add(row{what: "  CPU for each report", measured: perCycle(found.CPU / time.Duration(found.Events))})
	of := found.RollUp.Seconds() / found.Decode.Seconds()
	f.add(row{
		what: "  time to roll up (Read, Evaluate, Leftovers), median, of that to decode", measured: perCycle(found.RollUp), floor: perCycle(found.Decode),
		value: percent(of), bound: percent(maxFleetShare), verdict: atMost(of, maxFleetShare),
	})
	f.add(row{what: "  decode and roll-up together: median, 99th percentile, slowest", measured: strings.Join([]string{
		perCycle(found.Whole), perCycle(found.Late99), perCycle(found.Slowest),
	}, ", ")})
	f.add(row{what: "  verdicts that changed, clusters that are unhealthy, collections", measured: fmt.Sprintf("%d, %d, %d", found.Writes, found.Degraded, found.GCs)})
}

// rollupProcess is this program as fleetWorker. It ends with its stdin, and so with us.
type rollupProcess struct {
	*fixture
	cmd      *exec.Cmd
	requests *gob.Encoder
	answers  *gob.Decoder
}

func (f *fixture) startRollup() *rollupProcess {
	f.Helper()
	binary, err := os.Executable()
	f.must(err)
	p := &rollupProcess{fixture: f, cmd: exec.Command(binary, fleetWorker)}
	var failure strings.Builder
	p.cmd.Stderr = &failure
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours
	stdin, err := p.cmd.StdinPipe()
	f.must(err)
	stdout, err := p.cmd.StdoutPipe()
	f.must(err)
	p.requests, p.answers = gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	f.must(p.cmd.Start())
	f.Cleanup(func() {
		_ = stdin.Close() // the process reports how it fails
		if err := p.cmd.Wait(); err != nil {
			f.Errorf("the process that rolls up: %v: %s", err, failure.String())
		}
	})
	return p
}

func (p *rollupProcess) send(r request) { p.Helper(); p.must(p.requests.Encode(&r)) }

// ask returns what there was since it was last asked.
func (p *rollupProcess) ask(collect bool) (found phase) {
	p.Helper()
	p.send(request{Ask: true, Collect: collect})
	p.must(p.answers.Decode(&found))
	return found
}

// drive has the nodes report for a time.
func (p *rollupProcess) drive(f *fleet, d time.Duration) phase {
	p.Helper()
	began := time.Now()
	for n := 1; ; n++ {
		due := began.Add(time.Duration(float64(n) / fleetRate * float64(time.Second)))
		if due.Sub(began) > d {
			break
		}
		p.pause(time.Until(due))
		cluster := f.report(time.Now())
		p.send(request{Cluster: cluster, Event: f.event(p, cluster)})
	}
	found := p.ask(false)
	if took := time.Since(began); took > d+d/20 {
		p.Fatalf("the reports of %s took %s: the process could not keep up", d, took)
	}
	return found
}

// fleet is all clusters, and when each node of each reports next: evenly, so that
// as many report in each moment.
type fleet struct {
	template string
	all      []fleetCluster
	next     int // which node of which cluster reports next
}

// fleetCluster is one cluster, as its API server has it.
type fleetCluster struct {
	version   int
	reports   [fleetNodes]time.Time // when each was last made
	unhealthy bool                  // the plugin of the last node that reads does not answer
}

// newFleet is a fleet in which every node has reported within an interval.
func newFleet(t testing.TB, now time.Time) *fleet {
	t.Helper()
	f := &fleet{template: fleetTemplate(t, now), all: make([]fleetCluster, fleetSize)}
	for i := range f.all {
		for node := range fleetNodes {
			// In the order in which they will report again.
			part := float64(node*fleetSize+i) / (fleetNodes * fleetSize)
			f.all[i].reports[node] = now.Add(-fleetInterval + time.Duration(part*float64(fleetInterval)))
		}
	}
	return f
}

// report has the next node report, and returns its cluster.
func (f *fleet) report(now time.Time) (cluster int) {
	cluster = f.next % fleetSize
	f.all[cluster].reports[f.next/fleetSize] = now
	f.next = (f.next + 1) % (fleetNodes * fleetSize)
	return cluster
}

// failEvery makes a plugin in one of so many clusters unhealthy.
func (f *fleet) failEvery(every int) (unhealthy int) {
	for i := every / 2; i < len(f.all); i += every {
		f.all[i].unhealthy = true
		unhealthy++
	}
	return unhealthy
}

// event is what a watch of a cluster's operator resource receives: JSON.
func (f *fleet) event(t testing.TB, cluster int) []byte {
	t.Helper()
	c := &f.all[cluster]
	c.version++
	values := []string{"@VERSION@", strconv.Itoa(c.version)}
	for node, at := range c.reports {
		var entries []health.Entry
		for _, keyID := range fleetKeys {
			e := health.Entry{
				KeyID: keyID, KEKID: "0f9a3c1e-52f4-4a0e-9d1b-7c0d5a1e4f0" + keyID,
				Status: health.Healthy, LastChecked: at, Interval: fleetInterval,
			}
			if c.unhealthy && node == fleetNodes-1 && keyID == fleetKeys[1] {
				e.Status, e.KEKID, e.Detail = health.Error, "", "Status: rpc error: code = Unavailable desc = the key management service cannot be reached"
			}
			entries = append(entries, e)
		}
		message, err := health.EncodeMessage(entries)
		if err != nil {
			t.Fatal(err)
		}
		quoted, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values,
			fleetToken("NODE", node), fleetNode(cluster, node),
			fleetToken("TIME", node), at.UTC().Format(time.RFC3339),
			fleetToken("MESSAGE", node), strings.Trim(string(quoted), `"`))
	}
	return []byte(strings.NewReplacer(values...).Replace(f.template))
}

func fleetToken(name string, node int) string { return fmt.Sprintf("@%s-%d@", name, node) }

// fleetTemplate is an event with tokens where clusters differ: an operator resource
// with 100 conditions of OpenShift's operators, those of the roll-up, and a report
// of each node, and with their managed fields.
func fleetTemplate(t testing.TB, began time.Time) string {
	t.Helper()
	at := began.UTC().Format(time.RFC3339)
	var conditions, managed []any
	add := func(manager, written string, list ...map[string]any) {
		owned := map[string]any{}
		for _, c := range list {
			owned[fmt.Sprintf(`k:{"type":%q}`, c["type"])] = map[string]any{
				".": struct{}{}, "f:type": struct{}{}, "f:status": struct{}{}, "f:reason": struct{}{}, "f:message": struct{}{}, "f:lastTransitionTime": struct{}{},
			}
			conditions = append(conditions, c)
		}
		managed = append(managed, map[string]any{
			"manager": manager, "operation": "Apply", "apiVersion": "operator.openshift.io/v1", "subresource": "status",
			"time": written, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:status": map[string]any{"f:conditions": owned}},
		})
	}
	condition := func(conditionType, status, message string) map[string]any {
		return map[string]any{"type": conditionType, "status": status, "reason": "AsExpected", "message": message, "lastTransitionTime": at}
	}
	var others []map[string]any
	for i := range fleetOthers {
		others = append(others, condition(fmt.Sprintf("SomeController%dDegraded", i), "False", strings.Repeat("Everything is healthy. ", 10)))
	}
	add(owner, at, others...)
	add("kms-health-operator", at,
		condition(rollup.Degraded, operatorcr.False, "every plugin is healthy on 3 nodes"),
		condition(rollup.Observed, operatorcr.True, "3 nodes report"),
		condition(rollup.WriteKeyAgreed, operatorcr.True, rollup.AgreedMessage(fleetKeys[0], "0f9a3c1e-52f4-4a0e-9d1b-7c0d5a1e4f02")))
	for node := range fleetNodes {
		name := fleetToken("NODE", node)
		add(health.ConditionManager(name), fleetToken("TIME", node), condition(health.ConditionType(name), health.ConditionStatus, fleetToken("MESSAGE", node)))
	}
	raw, err := json.Marshal(map[string]any{
		"type": "MODIFIED",
		"object": map[string]any{
			"apiVersion": "operator.openshift.io/v1", "kind": apiservers.Kube.Kind,
			"metadata": map[string]any{
				"name": "cluster", "uid": "5b2f9d6e-0000-4000-8000-000000000000", "creationTimestamp": at, "generation": 1,
				"resourceVersion": "@VERSION@", "managedFields": managed,
			},
			"spec":   map[string]any{"managementState": "Managed", "logLevel": "Normal", "operatorLogLevel": "Normal"},
			"status": map[string]any{"conditions": conditions, "readyReplicas": fleetNodes},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestFleetIsHealthyAsItReportsAndUnhealthyWhereAPluginFails(t *testing.T) {
	now := time.Now()
	f := newFleet(t, now)
	members := map[int]*member{}
	handle := func(cluster int) (degraded string, writes bool) {
		t.Helper()
		if members[cluster] == nil {
			members[cluster] = newMember(cluster)
		}
		m := members[cluster]
		_, writes, err := m.report(f.event(t, cluster))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.resource.Reports); n != fleetNodes || !m.resource.Reports[0].Ours {
			t.Fatalf("%d reports were read; they are not known as ours", n)
		}
		return m.result.Condition(rollup.Degraded).Status, writes
	}
	// Clusters differ in their number alone, so every tenth stands for all.
	followed := func(cluster int) bool { return cluster%10 == 0 }
	for i := 0; i < fleetSize; i += 10 {
		if degraded, writes := handle(i); degraded != operatorcr.False || !writes {
			t.Fatalf("cluster %d, first seen: %s, written: %t", i, degraded, writes)
		}
	}
	unhealthy := f.failEvery(fleetSize / 2)
	changed := map[int]bool{}
	for range fleetSize * fleetNodes {
		i := f.report(now)
		fails := f.all[i].unhealthy
		if !followed(i) && !fails {
			continue
		}
		degraded, writes := handle(i)
		if (degraded == operatorcr.True) != fails {
			t.Fatalf("cluster %d is unhealthy: %t, and Degraded is %s", i, fails, degraded)
		}
		if writes {
			changed[i] = true
		}
	}
	if len(changed) != unhealthy || unhealthy != 2 {
		t.Errorf("%d clusters are unhealthy, of %d the verdict changed", unhealthy, len(changed))
	}
}

func TestEveryNodeOfAFleetReportsOncePerInterval(t *testing.T) {
	f := newFleet(t, time.Now())
	end := time.Now().Add(time.Hour)
	for range fleetSize * fleetNodes {
		f.report(end)
	}
	for cluster, c := range f.all {
		for node, at := range c.reports {
			if !at.Equal(end) {
				t.Fatalf("node %d of cluster %d did not report", node, cluster)
			}
		}
	}
}

// BenchmarkFleet measures each part of the work for one report alone, where pkg/rollup's
// own benchmark has Evaluate for a resource without other conditions.
func BenchmarkFleet(b *testing.B) {
	now := time.Now()
	raw, m := newFleet(b, now).event(b, 0), newMember(0)
	if _, _, err := m.report(raw); err != nil {
		b.Fatal(err)
	}
	o, err := decodeEvent(raw)
	if err != nil {
		b.Fatal(err)
	}
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"decode", func() { o, err = decodeEvent(raw) }},
		{"Read", func() { m.resource = operatorcr.Read(o) }},
		{"Evaluate", func() { m.result = m.evaluate(now) }},
		{"Leftovers", func() { m.leftovers(now) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				part.do()
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
