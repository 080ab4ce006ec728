package source

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Files are files with the operator resources of a cluster.
type Files struct {
	// Paths are files and folders; - is Stdin.
	Paths []string
	Stdin io.Reader
	// Objects keeps more than the operator resources: see Gathered.
	Objects bool
	// Target and Node are those of a reporter's output, which does not contain them;
	// empty: not known.
	Target, Node string
}

// Taken is the content of Files.
type Taken struct {
	Targets []view.Target
	// At is when it was taken: the time of the newest report, or that at which a must-gather
	// began, if that is later. Zero: neither is known.
	At time.Time
	// Began means that At is the time at which a must-gather began.
	Began bool
	// Gathered are the other objects, if wanted.
	Gathered *Gathered
	// Notes are warnings, a line each: files of a folder that could not be used, and
	// resources that were found twice.
	Notes []string
}

// ErrNothing is wrapped if files contain no operator resource.
var ErrNothing = errors.New("none of the operator resources is in it")

// maxFile bounds what is read of one file: a must-gather has logs of any size.
const maxFile = 64 << 20

// maxNotes is how many notes are kept.
const maxNotes = 20

// Read reads the files. A file given by its path must be usable; files in a folder may be
// skipped.
func (f Files) Read() (Taken, error) {
	r := &reading{Files: f, from: map[string]string{}}
	r.Gathered = &Gathered{places: map[place]bool{}, broken: map[place]bool{}, known: map[string]bool{}}
	for _, path := range f.Paths {
		var err error
		if path == "-" {
			err = r.stream("standard input", f.Stdin)
		} else {
			err = r.path(path)
		}
		if err != nil {
			return Taken{}, err
		}
	}
	if more := r.notes - maxNotes; more > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("and %d more such warnings", more))
	}
	order := func(t view.Target) int { // KMSHealths last, by name, as a cluster lists them
		at := slices.Index(contract.ResourceNames(), t.Name)
		if at < 0 {
			return len(contract.ResourceNames())
		}
		return at
	}
	slices.SortFunc(r.Targets, func(a, b view.Target) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range r.Targets {
		if at := t.Newest(); at.After(r.At) {
			r.At = at
		}
	}
	if r.began.After(r.At) {
		r.At, r.Began = r.began, true
	}
	return r.Taken, nil
}

type reading struct {
	Files
	Taken
	from   map[string]string // the path of each target
	began  time.Time         // when a must-gather began
	notes  int               // also those that are not kept
	parsed int               // bytes of the files of trees
}

func (r *reading) path(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return r.tree(path, folder{path}.walk)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.stream(path, file)
}

// stream reads a file, or an archive of a folder.
func (r *reading) stream(path string, from io.Reader) error {
	buffered := bufio.NewReaderSize(from, headBytes)
	head, err := buffered.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if isArchive(head) {
		return r.tree(path, archive{path, buffered, archiveLimits}.walk)
	}
	data, err := readAll(buffered)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	targets, err := r.parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range targets {
		if err := r.add(path, t); err != nil {
			return err
		}
	}
	return nil
}

func readAll(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("is over %d MiB; name the file of one operator resource", maxFile>>20)
	}
	return data, err
}

// add adds a target. If a resource was found twice, as when data was gathered twice, the
// newer one counts.
func (r *reading) add(path string, t view.Target) error {
	other, twice := r.from[t.Name]
	if !twice {
		r.from[t.Name] = path
		r.Targets = append(r.Targets, t)
		return nil
	}
	if t.IsOutput() {
		return fmt.Errorf("%s: a reporter's output contains no node, so it cannot be distinguished from that of %s; read them one at a time, with --node", path, other)
	}
	at := slices.IndexFunc(r.Targets, func(had view.Target) bool { return had.Name == t.Name })
	newer, older := other, path
	if t.Newest().After(r.Targets[at].Newest()) {
		newer, older = path, other
		r.Targets[at], r.from[t.Name] = t, path
	}
	r.note("%s is in %s, too; the newer one counts, in %s", t.Name, older, newer)
	return nil
}

func (r *reading) note(format string, args ...any) {
	if r.notes++; r.notes <= maxNotes {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}

func kindNames() string {
	var names []string
	for _, r := range contract.Resources {
		names = append(names, r.Kind)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
