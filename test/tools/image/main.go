// Command image makes the images of a checkout, from its Dockerfile and without a container
// engine: for each program a folder with an OCI image layout, which crane, skopeo and podman
// push, and an archive of it, which docker, podman and containerd load.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kms-health/kms-health/test/harness/image"
)

func main() { os.Exit(command()) }

// command returns the exit code.
func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	registry := flag.String("registry", "registry.invalid", "the part of the images' names before /kms-health-PROGRAM")
	version := flag.String("version", "", "their tag, and what the programs give as their version")
	architectures := flag.String("architectures", strings.Join(image.Architectures, ","), "Go's names, separated by commas")
	out := flag.String("out", "bin/images", "folder for the layouts and archives")
	flag.Parse()
	if *version == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "error: usage: image --version VERSION [flags]; see image --help")
		return 2
	}
	if err := run(ctx, *registry, *version, *out, strings.Split(*architectures, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, registry, version, out string, architectures []string) (err error) {
	programs, err := os.MkdirTemp("", "kms-health-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	for _, program := range image.Programs {
		fmt.Printf("kms-health-%s: building for %s\n", program, strings.Join(architectures, ", "))
		made, err := image.FromCheckout(ctx, ".", program, registry, version, programs, architectures...)
		if err != nil {
			return err
		}
		layout := filepath.Join(out, "kms-health-"+program)
		if err := errors.Join(os.RemoveAll(layout), os.MkdirAll(out, 0o755)); err != nil {
			return err
		}
		if err := made.WriteLayout(layout); err != nil {
			return err
		}
		if err := image.ArchiveLayout(layout, layout+".tar"); err != nil {
			return err
		}
		named, err := made.ByDigest()
		if err != nil {
			return err
		}
		fmt.Printf("%s\n  %s (load it), %s (push it)\n", named, layout+".tar", layout)
	}
	return nil
}
