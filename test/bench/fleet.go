package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The bounds on a process that rolls up for 1,000 clusters.
const (
	maxFleetCPU      = 0.4 // of one core, decoding included
	maxFleetResident = 180_000_000
	// maxFleetShare is what the roll-up may take of the time that it takes to
	// decode what it rolls up.
	maxFleetShare = 0.5
)

const (
	// fleetIll makes 1% of the clusters ill.
	fleetIll = 100
	// apartFrames are measured part by part.
	apartFrames = 100
)

// rollupProcess is the process that rolls up for a fleet.
type rollupProcess struct {
	cmd     *exec.Cmd
	frames  *bufio.Writer
	stdin   io.Closer
	answers *json.Decoder
	log     string
}

// fleet has one process roll up for 1,000 clusters, at the rate at which they
// report.
func (l *lab) fleet(ctx context.Context) (err error) {
	l.say("a process rolls up for %d clusters", fleetSize)
	p, err := l.startRollup(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	f, err := newFleet(time.Now())
	if err != nil {
		return err
	}
	// Its start: all clusters at once.
	for i := range f.clusters {
		if err := p.event(&f.clusters[i], f.template, frameEvent); err != nil {
			return err
		}
	}
	listed, cpuListed, err := p.phase()
	if err != nil {
		return err
	}
	if listed.Writes != fleetSize || listed.Degraded != 0 {
		return fmt.Errorf("of %d new clusters %d were written to, and %d were ill: this is not the work to be measured", fleetSize, listed.Writes, listed.Degraded)
	}
	l.table.add(row{what: fmt.Sprintf("fleet: start, %d resources of %d bytes: CPU", listed.Events, listed.Bytes/listed.Events), measured: milliseconds(cpuListed)})

	l.say("%.0f reports/s for %s, all healthy", fleetRate, l.plan.fleet)
	healthy, cpu, err := p.drive(ctx, f, l.plan.fleet)
	if err != nil {
		return err
	}
	if healthy.Writes != 0 || healthy.Degraded != 0 {
		return fmt.Errorf("all is healthy, and %d verdicts changed, %d clusters are ill", healthy.Writes, healthy.Degraded)
	}
	l.reportFleet("healthy", healthy, cpu, l.plan.fleet)

	ill := f.sicken(fleetIll)
	l.say("%.0f reports/s for %s, %d clusters ill", fleetRate, l.plan.fleet, ill)
	// Each is told by the report of its last node.
	sick, cpu, err := p.drive(ctx, f, max(l.plan.fleet, fleetInterval+time.Second))
	if err != nil {
		return err
	}
	if sick.Writes != ill || sick.Degraded != ill {
		return fmt.Errorf("%d clusters are ill, and %d verdicts changed, %d say so", ill, sick.Writes, sick.Degraded)
	}
	l.reportFleet(fmt.Sprintf("%d ill", ill), sick, cpu, max(l.plan.fleet, fleetInterval+time.Second))
	if err := l.fleetMemory(p); err != nil {
		return err
	}
	return l.fleetParts(p, f)
}

// fleetRate is in reports per second.
const fleetRate = fleetSize * fleetNodes / float64(fleetInterval/time.Second)

// drive has the nodes report for a time.
func (p *rollupProcess) drive(ctx context.Context, f *fleet, d time.Duration) (phase, time.Duration, error) {
	began := time.Now()
	for n := 1; ; n++ {
		due := began.Add(time.Duration(float64(n) / fleetRate * float64(time.Second)))
		if due.Sub(began) > d {
			break
		}
		if err := pause(ctx, time.Until(due)); err != nil {
			return phase{}, 0, err
		}
		if err := p.event(f.report(time.Now()), f.template, frameEvent); err != nil {
			return phase{}, 0, err
		}
	}
	found, cpu, err := p.phase()
	if took := time.Since(began); err == nil && took > d+d/20 {
		err = fmt.Errorf("the reports of %s took %s: the process could not keep up", d, took)
	}
	return found, cpu, err
}

func (l *lab) reportFleet(what string, found phase, cpu, d time.Duration) {
	when := fmt.Sprintf("fleet, %s, %d reports in %s: ", what, found.Events, d)
	share := cpu.Seconds() / d.Seconds()
	l.table.add(row{
		what: when + "CPU, of one core", measured: milliseconds(cpu), value: percent(share),
		bound: percent(maxFleetCPU), verdict: atMost(share, maxFleetCPU),
	})
	l.table.add(row{what: "  CPU for each report", measured: perCycle(cpu / time.Duration(found.Events))})
	decode, rest := found.Stages[0], time.Duration(0)
	for _, stage := range found.Stages[1:] {
		rest += stage
	}
	of := rest.Seconds() / decode.Seconds()
	l.table.add(row{
		what: "  time to roll up (Read, Evaluate, Leftovers), median, of that to decode", measured: perCycle(rest), floor: perCycle(decode),
		value: percent(of), bound: percent(maxFleetShare), verdict: atMost(of, maxFleetShare),
	})
	l.table.add(row{what: "  decode and roll-up together: median, 99th percentile, slowest", measured: strings.Join([]string{
		perCycle(found.Whole), perCycle(found.Late99), perCycle(found.Slowest),
	}, ", ")})
	l.table.add(row{what: "  verdicts that changed, clusters that are ill, collections", measured: fmt.Sprintf("%d, %d, %d", found.Writes, found.Degraded, found.GCs)})
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func (l *lab) fleetMemory(p *rollupProcess) error {
	m, err := memoryOf(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	l.table.add(row{
		what: "fleet: the most that was ever resident (VmHWM)", measured: megabytes(m.peak),
		bound: megabytes(maxFleetResident), verdict: atMost(m.peak, maxFleetResident),
	})
	l.table.add(row{what: "  resident at the end (VmRSS), not the binary's (RssAnon)", measured: megabytes(m.all) + ", " + megabytes(m.anon)})
	var settled phase
	if err := p.ask(frameSettle, &settled); err != nil {
		return err
	}
	l.table.add(row{what: "  live heap, for each cluster", measured: megabytes(int64(settled.HeapLive)), value: fmt.Sprintf("%d bytes", settled.HeapLive/fleetSize)})
	return nil
}

// fleetParts tells what of the work is what.
func (l *lab) fleetParts(p *rollupProcess, f *fleet) error {
	l.say("each part apart")
	for i := range apartFrames {
		if err := p.event(&f.clusters[i], f.template, frameApart); err != nil {
			return err
		}
	}
	var parts []part
	if err := p.ask(frameParts, &parts); err != nil {
		return err
	}
	for i, found := range parts {
		l.table.add(row{
			what: "fleet, apart, for each report: " + stages[i] + ", CPU", measured: perCycle(found.CPU),
			value: fmt.Sprintf("%.0f bytes, %.0f allocations", found.Bytes, found.Allocs),
		})
	}
	return nil
}

// startRollup runs this program as fleetWorker. It ends with its stdin, and so with
// us.
func (l *lab) startRollup(ctx context.Context) (*rollupProcess, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &rollupProcess{log: filepath.Join(l.dir, "fleet.log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	p.cmd = exec.CommandContext(ctx, binary, fleetWorker)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.frames, p.answers = stdin, bufio.NewWriterSize(stdin, 64<<10), json.NewDecoder(stdout)
	return p, p.cmd.Start()
}

func (p *rollupProcess) close() error {
	_ = p.stdin.Close() // how it fails, the process tells
	if err := p.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("the process that rolls up: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// event sends what a cluster tells.
func (p *rollupProcess) event(c *fleetCluster, template string, kind uint32) error {
	raw, err := c.event(template)
	if err != nil {
		return err
	}
	return p.send(frameHeader{Kind: kind, Cluster: uint32(c.number), Size: uint32(len(raw))}, raw)
}

func (p *rollupProcess) send(h frameHeader, frame []byte) error {
	if err := binary.Write(p.frames, binary.LittleEndian, h); err != nil {
		return err
	}
	if _, err := p.frames.Write(frame); err != nil {
		return err
	}
	return p.frames.Flush()
}

func (p *rollupProcess) ask(kind uint32, answer any) error {
	if err := p.send(frameHeader{Kind: kind}, nil); err != nil {
		return err
	}
	return p.answers.Decode(answer)
}

// phase returns what there was since the last phase, and the CPU time of it.
func (p *rollupProcess) phase() (found phase, cpu time.Duration, err error) {
	err = p.ask(framePhase, &found)
	return found, found.CPU, err
}
