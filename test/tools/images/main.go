// Command images builds both images of a checkout, without a container engine. For each it writes a
// folder with an OCI image layout, which crane, skopeo and podman can push, and an archive of it, which
// docker and podman can load. With the same version of Go, equal commits give equal digests.
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	version := flag.String("version", "", "the images' tag")
	registry := flag.String("registry", "registry.invalid", "the part of the images' names before /kms-health-PROGRAM")
	all := strings.Join(image.Architectures, ",")
	architectures := flag.String("architectures", all, "Go's names, separated by commas")
	programs := flag.String("programs", "", "the folder to leave the programs in, as linux-ARCHITECTURE/PROGRAM")
	out := flag.String("out", filepath.Join("bin", "images"), "the folder to write into")
	flag.Parse()
	err := run(ctx, *out, *programs, *registry, *version, strings.Split(*architectures, ","))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, programs, registry, version string, architectures []string) (err error) {
	if programs == "" {
		if programs, err = os.MkdirTemp("", "kms-health-images-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	}
	for _, name := range image.Programs {
		fmt.Printf("kms-health-%s: building for %s\n", name, strings.Join(architectures, ", "))
		index, err := image.FromCheckout(ctx, ".", name, registry, version, programs, architectures...)
		if err != nil {
			return err
		}
		layout := filepath.Join(out, "kms-health-"+name)
		if err := errors.Join(os.RemoveAll(layout), os.MkdirAll(out, 0o755)); err != nil {
			return err
		}
		if err := errors.Join(index.WriteLayout(layout), image.ArchiveLayout(layout, layout+".tar")); err != nil {
			return err
		}
		reference, err := index.ByDigest()
		if err != nil {
			return err
		}
		fmt.Printf("%s\n  %s.tar (load it), %s (push it)\n", reference, layout, layout)
	}
	return nil
}
