package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// part is one stage measured apart, for one report.
type part struct {
	CPU           time.Duration
	Bytes, Allocs float64
}

// partRounds is how often each stage is done for each frame, apart.
const partRounds = 20

// parts measures each stage alone: what it allocates, and its CPU time with what
// the collector needs for it.
func (w *fleetWork) parts() ([]part, error) {
	now := time.Now()
	objects := make([]*unstructured.Unstructured, len(w.apart))
	members := make([]*member, len(w.apart))
	for i, frame := range w.apart {
		members[i] = newMember(i)
		members[i].standing = w.members[i].standing
		if _, _, err := members[i].report(frame); err != nil {
			return nil, err
		}
	}
	work := []func(i int) error{
		func(i int) (err error) { objects[i], err = decodeEvent(w.apart[i]); return err },
		func(i int) error { members[i].resource = rollup.Read(objects[i]); return nil },
		func(i int) error { members[i].result = members[i].evaluate(now); return nil },
		func(i int) error { members[i].leftovers(now); return nil },
	}
	var found []part
	for _, do := range work {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began, err := ownCPU()
		if err != nil {
			return nil, err
		}
		for range partRounds {
			for i := range w.apart {
				if err := do(i); err != nil {
					return nil, err
				}
			}
		}
		ended, err := ownCPU()
		if err != nil {
			return nil, err
		}
		runtime.ReadMemStats(&after)
		n := float64(partRounds * len(w.apart))
		found = append(found, part{
			CPU:    time.Duration(float64(ended-began) / n),
			Bytes:  float64(after.TotalAlloc-before.TotalAlloc) / n,
			Allocs: float64(after.Mallocs-before.Mallocs) / n,
		})
	}
	return found, nil
}

// ownCPU is this process's CPU time so far.
func ownCPU() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}
