// Command parity makes the development plugin unhealthy in every way it knows, with a
// real kube-apiserver as its client, and sets kube-apiserver's own health verdict
// beside ours. It ends with 0 only if they agree, but for the differences in
// compare.go.
//
// Each fault has a plugin of its own, and all plugins are providers of one
// kube-apiserver, so its cache must be waited out once and not once a fault.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// total bounds the whole run.
	total = 6 * time.Minute
	// timeout is each provider's, and our probe's.
	timeout = 3 * time.Second
	// positiveTTL is how long kube-apiserver keeps a good verdict
	// (kmsPluginHealthzPositiveTTL of k8s.io/apiserver's encryptionconfig).
	positiveTTL = 20 * time.Second
	// settle is when its answer is newer than a fault: a call that began just
	// before the fault may take its timeout and is then kept for positiveTTL.
	settle = positiveTTL + timeout + time.Second
	// recovery bounds how long kube-apiserver may take to see a healed plugin.
	// It keeps a bad verdict for 3 s; connecting again takes longer, see heal.
	recovery = 90 * time.Second
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "\nparity: %v\n", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	began := time.Now()
	fmt.Printf("Starting kube-apiserver with %d plugins; the comparison takes a minute or two.\n\n", len(faults))
	s, err := startSubjects(faults)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	server, err := startAPIServer(ctx, s.list)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()

	if err := s.healthy(ctx, server); err != nil {
		return err
	}
	if err := s.fall(); err != nil {
		return err
	}
	found, err := s.judge(ctx, server)
	if err != nil {
		return err
	}
	failed := printTable(os.Stdout, s.list, found)
	healed, err := s.heal(ctx, server)
	if err := errors.Join(append(failed, err)...); err != nil {
		return err
	}
	fmt.Printf("\n%s\n", healed)
	fmt.Printf("Agreement on all %d faults, in %.0f seconds.\n", len(faults), time.Since(began).Seconds())
	return nil
}

// healthy sees that both sides find every plugin healthy before its fault: what
// they say afterwards is then the fault's doing, and our probe has, like
// kube-apiserver, a connection and a version to hold the next answer against.
func (s *subjects) healthy(ctx context.Context, server *apiServer) error {
	opinions, err := server.ask(ctx)
	if err != nil {
		return err
	}
	if err := s.each(func(i int, p *subject) error {
		if !opinions[i].ok {
			return fmt.Errorf("kube-apiserver reports %q", opinions[i])
		}
		return p.healthy(ctx)
	}); err != nil {
		return fmt.Errorf("before any fault was set: %w", err)
	}
	return nil
}

func (s *subjects) fall() error {
	return s.each(func(_ int, p *subject) error { return p.fall() })
}

// judge asks both sides about the active faults, kube-apiserver first: until
// we ask, every call that a plugin receives is kube-apiserver's.
func (s *subjects) judge(ctx context.Context, server *apiServer) ([]verdicts, error) {
	found := make([]verdicts, len(s.list))
	for range maxTurns {
		if err := wait(ctx, settle); err != nil {
			return nil, err
		}
		opinions, err := server.ask(ctx)
		if err != nil {
			return nil, err
		}
		again := false
		for i, p := range s.list {
			if found[i].kube.why == "" { // else it was so in an earlier turn, which stays
				found[i].kube = opinions[i]
			}
			found[i].asked = p.asked()
			again = again || (p.fault.turns && found[i].kube.ok)
		}
		if !again {
			break
		}
	}
	return found, s.each(func(i int, p *subject) error {
		found[i].status, found[i].roundTrip = p.ask(ctx)
		return nil
	})
}

// heal ends all faults. Ours must see it by the next probe; kube-apiserver is
// waited for. It returns a text about that.
//
// kube-apiserver needs longer than its cache where the connection was lost: its
// gRPC client redials by an exponential backoff of up to two minutes. That is no
// verdict on an answer, so it is shown and not judged.
func (s *subjects) heal(ctx context.Context, server *apiServer) (string, error) {
	began := time.Now()
	err := s.each(func(_ int, p *subject) error {
		if err := p.heal(); err != nil {
			return err
		}
		return p.healthy(ctx)
	})
	if err != nil {
		return "", fmt.Errorf("after the fault was healed: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	last := ""
	for {
		opinions, err := server.ask(ctx)
		if err != nil {
			return "", fmt.Errorf("wait until kube-apiserver sees all healed%s: %w", last, err)
		}
		var unhealthy []string
		for i, p := range s.list {
			if !opinions[i].ok {
				unhealthy = append(unhealthy, p.fault.name)
			}
		}
		if len(unhealthy) == 0 {
			return fmt.Sprintf("Healed, all: ours showed it at the first probe, kube-apiserver within %.0f seconds%s.",
				time.Since(began).Seconds(), last), nil
		}
		last = fmt.Sprintf(" (last: %s)", strings.Join(unhealthy, "; "))
		if err := wait(ctx, time.Second); err != nil {
			return "", fmt.Errorf("wait until kube-apiserver sees all healed%s: %w", last, err)
		}
	}
}

// each does something with all subjects at once. Each error names its fault.
func (s *subjects) each(do func(i int, p *subject) error) error {
	errs := make([]error, len(s.list))
	var all sync.WaitGroup
	for i, p := range s.list {
		all.Go(func() {
			if err := do(i, p); err != nil {
				errs[i] = fmt.Errorf("%s: %w", p.fault.name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
