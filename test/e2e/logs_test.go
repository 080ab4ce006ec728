//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/stage"
)

// logLine is one of a container's, with the time at which the runtime received it.
type logLine struct {
	at   time.Time
	text string
	uid  string // of its pod
}

// lastLogged is the latest line that says all of this, of pods whose logs' folder, which
// is NAMESPACE_POD_UID, begins with a prefix.
func (h *house) lastLogged(podPrefix string, what ...string) (logLine, error) {
	paths, err := filepath.Glob(h.node().Path("/var/log/pods/" + podPrefix + "*/*/*.log"))
	if err != nil {
		return logLine{}, err
	}
	var last logLine
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return logLine{}, err
		}
	lines:
		for line := range strings.Lines(string(content)) {
			for _, w := range what {
				if !strings.Contains(line, w) {
					continue lines
				}
			}
			stamp, text, _ := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			if err == nil && at.After(last.at) {
				folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
				last = logLine{at, strings.TrimSpace(text), folder[strings.LastIndex(folder, "_")+1:]}
			}
		}
	}
	if last.at.IsZero() {
		return logLine{}, fmt.Errorf("none of %d logs of %s… says %q", len(paths), podPrefix, what)
	}
	return last, nil
}

// logged has nothing against logs of pods that say something since a time.
func (h *house) logged(podPrefix, what string, since time.Time) error {
	line, err := h.lastLogged(podPrefix, what)
	if err == nil && line.at.Before(since) {
		err = fmt.Errorf("it was said at %s", line.at.Format(time.TimeOnly))
	}
	return err
}

// reporterLogs begins the folder's name of the logs of a target's reporter.
func reporterLogs(server apiservers.Server) string {
	if server == apiservers.OpenShift {
		return server.Namespace + "_" + reporterPods[server]
	}
	return stage.Home + "_" + reporterPods[server]
}

const operatorLogs = stage.Home + "_" + operatorPods
