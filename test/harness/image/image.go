// Package image makes container images without a container engine.
package image

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is a container image that has only files. Equal images have equal digests.
type Image struct {
	Architecture string            // empty: the architecture of this host
	Files        map[string]string // path in the image: path on this host
	Entrypoint   []string
	User         string
	Labels       map[string]string
	Created      time.Time
}

// build builds the image with OCI's media types.
func (i *Image) build() (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(i.layer, tarball.WithCompressionLevel(gzip.BestSpeed),
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", i.architecture(), v1.Time{Time: i.Created}
	config.Config = v1.Config{Entrypoint: i.Entrypoint, User: i.User, Labels: i.Labels}
	return mutate.ConfigFile(image, config)
}

func (i *Image) architecture() string { return cmp.Or(i.Architecture, runtime.GOARCH) }

// layer returns a tar of the files. It is called several times.
func (i *Image) layer() (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(i.writeLayer(w)) }()
	return r, nil
}

func (i *Image) writeLayer(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, to := range slices.Sorted(maps.Keys(i.Files)) {
		if err := addFile(out, i.Files[to], strings.TrimPrefix(to, "/")); err != nil {
			return err
		}
	}
	return out.Close()
}

// addFile adds a file that every user can read, and can execute if its owner can. The host's umask has no effect.
func addFile(out *tar.Writer, file, as string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := out.WriteHeader(&tar.Header{Name: as, Mode: mode, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// Index is an image index: one image for several architectures.
type Index struct {
	index v1.ImageIndex
	name  name.Reference
}

// NewIndex joins images under one name, which must have a tag.
func NewIndex(named string, images ...*Image) (*Index, error) {
	tag, err := name.NewTag(named)
	if err != nil {
		return nil, err
	}
	x := &Index{name: tag, index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	for _, i := range images {
		built, err := i.build()
		if err != nil {
			return nil, fmt.Errorf("image %s for %s: %w", named, i.architecture(), err)
		}
		x.index = mutate.AppendManifests(x.index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.architecture()}},
		})
	}
	return x, nil
}

// Name returns the image's name with its tag.
func (x *Index) Name() string { return x.name.Name() }

// ByDigest returns the image's name with its digest.
func (x *Index) ByDigest() (string, error) {
	digest, err := x.index.Digest()
	if err != nil {
		return "", err
	}
	return x.name.Context().Digest(digest.String()).Name(), nil
}

// WriteLayout writes the image into a folder, as an OCI image layout. crane, skopeo and podman can push it.
func (x *Index) WriteLayout(dir string) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(x.index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          x.name.Name(),
		"org.opencontainers.image.ref.name": x.name.Identifier(),
	}))
}

// WriteArchive writes the image as an archive of an OCI image layout. docker, podman and containerd can load it.
func (x *Index) WriteArchive(archive string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(archive), "layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := x.WriteLayout(dir); err != nil {
		return err
	}
	return ArchiveLayout(dir, archive)
}

// ArchiveLayout writes an archive of a folder with an OCI image layout.
func ArchiveLayout(dir, archive string) (err error) {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := tar.NewWriter(f)
	if err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || entry.IsDir() {
			return err
		}
		as, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		return addFile(out, file, as)
	}); err != nil {
		return err
	}
	return out.Close()
}
