package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/test/controlplane"
)

// What the reporters write to, as whom.
const (
	resource  = controlplane.KubeAPIServers
	namespace = "kms-health"
	account   = "bench"
)

// reporterBinary is what `make bench` builds.
const reporterBinary = "bin/kms-health-reporter"

// lab is what the measurements share.
type lab struct {
	plan     plan
	dir      string // short, as sockets' paths must be
	configs  string // see newLab
	began    time.Time
	table    table
	reporter string                     // the binary
	floor    string                     // the binary
	cluster  *controlplane.ControlPlane // nil until startCluster
	token    string
}

func newLab(p plan) (_ *lab, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, errors.New("KUBEBUILDER_ASSETS is not set, so there will be no API server; run `make bench`, which sets it")
	}
	l := &lab{plan: p, began: time.Now()}
	if l.dir, err = os.MkdirTemp("", "kmsb"); err != nil {
		return nil, err
	}
	// The files that are watched are not in /tmp: to watch a folder costs the
	// kernel a look at every name below it that it remembers, those of deleted
	// files included. In /tmp that is milliseconds on a machine that builds; in
	// /etc it is nothing, and so it is here.
	configs, err := os.MkdirTemp(filepath.Dir(reporterBinary), "bench")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; run `make bench`", err), l.close())
	}
	if l.configs, err = filepath.Abs(configs); err != nil {
		return nil, errors.Join(err, os.RemoveAll(configs), l.close())
	}
	l.reporter, l.floor = filepath.Join(l.dir, "reporter"), filepath.Join(l.dir, "floor")
	return l, nil
}

// buildReporter makes the reporter and the floor.
func (l *lab) buildReporter(ctx context.Context) error {
	// A copy, since somebody may build another during the run.
	if err := unpack(reporterBinary, l.reporter); err != nil {
		return fmt.Errorf("%w; run `make bench`, which builds it", err)
	}
	l.say("building the floor")
	return build(ctx, "./test/bench/floor", l.floor)
}

// build makes a program as the Makefile does.
func build(ctx context.Context, program, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace,nethttpomithttp2", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return nil
}

func (l *lab) close() error {
	errs := []error{l.stopCluster(context.Background()), os.RemoveAll(l.dir)}
	if l.configs != "" {
		errs = append(errs, os.RemoveAll(l.configs))
	}
	return errors.Join(errs...)
}

// say tells how far we are.
func (l *lab) say(format string, args ...any) {
	at := time.Since(l.began).Round(time.Second)
	fmt.Printf("%6s  %s\n", at, fmt.Sprintf(format, args...))
}

// binary measures the size of the reporter's.
func (l *lab) binary(context.Context) error {
	info, err := os.Stat(l.reporter)
	if err != nil {
		return err
	}
	floor, err := os.Stat(l.floor)
	if err != nil {
		return err
	}
	l.table.add(row{
		what:     "binary, stripped",
		measured: megabytes(info.Size()),
		floor:    megabytes(floor.Size()),
		bound:    megabytes(maxBinary),
		verdict:  atMost(info.Size(), maxBinary),
	})
	return nil
}

// startCluster brings up the API server, and the identity that may write to it.
func (l *lab) startCluster(ctx context.Context) (err error) {
	l.say("starting etcd and kube-apiserver")
	if l.cluster, err = controlplane.Start(ctx, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade}); err != nil {
		return err
	}
	if err := l.cluster.CreateServiceAccount(ctx, namespace, account); err != nil {
		return err
	}
	if err := l.cluster.AllowStatusPatch(ctx, controlplane.ServiceAccountUser(namespace, account), resource); err != nil {
		return err
	}
	l.token, err = l.cluster.ServiceAccountToken(ctx, namespace, account, controlplane.TokenOptions{})
	return err
}

// stopCluster takes it down, where it is up.
func (l *lab) stopCluster(context.Context) error {
	if l.cluster == nil {
		return nil
	}
	cluster := l.cluster
	l.cluster = nil
	return cluster.Stop()
}

// unpack copies a binary in pieces of 32 KiB, as container runtimes do with
// images. It matters: by a single large write the kernel's page cache gets large
// folios, and maps megabytes of the binary that nothing touches.
func unpack(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	// The wrappers hide that both are files, which the kernel would copy whole.
	_, err = io.CopyBuffer(struct{ io.Writer }{target}, struct{ io.Reader }{source}, make([]byte, 32<<10))
	return errors.Join(err, target.Close())
}
