package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// headBytes is the size of a tar's header, which its kind is recognized by.
const headBytes = 512

var gzipMagic = []byte{0x1f, 0x8b}

func isArchive(head []byte) bool {
	return bytes.HasPrefix(head, gzipMagic) || len(head) > 262 && string(head[257:262]) == "ustar"
}

// limits bound what is read of an archive, which may unpack to any size.
type limits struct {
	bytes   int64
	entries int
}

var archiveLimits = limits{bytes: 16 << 30, entries: 1 << 20}

// treeFile is a file of a folder or of an archive.
type treeFile struct {
	at   string // its path, with slashes
	size int64
	link bool                   // which is never followed
	read func() ([]byte, error) // its content; called at most once, and before the next file
}

type visitor func(treeFile) error

// content reads the file, if it is one, and not too large.
func (f treeFile) content() ([]byte, error) {
	switch {
	case f.link:
		return nil, errors.New("is a link; links are not followed")
	case f.size > maxFile:
		return nil, fmt.Errorf("is over %d MiB", maxFile>>20)
	}
	return f.read()
}

// walkArchive visits the files of a tar or tar.gz. Nothing of it is written to a disk.
func walkArchive(name string, from *bufio.Reader, limits limits, visit visitor) error {
	unpacked := io.Reader(from)
	if head, err := from.Peek(len(gzipMagic)); err == nil && bytes.Equal(head, gzipMagic) {
		if unpacked, err = gzip.NewReader(from); err != nil {
			return fmt.Errorf("%s: is not a tar or tar.gz of a folder, or is cut off: %w", name, err)
		}
	}
	bounded := &io.LimitedReader{R: unpacked, N: limits.bytes}
	files := tar.NewReader(bounded)
	for n := 0; ; n++ {
		header, err := files.Next()
		if err == nil && (path.IsAbs(header.Name) || slices.Contains(strings.Split(header.Name, "/"), "..")) {
			return fmt.Errorf("%s: refused: the path of its file %q leads out of it", name, header.Name)
		}
		if err == nil && slices.Contains([]byte{tar.TypeReg, tar.TypeSymlink, tar.TypeLink}, header.Typeflag) {
			err = visit(treeFile{
				at: name + "/" + path.Clean(header.Name), size: header.Size, link: header.Typeflag != tar.TypeReg,
				read: func() ([]byte, error) { return readAll(files) },
			})
			if err != nil && bounded.N > 0 {
				return err
			}
		}
		switch {
		case bounded.N <= 0:
			return fmt.Errorf("%s: unpacks to over %d MiB; unpack it, and name the folder", name, limits.bytes>>20)
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case err != nil:
			const text = "%s: is not a tar or tar.gz of a folder, or is cut off or damaged after %d entries: %w"
			return fmt.Errorf(text, name, n, err)
		case n >= limits.entries:
			return fmt.Errorf("%s: has over %d files", name, limits.entries)
		}
	}
}

// walkFolder visits the files of a folder. What cannot be read of it is skipped.
func walkFolder(name string, visit visitor, skipped func(at string, err error)) error {
	// WalkDir does not follow a link, were it the folder itself.
	root, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.Type().IsRegular() && entry.Type()&fs.ModeSymlink == 0 {
			return nil // a folder, a device
		}
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if err != nil {
			skipped(at, err)
			return nil
		}
		return visit(treeFile{
			at: filepath.ToSlash(at), size: info.Size(), link: !entry.Type().IsRegular(),
			read: func() ([]byte, error) { return os.ReadFile(at) },
		})
	})
}
