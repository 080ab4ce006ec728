// Command democluster shows kms-health-operator and its reporters at work before
// the viewer's eyes: a real etcd, kube-apiserver and kube-controller-manager with
// OpenShift's CRDs, and the real programs as processes; no root, no internet. It
// ends with 0 only if everything that it showed is what happened.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// total bounds the scenes; with --stay, what comes after them is not bounded.
const total = 4 * time.Minute

func main() {
	stay := flag.Bool("stay", false, "keep the cluster, with KMS on, until Ctrl-C")
	flag.Parse()
	if err := run(*stay); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo-cluster: %v\n", err)
		os.Exit(1)
	}
}

func run(stay bool) (err error) {
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(signals, total)
	defer cancel()
	began := time.Now()
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	play := scenes
	if !stay {
		play = append(play, offAndOn...)
	}
	play = append(play, last...)
	for _, scene := range play {
		if err := scene(s); err != nil {
			if signals.Err() != nil {
				return errors.New("interrupted; everything was ended")
			}
			return errors.Join(err, s.logTails())
		}
	}
	if stay {
		s.invite()
		<-signals.Done()
		s.say("\nEnding everything.")
		return nil
	}
	if err := s.close(); err != nil {
		return err
	}
	s.say("\nAll of this happened as shown, in %.0f seconds. Nothing is left running.", time.Since(began).Seconds())
	s.say("Next: `make demo-cluster STAY=1` keeps the cluster, with KMS on, and tells how to look around.")
	return nil
}
