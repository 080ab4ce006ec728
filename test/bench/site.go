package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

// patience bounds the wait for one thing to happen that should take a moment.
const patience = 30 * time.Second

// site is the surroundings of one reporter: its file, its plugins and their
// sockets. The plugins live in this process: each counts the calls that it
// receives, and when, without a poll between the event and us.
type site struct {
	name    string // also the node's
	dir     string
	binary  string // the reporter's
	file    configMap
	serving string
	plugins []*kmsplugin.Plugin // key ids are 1, 2, …
}

// newSite makes a site, with plugins that run.
func (l *lab) newSite(name string, plugins int) (_ *site, err error) {
	s := &site{name: name, dir: filepath.Join(l.dir, name), binary: l.reporter}
	s.file.dir = filepath.Join(l.configs, name)
	for _, dir := range []string{s.dir, s.file.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if s.serving, err = freeAddress(); err != nil {
		return nil, err
	}
	for i := range plugins {
		p, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + s.socket(i+1), StateDir: filepath.Join(s.dir, fmt.Sprintf("state-%d", i+1))})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.plugins = append(s.plugins, p)
	}
	return s, nil
}

func (s *site) close() error {
	var errs []error
	for _, p := range s.plugins {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func (s *site) socket(keyID int) string {
	return filepath.Join(s.dir, fmt.Sprintf("kms-%d.sock", keyID))
}

// start runs a reporter here.
func (s *site) start(stderr io.Writer) (*process, error) {
	return startProcess("the reporter of "+s.name, filepath.Join(s.dir, "reporter.log"), stderr,
		s.binary, "--config", s.file.file(), "--node-name", s.name)
}

// freeAddress returns an address on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// settings are what a reporter's file says. Metrics are always served.
type settings struct {
	interval     time.Duration
	kubeconfig   string // no destination if empty
	writeTimeout time.Duration
	keyIDs       []int // of the plugins, the first is the writer
}

func (s *site) render(c settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe: {interval: %s}\nserving: {address: '%s'}\n", c.interval, s.serving)
	if c.kubeconfig != "" {
		timeout := max(c.writeTimeout, time.Second)
		fmt.Fprintf(&b, "destination: {resource: %s, format: Condition, kubeconfig: '%s', writeTimeout: %s}\n", resource, c.kubeconfig, timeout)
	}
	b.WriteString("plugins:\n")
	for i, keyID := range c.keyIDs {
		role := "Write"
		if i > 0 {
			role = "Read"
		}
		fmt.Fprintf(&b, "- {endpoint: 'unix://%s', role: %s}\n", s.socket(keyID), role)
	}
	return b.String()
}

// firstCall waits for the first Status call that a plugin receives, and returns
// when that was.
func firstCall(ctx context.Context, p *kmsplugin.Plugin) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.WaitForCalls(ctx, kmsplugin.CallStatus, 1); err != nil {
		return time.Time{}, fmt.Errorf("wait for a probe of %s: %w", p.Endpoint(), err)
	}
	return p.Calls(kmsplugin.CallStatus).First, nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
