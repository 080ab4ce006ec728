package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is how many symbolic links the kernel follows in one path before it
// says ELOOP (MAXSYMLINKS; path_resolution(7)).
const maxLinks = 40

// step is one name looked up in one directory on the way to the file. Changing
// what that name is, in that directory, changes what the path leads to.
type step struct {
	dir, name string      // dir holds no symbolic link
	target    string      // where name leads, if it is a symbolic link
	info      fs.FileInfo // nil when there is no such name, or it cannot be seen
}

func (s step) path() string { return filepath.Join(s.dir, s.name) }

// sameWay reports whether two walks met the same files under the same names.
func sameWay(a, b []step) bool {
	return slices.EqualFunc(a, b, func(a, b step) bool {
		return a.dir == b.dir && a.name == b.name && a.target == b.target &&
			(a.info == nil) == (b.info == nil) && (a.info == nil || os.SameFile(a.info, b.info))
	})
}

// resolve walks path, an absolute one, as the kernel does (path_resolution(7)),
// and returns every lookup on the way. It ends where the kernel's walk would:
// at the file, or at the first name that is absent, unreadable, not a
// directory, or one link too many. The last step is then the one that must
// change for the path to lead further.
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
			dir = filepath.Dir(dir) // true to the kernel, as dir holds no links
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
