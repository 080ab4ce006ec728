// Command testsum runs `go test` with its arguments, and ends with one line of totals.
//
// It prints go test's closing line for each package ("ok …", "FAIL …"), what a
// failed test printed, in full, and nothing of the tests that passed. Its exit
// status is 1 if that of go test was not 0.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	sum := newSummary(os.Stdout)
	err := run(os.Args[1:], sum)
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			fmt.Fprintf(os.Stderr, "testsum: %v\n", err)
		}
		// go test itself gave up, for example on an invalid flag or pattern: not a silent "0 failed".
		sum.broken = !sum.anyFailed
	}
	fmt.Println(sum.totals())
	if err != nil {
		os.Exit(1)
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
