// Command testsum runs `go test` and ends with one line of totals.
//
//	testsum [flags and packages of go test] [-- more of them]...
//
// Each group of arguments is a run of its own; the totals are of all of them.
// It prints go test's closing line for each package ("ok …", "FAIL …"), what a
// failed test printed, in full, and nothing of the tests that passed. Its exit
// status is 1 if any run's was not 0.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	sum := newSummary(os.Stdout)
	status := 0
	for _, args := range groups(os.Args[1:]) {
		failedBefore := sum.failEvents
		if err := run(args, sum); err != nil {
			status = 1
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				fmt.Fprintf(os.Stderr, "testsum: %v\n", err)
			}
			// go test itself gave up, on a bad flag or pattern say: not a silent "0 failed".
			if sum.failEvents == failedBefore {
				sum.brokenRuns++
			}
		}
	}
	fmt.Println(sum.totals())
	os.Exit(status)
}

// groups splits the arguments at each "--".
func groups(args []string) [][]string {
	var all [][]string
	for {
		i := slices.Index(args, "--")
		if i < 0 {
			return append(all, args)
		}
		all = append(all, args[:i])
		args = args[i+1:]
	}
}

func run(args []string, sum *summary) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	readErr := sum.read(out)
	// Drained even when it could not be understood, so that go test can end.
	_, drainErr := io.Copy(io.Discard, out)
	return errors.Join(readErr, drainErr, cmd.Wait())
}
