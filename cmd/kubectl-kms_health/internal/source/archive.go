package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// headBytes is the size of a tar's header, which its kind is recognized by.
const headBytes = 512

var gzipMagic = []byte{0x1f, 0x8b}

func isArchive(head []byte) bool {
	return bytes.HasPrefix(head, gzipMagic) || isTar(head)
}

func isTar(head []byte) bool { return len(head) > 262 && string(head[257:262]) == "ustar" }

// limits bound what is read of an archive, which may unpack to any size.
type limits struct {
	bytes   int64
	entries int
}

var archiveLimits = limits{bytes: 16 << 30, entries: 1 << 20}

// archive is a tree in a tar, or a tar.gz. Nothing of it is written to a disk, and links
// in it are not followed.
type archive struct {
	path   string
	from   io.Reader
	limits limits
}

func (a archive) walk(visit func(treeFile) error, _ func(string, error)) error {
	unpacked, err := a.unpacked()
	if err != nil {
		return err
	}
	bounded := &bounded{from: unpacked, left: a.limits.bytes}
	files := tar.NewReader(bounded)
	for n := 0; ; n++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return a.failed(err, n)
		}
		if n >= a.limits.entries {
			return fmt.Errorf("%s: has over %d files", a.path, a.limits.entries)
		}
		f, err := fileOf(header)
		if err != nil {
			return fmt.Errorf("%s: refused: %w", a.path, err)
		}
		if f == nil {
			continue
		}
		f.at = a.path + "/" + f.at
		f.read = func() ([]byte, error) { return readAll(files) }
		if err := visit(*f); err != nil {
			if bounded.left < 0 {
				return a.failed(errUnpacked, n)
			}
			return err
		}
	}
}

func (a archive) unpacked() (io.Reader, error) {
	head := make([]byte, len(gzipMagic))
	if _, err := io.ReadFull(a.from, head); err != nil {
		return nil, fmt.Errorf("%s: %w", a.path, err)
	}
	whole := io.MultiReader(bytes.NewReader(head), a.from)
	if !bytes.Equal(head, gzipMagic) {
		return whole, nil
	}
	unpacked, err := gzip.NewReader(whole)
	if err != nil {
		return nil, a.failed(err, 0)
	}
	return unpacked, nil
}

// failed explains why an archive cannot be read after some entries.
func (a archive) failed(err error, entries int) error {
	switch {
	case errors.Is(err, errUnpacked):
		return fmt.Errorf("%s: unpacks to over %d MiB; unpack it, and name the folder", a.path, a.limits.bytes>>20)
	case entries == 0:
		return fmt.Errorf("%s: is not a tar or tar.gz of a folder, or is cut off: %w", a.path, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: is an archive that is cut off, after %d entries: %w", a.path, entries, err)
	default:
		return fmt.Errorf("%s: is a damaged archive, after %d entries: %w", a.path, entries, err)
	}
}

// fileOf returns the file of an entry; nil: it is of no interest. An entry with a path out of
// the archive is an error: no program writes one in good faith.
func fileOf(header *tar.Header) (*treeFile, error) {
	name := header.Name
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, fmt.Errorf("the path of its file %q leads out of it", name)
	}
	f := &treeFile{at: path.Clean(name), size: header.Size}
	switch header.Typeflag {
	case tar.TypeReg:
	case tar.TypeSymlink, tar.TypeLink:
		f.link = header.Linkname
		if f.link == "" {
			f.link = "another file"
		}
	default: // folders, devices
		return nil, nil
	}
	return f, nil
}

var errUnpacked = errors.New("too large")

// bounded fails once it has read too much.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errUnpacked
	}
	n, err := b.from.Read(p)
	b.left -= int64(n)
	return n, err
}
