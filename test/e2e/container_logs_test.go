//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// logLine is a line of a container's log, with the time at which the runtime received it.
type logLine struct {
	at   time.Time
	text string
}

// lastLogged returns the latest line that has all of these texts in the logs of a container, in pods whose name begins
// with a prefix.
func (h *scenario) lastLogged(podPrefix, container string, what ...string) (logLine, error) {
	lines, err := h.logLines(podPrefix, container, what...)
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("no log of %s… has %q", podPrefix, what)
	}
	if err != nil {
		return logLine{}, err
	}
	return slices.MaxFunc(lines, func(a, b logLine) int { return a.at.Compare(b.at) }), nil
}

// logLines returns all such lines.
func (h *scenario) logLines(podPrefix, container string, what ...string) (found []logLine, err error) {
	paths, err := filepath.Glob(h.node().Path("/var/log/pods/*_" + podPrefix + "*/" + container + "/*.log"))
	for _, path := range paths {
		content, failed := os.ReadFile(path)
		if !errors.Is(failed, fs.ErrNotExist) { // the kubelet may have removed a former container's log
			err = errors.Join(err, failed)
		}
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(what, func(w string) bool { return !strings.Contains(line, w) }) {
				continue
			}
			stamp, text, _ := strings.Cut(line, " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				found = append(found, logLine{at, strings.TrimSpace(text)})
			}
		}
	}
	return found, err
}
