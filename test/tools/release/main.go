// Command release makes everything that a release consists of, from a checkout and without a
// container engine: archives of the programs, images, manifests with the images' digests, a bundle
// for OLM, the manifest of the kubectl plugin for krew, bills of materials and sums.
// Equal commits give equal bytes, with one version of Go.
//
//	release [flags]             everything; `make release` runs it
//	release --bundle DIR        the bundle alone, with images that do not exist, to validate it
//	release --images DIR        the images alone, for each a folder with an OCI image layout, which crane,
//	                            skopeo and podman push, and an archive of it, which docker and podman load
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
	r := &release{out: filepath.Join("bin", "release")} // which is emptied
	flag.StringVar(&r.version, "version", "", "the version, as the tag of the commit has it")
	flag.StringVar(&r.registry, "registry", "registry.invalid", "the part of the images' names before /kms-health-PROGRAM")
	architectures := flag.String("architectures", strings.Join(image.Architectures, ","), "Go's names, separated by commas")
	dirty := flag.Bool("dirty", false, "build a checkout that has changes")
	bundle := flag.String("bundle", "", "write the bundle alone into this folder")
	images := flag.String("images", "", "write the images alone into this folder")
	flag.Parse()
	r.architectures = strings.Split(*architectures, ",")
	r.builder.command = os.Getenv("RELEASE_BUILD")
	switch err := r.start(ctx, flag.NArg() > 0, *bundle, *images, *dirty); {
	case err == nil:
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// usageError is an error of the command line, or of what it asks for.
type usageError string

func (e usageError) Error() string { return string(e) }

func (r *release) start(ctx context.Context, arguments bool, bundle, images string, dirty bool) error {
	switch {
	case arguments || r.version == "":
		return usageError("usage: release --version VERSION [flags]; see release --help")
	case images != "":
		return r.imagesAlone(ctx, images)
	case !versionPattern.MatchString(r.version):
		return usageError(fmt.Sprintf("version %q is not vMAJOR.MINOR.PATCH or vMAJOR.MINOR.PATCH-PRERELEASE", r.version))
	case bundle != "":
		return r.bundleAlone(ctx, bundle)
	case r.builder.command == "":
		return usageError("RELEASE_BUILD is not set: run `make release`")
	}
	var err error
	if r.checkout, err = readCheckout(ctx, "."); err != nil {
		return err
	}
	if len(r.changes) > 0 && !dirty {
		return usageError(fmt.Sprintf("the checkout has changes; commit them, or set DIRTY=1 for a build that is no release:\n%s", strings.Join(r.changes, "\n")))
	}
	if err := r.make(ctx); err != nil {
		return err
	}
	return r.report(os.Stdout)
}
