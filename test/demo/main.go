// Command demo shows kms-health-reporter at work before the viewer's eyes: real
// processes on real sockets, no cluster and no root. It ends with 0 only if
// everything that it showed is what happened.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// total bounds the whole demo.
const total = 2 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	began := time.Now()
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, scene := range scenes {
		if err := scene(s); err != nil {
			return errors.Join(err, s.logTail())
		}
	}
	s.say("\nAll of this happened as shown, in %.0f seconds. Nothing is left running.", time.Since(began).Seconds())
	s.say("Next: the README says how to put the reporter beside a plugin of yours, and")
	s.say("`bin/kms-health-reporter --help` what it can be told.")
	return nil
}
