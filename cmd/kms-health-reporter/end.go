package main

import (
	"context"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/reporter"
)

const (
	// hardEnd is when the process exits after the first signal, even if something hangs.
	hardEnd = 2 * time.Second
	// flushTime bounds the wait for the log's last lines to be read. With the time
	// that reporter.Run takes to end, it is shorter than hardEnd.
	flushTime = 250 * time.Millisecond
)

// untilSignal returns a context that ends at the first signal. The process exits, with
// ExitOK, at the second signal, or hardEnd after the first.
func untilSignal(signals <-chan os.Signal, exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		received := <-signals
		bound := time.NewTimer(hardEnd) // before anything that could take time
		cancel()
		klog.InfoS("Ending", "signal", received.String())
		select {
		case <-signals:
		case <-bound.C:
		}
		exit(reporter.ExitOK)
	}()
	return ctx
}
