package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// subject is one plugin, its fault, and our two long-lived probes of it.
type subject struct {
	fault     fault
	plugin    *kmsplugin.Plugin
	status    *probe.Plugin
	roundTrip *probe.Plugin
}

type subjects struct {
	dir  string
	list []*subject
}

// startSubjects starts a plugin for each fault, healthy but for what the fault
// reports of its start.
func startSubjects(faults []fault) (_ *subjects, err error) {
	dir, err := os.MkdirTemp("", "kms-health-parity-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the sockets: %w", err)
	}
	s := &subjects{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for i, f := range faults {
		path := filepath.Join(dir, fmt.Sprintf("kms-%d.sock", i))
		plugin, err := kmsplugin.Start(kmsplugin.Options{
			Endpoint: "unix://" + path,
			StateDir: filepath.Join(dir, fmt.Sprintf("state-%d", i)),
		})
		if err != nil {
			return nil, fmt.Errorf("%s: start the plugin: %w", f.name, err)
		}
		p := &subject{fault: f, plugin: plugin, status: probe.NewPlugin(path), roundTrip: probe.NewPlugin(path)}
		s.list = append(s.list, p)
		if err := p.do(f.start); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return s, nil
}

func (s *subjects) close() error {
	err := s.each(func(_ int, p *subject) error {
		p.status.Close()
		p.roundTrip.Close()
		return p.plugin.Close()
	})
	return errors.Join(err, os.RemoveAll(s.dir))
}

// fall makes the plugin unhealthy, and counts its calls from there.
func (p *subject) fall() error {
	if err := p.do(p.fault.steps); err != nil {
		return err
	}
	p.plugin.ResetCounters()
	return nil
}

// heal brings back what held from the start.
func (p *subject) heal() error {
	if err := p.plugin.ClearFaults(); err != nil {
		return err
	}
	return p.do(p.fault.start)
}

func (p *subject) do(lines []string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if err := p.plugin.Do(words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// asked is how often Status was called since the fault.
func (p *subject) asked() int64 { return p.plugin.Calls(kmsplugin.CallStatus).Count }

// ask asks ours, as often as it takes for a plugin that answers by turns.
func (p *subject) ask(ctx context.Context) (status, roundTrip opinion) {
	turns := 1
	if p.fault.turns {
		turns = maxTurns
	}
	ours := func(plugin *probe.Plugin, trip bool) (o opinion) {
		settings := probe.Settings{Timeout: timeout}
		for range turns {
			r := plugin.Probe(ctx, settings)
			if o = ourOpinion(r); o.ok && trip {
				t := plugin.RoundTrip(ctx, settings, r.KEKID)
				o = opinion{ok: t.Made && t.Status == contract.Healthy, verdict: string(t.Status), why: t.Detail}
			}
			if !o.ok {
				break
			}
		}
		return o
	}
	return ours(p.status, false), ours(p.roundTrip, true)
}

// healthy sees that ours find the plugin healthy, by one probe each.
func (p *subject) healthy(ctx context.Context) error {
	status, roundTrip := p.ask(ctx)
	if !status.ok {
		return fmt.Errorf("we report %q", status)
	}
	if !roundTrip.ok {
		return fmt.Errorf("we with RoundTrip report %q", roundTrip)
	}
	return nil
}

func ourOpinion(r probe.Result) opinion {
	switch {
	case r.Gone:
		return opinion{verdict: "gone", why: "the socket's folder was deleted"}
	case r.Status == contract.Healthy:
		return opinion{ok: true}
	default:
		return opinion{verdict: string(r.Status), why: r.Detail}
	}
}
