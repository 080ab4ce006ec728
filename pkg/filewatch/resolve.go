package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is how many symbolic links the kernel follows in one path before it
// returns ELOOP (MAXSYMLINKS; path_resolution(7)).
const maxLinks = 40

// step is the lookup of one name in one directory while the path of the file is
// resolved. If that entry of the directory changes, the path may resolve to another file.
type step struct {
	dir, name string      // dir holds no symbolic link
	target    string      // where name leads, if it is a symbolic link
	info      fs.FileInfo // nil if the name is absent, or stat is not permitted
}

func (s step) path() string { return filepath.Join(s.dir, s.name) }

// sameSteps reports whether two resolutions found the same files under the same names.
func sameSteps(a, b []step) bool {
	return slices.EqualFunc(a, b, func(a, b step) bool {
		return a.dir == b.dir && a.name == b.name && a.target == b.target &&
			(a.info == nil) == (b.info == nil) && (a.info == nil || os.SameFile(a.info, b.info))
	})
}

// resolve resolves an absolute path as the kernel does (path_resolution(7)), and
// returns every lookup. It ends where the kernel's resolution ends: at the file, or
// at the first name that is absent, unreadable, not a directory, or exceeds the limit
// of links. The last step is then the one that must change before the path resolves
// further.
func resolve(path string) []step {
	var steps []step
	dir, links := "/", 0
	rest := strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir) // the same as the kernel's "..", since dir holds no links
			continue
		}

		s := step{dir: dir, name: name}
		s.info, _ = os.Lstat(s.path())
		link := s.info != nil && s.info.Mode().Type() == fs.ModeSymlink
		if link {
			s.target, _ = os.Readlink(s.path())
			links++
		}
		steps = append(steps, s)

		switch {
		case link && s.target != "" && links <= maxLinks:
			if filepath.IsAbs(s.target) {
				dir = "/"
			}
			rest = slices.Concat(strings.Split(s.target, "/"), rest)
		case s.info != nil && s.info.IsDir():
			dir = s.path()
		default:
			return steps
		}
	}
	return steps
}
