// Command bench measures the reporter and the operator as their users run them, as
// processes, and holds them to bounds: `make bench`. So it does with what many
// clusters cost who rolls up for them, and what reports cost who takes them. It
// prints a table, and ends with 0 only if every bound was kept.
//
// Where a measure of the reporter depends on the machine it is a ratio: to a program that does
// the least that a reporter can (./floor), side by side with it in the same run.
// Nothing is left running or on disk, Ctrl-C included.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The bounds. MB are of 1,000,000 bytes.
const (
	maxBinary   = 15_000_000
	maxStart    = 100 * time.Millisecond
	maxReload   = 250 * time.Millisecond
	maxCPU      = 1.25 // times the floor
	maxResident = 20_000_000
	maxAnon     = 7_000_000
	maxReturn   = 3 * time.Second
	// maxHeapGain is less than 16 bytes, the smallest thing with a pointer and
	// anything else, for each of 9,000 reloads. Without a leak the least heap of
	// some seconds was seen to vary by up to 50 KiB.
	maxHeapGain = 128 << 10

	// The operator's.
	maxOperatorResident = 60_000_000
	maxFollow           = time.Second
)

// fullTime is how long a process must have lived for its memory to be judged.
const fullTime = 5 * time.Minute

// fullReports is how long reporters must have reported for the operator's memory
// to be judged.
const fullReports = 2 * time.Minute

// plan is how much is measured.
type plan struct {
	only string // one program

	duration time.Duration // of the long run: CPU and memory
	reloads  int           // beside its second half
	starts   int
	swaps    int
	outages  int

	quiet     time.Duration // nothing happens around the operator
	reports   time.Duration // reporters report around it
	rotations int           // changes of an encryption config
	edits     int           // changes of the operator's file

	fleet   time.Duration // clusters report to one process; twice
	writing time.Duration // reporters write; four times
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == fleetWorker {
		if err := workForFleet(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	p := plan{starts: 20, swaps: 50, outages: 3, quiet: time.Minute, reports: fullReports, rotations: 24, edits: 20, fleet: time.Minute, writing: time.Minute}
	flag.DurationVar(&p.duration, "duration", fullTime, "how long the reporter runs beside the floor: CPU is measured in the first half, and memory at the end, where it is judged from 5m on")
	flag.IntVar(&p.reloads, "reloads", 10_000, "how many reloads must gain nothing")
	flag.StringVar(&p.only, "only", "", "one program alone, reporter or operator; or one matter of scale, fleet or writes")
	short := flag.Bool("short", false, "a run of about three minutes, for those who change this program: -duration 1m -reloads 1000, one outage, and less around the operator")
	flag.Parse()
	if *short {
		p.duration, p.reloads, p.outages = time.Minute, 1000, 1
		p.quiet, p.reports, p.rotations, p.edits = 20*time.Second, 30*time.Second, 8, 5
		p.fleet, p.writing = 20*time.Second, 15*time.Second
	}
	if err := run(p); err != nil {
		fmt.Fprintf(os.Stderr, "\nbench: %v\n", err)
		os.Exit(1)
	}
}

func run(p plan) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, p.duration+p.quiet+p.reports+2*p.fleet+5*p.writing+20*time.Minute)
	defer cancel()
	if p.duration < 20*time.Second || p.reloads < 200 {
		return errors.New("too short to tell anything: want -duration of at least 20s, -reloads of at least 200")
	}
	// What needs a quiet machine comes first, before there is an API server.
	reporter := []func(*lab, context.Context) error{
		(*lab).buildReporter, (*lab).binary, (*lab).firstProbe, (*lab).reload, (*lab).startCluster, (*lab).longRun, (*lab).apiServerReturns, (*lab).stopCluster,
	}
	operator := []func(*lab, context.Context) error{(*lab).operator}
	fleet := []func(*lab, context.Context) error{(*lab).fleet}
	writing := []func(*lab, context.Context) error{(*lab).writes}
	measures, known := map[string][]func(*lab, context.Context) error{
		"": slices.Concat(reporter, operator, fleet, writing), "reporter": reporter, "operator": operator, "fleet": fleet, "writes": writing,
	}[p.only]
	if !known {
		return fmt.Errorf("-only %s: want reporter, operator, fleet or writes", p.only)
	}
	l, err := newLab(p)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // a signal's name; what failed of it is no news
		}
		err = errors.Join(err, l.close())
	}()
	for _, measure := range measures {
		if err := measure(l, ctx); err != nil {
			return err
		}
	}
	fmt.Println()
	if err := l.table.print(os.Stdout); err != nil {
		return err
	}
	if p.duration < fullTime || p.reports < fullReports {
		fmt.Printf("\nMemory is judged after %s of the reporter's life, and %s of reports around the operator, only: leave out -short and -duration.\n", fullTime, fullReports)
	}
	if list := l.table.exceeded(); len(list) > 0 {
		return fmt.Errorf("over the bound: %s", strings.Join(list, "; "))
	}
	return nil
}
