package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// fleetWorker, as this program's one argument, makes it the process that rolls up
// for a fleet: it reads frames from its stdin, and answers in lines of JSON. It
// holds what such a process must, and not what made the frames.
const fleetWorker = "fleet-worker"

// The frames: which, for which cluster, and how many bytes follow.
type frameHeader struct {
	Kind    uint32
	Cluster uint32
	Size    uint32
}

const (
	frameEvent  = iota // an event of a watch
	framePhase         // answer what there was since the last phase
	frameApart         // an event to keep, for the parts to be measured apart
	frameParts         // measure them
	frameSettle        // collect the garbage, and answer what is left
)

// stages are the parts of the work for one report.
var stages = []string{"decode", "Read", "Evaluate", "Leftovers"}

// phase is what there was in a time.
type phase struct {
	Events   int
	Bytes    int // of them
	Writes   int // verdicts that are not what stood there
	Degraded int // clusters, at the end
	// Stages are the median times of each, Whole that of all together; Slowest and
	// Late99 are of all together, too.
	Stages                 []time.Duration
	Whole, Late99, Slowest time.Duration
	GCs                    uint32
	CPU                    time.Duration // user and system
	HeapLive               uint64        // after a collection; frameSettle alone
}

// member is one cluster, as the process that rolls up knows it.
type member struct {
	nodes    []rollup.Node
	made     map[string]time.Time
	standing map[string]rollup.Condition
	resource *rollup.Resource
	result   *rollup.Result
}

func newMember(cluster int) *member {
	m := &member{made: map[string]time.Time{}, standing: map[string]rollup.Condition{}}
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

func decodeEvent(frame []byte) (*unstructured.Unstructured, error) {
	// As client-go does for a dynamic client: the event, and then what is in it.
	var event metav1.WatchEvent
	if err := kjson.Unmarshal(frame, &event); err != nil {
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

// report does the work for one event, and says when each stage of it began and
// ended, and whether there is something to write.
func (m *member) report(frame []byte) (times [5]time.Time, writes bool, err error) {
	times[0] = time.Now()
	o, err := decodeEvent(frame)
	if err != nil {
		return times, false, err
	}
	times[1] = time.Now()
	m.resource = rollup.Read(o)
	times[2] = time.Now()
	m.result = m.evaluate(times[2])
	if writes = !m.result.Same(m.standing); writes {
		for _, c := range m.result.Conditions {
			m.standing[c.Type] = c
		}
	}
	times[3] = time.Now()
	if gone := m.leftovers(times[2]); gone > 0 {
		return times, writes, fmt.Errorf("%d reports would be removed: this is not the work to be measured", gone)
	}
	times[4] = time.Now()
	return times, writes, nil
}

// workForFleet is the process.
func workForFleet(in io.Reader, out io.Writer) error {
	w := fleetWork{members: map[int]*member{}, out: json.NewEncoder(out)}
	frames := bufio.NewReaderSize(in, 64<<10)
	var frame []byte
	for {
		var h frameHeader
		if err := binary.Read(frames, binary.LittleEndian, &h); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		frame = slices.Grow(frame[:0], int(h.Size))[:h.Size]
		if _, err := io.ReadFull(frames, frame); err != nil {
			return err
		}
		if err := w.handle(h, frame); err != nil {
			return err
		}
	}
}

type fleetWork struct {
	members map[int]*member
	out     *json.Encoder
	phase   phase
	took    [5][]time.Duration // by stage, and together
	apart   [][]byte
	gcs     uint32
	cpu     time.Duration
}

func (w *fleetWork) handle(h frameHeader, frame []byte) error {
	switch h.Kind {
	case frameApart:
		w.apart = append(w.apart, slices.Clone(frame))
		return nil
	case frameParts:
		parts, err := w.parts()
		if err != nil {
			return err
		}
		return w.out.Encode(parts)
	case framePhase:
		return w.endPhase()
	case frameSettle:
		w.took = [5][]time.Duration{}
		runtime.GC()
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return w.out.Encode(phase{HeapLive: mem.HeapAlloc})
	}
	m := w.members[int(h.Cluster)]
	if m == nil {
		m = newMember(int(h.Cluster))
		w.members[int(h.Cluster)] = m
	}
	times, writes, err := m.report(frame)
	if err != nil {
		return fmt.Errorf("cluster %d: %w", h.Cluster, err)
	}
	for i := range stages {
		w.took[i] = append(w.took[i], times[i+1].Sub(times[i]))
	}
	w.took[len(stages)] = append(w.took[len(stages)], times[len(stages)].Sub(times[0]))
	w.phase.Events++
	w.phase.Bytes += len(frame)
	if writes {
		w.phase.Writes++
	}
	return nil
}

func (w *fleetWork) endPhase() error {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	for _, m := range w.members {
		if m.result.Condition(rollup.Degraded).Status == rollup.True {
			w.phase.Degraded++
		}
	}
	w.phase.GCs, w.gcs = mem.NumGC-w.gcs, mem.NumGC
	cpu, err := ownCPU()
	if err != nil {
		return err
	}
	w.phase.CPU, w.cpu = cpu-w.cpu, cpu
	whole := w.took[len(stages)]
	if len(whole) > 0 {
		for i := range stages {
			w.phase.Stages = append(w.phase.Stages, median(w.took[i]))
		}
		slices.Sort(whole)
		w.phase.Whole, w.phase.Late99, w.phase.Slowest = median(whole), whole[len(whole)*99/100], whole[len(whole)-1]
	}
	err = w.out.Encode(w.phase)
	w.phase = phase{}
	for i := range w.took {
		w.took[i] = w.took[i][:0]
	}
	return err
}
