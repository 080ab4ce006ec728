package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Output     string
}

// test names a test, or with no Name its package.
type test struct{ Package, Name string }

// summary follows the events of a run.
type summary struct {
	out io.Writer

	verdicts map[test]string   // pass, fail or skip
	output   map[test][]string // of what has not passed yet
	started  []test            // in order, of packages that have not ended

	anyFailed bool // a package or a test
	broken    bool // the run failed, and no package or test did
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, verdicts: map[test]string{}, output: map[test][]string{}}
}

func (s *summary) read(events io.Reader) error {
	decoder := json.NewDecoder(events)
	for {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the events of go test: %w", err)
		}
		s.add(e)
	}
}

func (s *summary) add(e event) {
	id := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "start", "run":
		s.started = append(s.started, id)
	case "output":
		s.output[id] = append(s.output[id], e.Output)
	case "pass", "skip", "fail":
		if e.Action == "fail" {
			s.anyFailed = true
		}
		s.verdicts[id] = e.Action
		if e.Test == "" {
			s.packageEnded(id, e.Action)
		} else if e.Action != "fail" {
			delete(s.output, id)
		}
	}
}

// packageEnded prints what is worth reading about a package, and forgets the rest.
func (s *summary) packageEnded(pkg test, verdict string) {
	var others []test
	for _, id := range s.started {
		if id.Package != pkg.Package {
			others = append(others, id)
			continue
		}
		if id == pkg {
			continue
		}
		if verdict == "fail" {
			// What passed has no output left. A test without a verdict was
			// still running when its process ended: its output may contain the cause.
			if _, judged := s.verdicts[id]; !judged {
				s.verdicts[id] = "fail"
			}
			fmt.Fprint(s.out, strings.Join(s.output[id], ""))
		}
		delete(s.output, id)
	}
	s.started = others

	// What a package reports outside of its tests, it reports to be read.
	for _, line := range s.output[pkg] {
		if noise := line == "PASS\n" || strings.HasPrefix(line, "?"); verdict == "fail" || !noise {
			fmt.Fprint(s.out, line)
		}
	}
	delete(s.output, pkg)
}

// count counts every test, example and subtest once, as `go test -v` lists them.
// A package that failed for a reason of its own (it does not build, its TestMain
// failed) is one failure.
func (s *summary) count() (passed, failed, skipped int) {
	withFailedTest := map[string]bool{}
	for id, verdict := range s.verdicts {
		if id.Name == "" {
			continue
		}
		switch verdict {
		case "pass":
			passed++
		case "skip":
			skipped++
		case "fail":
			failed++
			withFailedTest[id.Package] = true
		}
	}
	for id, verdict := range s.verdicts {
		if id.Name == "" && verdict == "fail" && !withFailedTest[id.Package] {
			failed++
		}
	}
	if s.broken {
		failed++
	}
	return passed, failed, skipped
}

func (s *summary) totals() string {
	passed, failed, skipped := s.count()
	line := fmt.Sprintf("%d passed, %d failed", passed, failed)
	if skipped > 0 {
		line += fmt.Sprintf(", %d skipped", skipped)
	}
	return line
}
