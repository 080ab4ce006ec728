// Package bench measures the reporter and the operator as processes, as users run them, and compares the values with
// bounds: `make bench`.
//
// Each measurement is a test that is skipped without -measure. A value over its bound fails the test. A run ends with a
// table of the results.
//
// If a value of the reporter depends on the machine, it is compared with a program that does the minimum of a
// reporter's work (./floor) in the same run. With -base it is also compared with another build of the reporter.
// -operator-base does the same for the operator.
package bench

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// The bounds. MB are of 1,000,000 bytes.
const (
	maxBinary   = 12_000_000
	maxCPU      = 1.10 // times the floor
	maxResident = 18_000_000
	maxAnon     = 5_000_000
	maxWorse    = 1.03 // times the other build's figure in the same run
	// maxHeapGain is less than 9,000 reloads times 16 bytes, the size of the smallest leak with a pointer. Without a leak
	// the minimum heap of some seconds varied by up to 50 KiB.
	maxHeapGain   = 128 << 10
	maxMemoryGain = 2_000_000

	maxOperatorBinary   = 34_000_000
	maxOperatorResident = 60_000_000
	maxLease            = 6 // requests a minute: 4 get and 2 update
)

const (
	fullTime    = 5 * time.Minute // the minimum age of a reporter at which its memory is judged
	fullReports = 2 * time.Minute // the same for the operator, while reports arrive
)

var (
	measure = flag.Bool("measure", false, "measure; otherwise everything is skipped")
	base    = flag.String("base", "", "the absolute path of another build of the reporter, which is measured in the same run")

	operatorBase = flag.String("operator-base", "", "the same, of the operator, in the folder bin of its checkout")
)

// plan has the lengths and repetitions of the measurements. -short takes about two minutes.
type plan struct {
	duration               time.Duration // of the long run with the floor
	reloads, flaps, frozen int           // see endurance_test.go
	quiet, reports         time.Duration // of the operator's phases without and with reports
}

func newPlan() plan {
	if testing.Short() {
		return plan{time.Minute, 1000, 400, 1000, 20 * time.Second, 30 * time.Second}
	}
	return plan{fullTime, 10_000, 2000, 10_000, time.Minute, fullReports}
}

var running context.Context // until Ctrl-C

func TestMain(m *testing.M) {
	flag.Parse()
	_ = os.Unsetenv("GOGC") // the programs run as users run them
	var stop context.CancelFunc
	running, stop = signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := m.Run()
	stop()
	printResults()
	os.Exit(code)
}
