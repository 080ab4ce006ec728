package bench

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// fleetWorker, as this program's one argument, makes it the process that rolls up for a
// fleet: it holds what such a process must, and not what makes the events.
const fleetWorker = "fleet-worker"

// request is an event of a cluster, or asks for the phase so far.
type request struct {
	Cluster      int
	Event        []byte
	Ask, Collect bool // Collect: after a garbage collection
}

// phase is what there was since the last one.
type phase struct {
	Events                 int
	Bytes                  int           // of them
	Writes                 int           // verdicts that changed
	Degraded               int           // clusters, at the end
	Decode, RollUp         time.Duration // medians
	Whole, Late99, Slowest time.Duration // of both together
	GCs                    uint32
	CPU                    time.Duration // user and system
	HeapLive               uint64
}

// member is one cluster, as the process that rolls up has it.
type member struct {
	nodes    []rollup.Node
	made     map[string]time.Time
	standing map[string]operatorcr.Condition
	resource *operatorcr.Status
	result   *rollup.Result
}

func newMember(cluster int) *member {
	m := &member{made: map[string]time.Time{}, standing: map[string]operatorcr.Condition{}}
	since := time.Now().Add(-time.Hour)
	for i := range fleetNodes {
		name := fleetNode(cluster, i)
		look := map[string]string{"": "oc logs -n kms-health kms-health-reporter-" + name}
		for _, key := range fleetKeys {
			look[key] = fmt.Sprintf("oc logs -n openshift-kube-apiserver kube-apiserver-%s -c kms-%s", name, key)
		}
		m.nodes = append(m.nodes, rollup.Node{Name: name, Ready: true, PodSince: since, QuietUntil: since, Keys: fleetKeys, Look: look})
		m.made[name] = since.Add(-time.Hour)
	}
	return m
}

// decodeEvent decodes as client-go does for a dynamic client: the event, and then what
// is in it.
func decodeEvent(raw []byte) (*unstructured.Unstructured, error) {
	var event metav1.WatchEvent
	if err := kjson.Unmarshal(raw, &event); err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	_, _, err := unstructured.UnstructuredJSONScheme.Decode(event.Object.Raw, nil, o)
	return o, err
}

func (m *member) evaluate(now time.Time) *rollup.Result {
	return rollup.Evaluate(&rollup.Input{
		Now: now, Reports: m.resource.Reports, Nodes: m.nodes, WriteKey: fleetKeys[0], Previous: m.standing,
	})
}

func (m *member) leftovers(now time.Time) int {
	gone, _ := rollup.Leftovers(&rollup.Cleaning{Now: now, Reports: m.resource.Reports, Nodes: m.nodes, Made: m.made})
	return len(gone)
}

// report does the work for one event, and returns how long decoding took, the rest, and
// whether there is something to write.
func (m *member) report(raw []byte) (took [2]time.Duration, writes bool, err error) {
	began := time.Now()
	o, err := decodeEvent(raw)
	if err != nil {
		return took, false, err
	}
	decoded := time.Now()
	m.resource = operatorcr.Read(o)
	m.result = m.evaluate(decoded)
	if writes = !m.result.Same(m.standing); writes {
		for _, c := range m.result.Conditions {
			m.standing[c.Type] = c
		}
	}
	if gone := m.leftovers(decoded); gone > 0 {
		return took, writes, fmt.Errorf("%d reports would be removed: this is not the work to be measured", gone)
	}
	return [2]time.Duration{decoded.Sub(began), time.Since(decoded)}, writes, nil
}

// rollUpFleet is the process.
func rollUpFleet(in io.Reader, out io.Writer) error {
	members := map[int]*member{}
	requests, answers := gob.NewDecoder(in), gob.NewEncoder(out)
	var found phase
	var decode, rest, whole []time.Duration
	var gcs uint32
	var cpu time.Duration
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !r.Ask {
			m := members[r.Cluster]
			if m == nil {
				m = newMember(r.Cluster)
				members[r.Cluster] = m
			}
			took, writes, err := m.report(r.Event)
			if err != nil {
				return fmt.Errorf("cluster %d: %w", r.Cluster, err)
			}
			decode, rest, whole = append(decode, took[0]), append(rest, took[1]), append(whole, took[0]+took[1])
			found.Events++
			found.Bytes += len(r.Event)
			if writes {
				found.Writes++
			}
			continue
		}
		if len(whole) > 0 {
			slices.Sort(whole)
			found.Decode, found.RollUp, found.Whole = median(decode), median(rest), median(whole)
			found.Late99, found.Slowest = whole[len(whole)*99/100], whole[len(whole)-1]
		}
		decode, rest, whole = nil, nil, nil
		for _, m := range members {
			if m.result.Condition(rollup.Degraded).Status == operatorcr.True {
				found.Degraded++
			}
		}
		if r.Collect {
			r.Event = nil
			runtime.GC()
			runtime.GC()
		}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		found.HeapLive = mem.HeapAlloc
		found.GCs, gcs = mem.NumGC-gcs, mem.NumGC
		used, err := ownCPU()
		if err != nil {
			return err
		}
		found.CPU, cpu = used-cpu, used
		if err := answers.Encode(&found); err != nil {
			return err
		}
		found = phase{}
	}
}

// ownCPU is this process's CPU time so far.
func ownCPU() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}
