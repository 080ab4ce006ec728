//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/e2e/stage"
)

// A new interval, by the live path, while the one workload that could be rolled is
// paused: no pod is replaced.
func Test06LiveInterval(t *testing.T) {
	h := newHouse(t, true)
	h.awaitHealthy(apiservers.All...)
	before := h.allPIDs()
	_, err := h.Kubectl(h.ctx, "", "-n", apiservers.OpenShift.Namespace, "rollout", "pause", "deployment/apiserver")
	h.must(err)
	t.Cleanup(func() {
		_, _ = h.Kubectl(context.WithoutCancel(t.Context()), "", "-n", apiservers.OpenShift.Namespace, "rollout", "resume", "deployment/apiserver")
	})
	change := func(interval string) {
		t.Helper()
		start := time.Now()
		h.must(h.Configure(h.ctx, strings.Replace(stage.Configuration, "interval: 1s", "interval: "+interval, 1)))
		for _, server := range apiservers.All {
			var at inForce
			h.await(2*time.Minute, server.Name+": interval "+interval+" is in force", func() error {
				at, err = h.inForce(server)
				if err == nil && at.interval != interval {
					err = fmt.Errorf("interval %s is in force", at.interval)
				}
				return err
			})
			ours := at.logged.Sub(at.swapped)
			times.took("6 live interval", server.Name+": change to in force", at.logged.Sub(start), at.swapped.Sub(start), "250ms")
			if ours > 250*time.Millisecond || ours < 0 {
				t.Errorf("%s: interval %s came into force %s after the kubelet's swap, must be within 250ms", server.Name, interval, ours)
			}
		}
	}
	change("2s")
	change("1s")
	h.untouched(before)
	h.awaitHealthy(apiservers.All...)
}

// inForce is a reporter's configuration: when the kubelet swapped the folder that it is
// in, and when the reporter said that it is in force.
type inForce struct {
	interval        string
	swapped, logged time.Time
}

func (h *house) inForce(server apiservers.Server) (inForce, error) {
	// What the container writes, with the time at which the runtime received it.
	logs, err := filepath.Glob(h.node().Path("/var/log/pods/*_" + reporterPods[server] + "*/" + reporterContainer + "/*.log"))
	if err != nil {
		return inForce{}, err
	}
	logs = slices.DeleteFunc(logs, func(path string) bool { return !strings.Contains(path, podNamespace(server)) })
	if len(logs) == 0 {
		return inForce{}, errors.New("no log")
	}
	newest := logs[0]
	for _, path := range logs {
		if modified(path).After(modified(newest)) {
			newest = path
		}
	}
	f, err := os.Open(newest)
	if err != nil {
		return inForce{}, err
	}
	defer f.Close()
	var found inForce
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if !strings.Contains(line, `"Configuration in force"`) {
			continue
		}
		stamp, _, _ := strings.Cut(line, " ")
		if found.logged, err = time.Parse(time.RFC3339Nano, stamp); err != nil {
			return inForce{}, err
		}
		_, rest, _ := strings.Cut(line, `interval="`)
		found.interval, _, _ = strings.Cut(rest, `"`)
	}
	// …/<namespace>_<pod>_<uid>/kms-health/0.log
	folder := filepath.Base(filepath.Dir(filepath.Dir(newest)))
	uid := folder[strings.LastIndex(folder, "_")+1:]
	swaps, err := filepath.Glob(h.node().Path("/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~*/*/..data"))
	if err != nil {
		return inForce{}, err
	}
	for _, link := range swaps {
		info, err := os.Lstat(link)
		if err != nil {
			return inForce{}, err
		}
		// A rename is a change of the link: its ctime. Other volumes of the pod are
		// swapped at other times, so it is the last before the configuration came into
		// force.
		stat := info.Sys().(*syscall.Stat_t)
		if at := time.Unix(stat.Ctim.Unix()); at.After(found.swapped) && at.Before(found.logged) {
			found.swapped = at
		}
	}
	if found.swapped.IsZero() {
		return inForce{}, errors.New("no swap")
	}
	return found, lines.Err()
}

// podNamespace begins the folder's name of the logs of a target's reporter.
func podNamespace(server apiservers.Server) string {
	if server == apiservers.OpenShift {
		return "/" + server.Namespace + "_"
	}
	return "/openshift-kms-health_"
}

func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
