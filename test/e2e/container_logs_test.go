//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// logLine is one of a container's, with the time at which the runtime received it.
type logLine struct {
	at        time.Time
	text      string
	container string
	uid       string // of its pod
}

// lastLogged is the latest line that reports all of this, of pods whose logs' folder, which
// is NAMESPACE_POD_UID, begins with a prefix.
func (h *scenario) lastLogged(podPrefix string, what ...string) (logLine, error) {
	lines, err := h.logLines(podPrefix, what...)
	if err != nil {
		return logLine{}, err
	}
	if len(lines) == 0 {
		return logLine{}, fmt.Errorf("no log of %s… reports %q", podPrefix, what)
	}
	return slices.MaxFunc(lines, func(a, b logLine) int { return a.at.Compare(b.at) }), nil
}

// logLines are all such lines.
func (h *scenario) logLines(podPrefix string, what ...string) ([]logLine, error) {
	paths, err := filepath.Glob(h.node().Path("/var/log/pods/" + podPrefix + "*/*/*.log"))
	if err != nil {
		return nil, err
	}
	var found []logLine
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
		uid := folder[strings.LastIndex(folder, "_")+1:]
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(what, func(w string) bool { return !strings.Contains(line, w) }) {
				continue
			}
			stamp, text, _ := strings.Cut(line, " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				found = append(found, logLine{at, strings.TrimSpace(text), filepath.Base(filepath.Dir(path)), uid})
			}
		}
	}
	return found, nil
}

// logged requires that logs of pods contain a text since a time.
func (h *scenario) logged(podPrefix, what string, since time.Time) error {
	line, err := h.lastLogged(podPrefix, what)
	if err == nil && line.at.Before(since) {
		err = fmt.Errorf("it was reported at %s", line.at.Format(time.TimeOnly))
	}
	return err
}

// reporterLogs begins the folder's name of the logs of a target's reporter.
func reporterLogs(server apiservers.Server) string {
	if server == apiservers.OpenShift {
		return server.Namespace + "_" + reporterPods[server]
	}
	return fixture.Home + "_" + reporterPods[server]
}

const operatorLogs = fixture.Home + "_" + operatorPods
