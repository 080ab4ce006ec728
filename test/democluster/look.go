package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/controlplane"
)

// Labels and annotations of the operator's, as users know them.
const (
	managed          = "app.kubernetes.io/managed-by=kms-health-operator"
	configAnnotation = "kmshealth.openshift.io/config"
)

// conditions are the messages of those of kubeapiservers/cluster, by type.
func (s *stage) conditions() (map[string]string, error) {
	o, err := s.client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers)).Get(s.ctx, controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return nil, err
	}
	messages := map[string]string{}
	for _, c := range list {
		c, _ := c.(map[string]any)
		kind, _ := c["type"].(string)
		messages[kind], _ = c["message"].(string)
	}
	return messages, nil
}

// reports are what the nodes' conditions say.
func (s *stage) reports() (map[string][]health.Entry, error) {
	messages, err := s.conditions()
	if err != nil {
		return nil, err
	}
	reports := map[string][]health.Entry{}
	for kind, message := range messages {
		if node, ok := health.NodeOf(kind); ok {
			if reports[node], err = health.DecodeMessage(message); err != nil {
				return nil, fmt.Errorf("condition %s: %w", kind, err)
			}
		}
	}
	return reports, nil
}

// want is what the nodes are to say: "1=healthy 2=healthy", the write key first.
type want map[string]string

// all wants the same of every node.
func all(text string) want {
	w := want{}
	for _, node := range nodeNames {
		w[node] = text
	}
	return w
}

// but is w with something else of one node.
func (w want) but(node, text string) want {
	w = maps.Clone(w)
	w[node] = text
	return w
}

// expect waits until the nodes' conditions say this, freshly and every interval,
// and shows them.
func (s *stage) expect(what string, w want, every time.Duration) error {
	var reports map[string][]health.Entry
	err := s.until(what, func() (err error) {
		if reports, err = s.reports(); err != nil {
			return err
		}
		for _, node := range nodeNames {
			if got := describe(reports[node], every); got != w[node] {
				return fmt.Errorf("%s says %q, must say %q", node, got, w[node])
			}
		}
		return nil
	})
	if err == nil {
		s.table(reports)
	}
	return err
}

func describe(entries []health.Entry, every time.Duration) string {
	var parts []string
	for _, e := range entries {
		text := e.KeyID + "=" + string(e.Status)
		if f := e.Freshness(time.Now()); f != health.Fresh {
			text += "," + string(f)
		}
		if e.Interval != every {
			text += ",every " + e.Interval.String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// companions are the reporters' pods, by node.
func (s *stage) companions() (map[string]*corev1.Pod, error) {
	list, err := s.kube.CoreV1().Pods(home).List(s.ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			pods[p.Spec.NodeName] = p
		}
	}
	return pods, nil
}

// awaitCompanions waits until exactly these nodes have one that runs.
func (s *stage) awaitCompanions(on ...string) error {
	return s.until("companions on "+strings.Join(on, ", "), func() error { return s.run(on...) })
}

// run says what is wrong when companions run elsewhere than on these nodes.
func (s *stage) run(on ...string) error {
	pods, err := s.companions()
	if err != nil {
		return err
	}
	var running []string
	for node, p := range pods {
		if p.Status.Phase == corev1.PodRunning {
			running = append(running, node)
		}
	}
	if slices.Sort(running); !slices.Equal(running, on) || len(pods) != len(on) {
		return fmt.Errorf("they run on %v, and there are %d", running, len(pods))
	}
	return nil
}

// expectAfter waits until every node has written since a time, and shows that.
func (s *stage) expectAfter(since time.Time) error {
	var reports map[string][]health.Entry
	err := s.until("every node has reported since "+since.Format(time.TimeOnly), func() (err error) {
		if reports, err = s.reports(); err != nil {
			return err
		}
		for _, node := range nodeNames {
			// Times are in whole seconds, cut off.
			if entries := reports[node]; len(entries) == 0 || !entries[0].LastChecked.After(since) {
				return fmt.Errorf("%s has not", node)
			}
		}
		return nil
	})
	if err == nil {
		s.table(reports)
	}
	return err
}

// pids are the process ids of the reporters, by node.
func (s *stage) pids() map[string]int {
	pods, err := s.companions()
	if err != nil {
		return nil
	}
	pids := map[string]int{}
	for node, p := range pods {
		pids[node] = s.workers.ProcessID(home, p.Name)
	}
	return pids
}

// same says which of these nodes have another reporter than before.
func (s *stage) same(before map[string]int, of ...string) error {
	now := s.pids()
	for _, node := range of {
		if before[node] == 0 || now[node] != before[node] {
			return fmt.Errorf("the reporter on %s is process %d, and was %d", node, now[node], before[node])
		}
	}
	return nil
}

// gone waits until processes have ended.
func (s *stage) gone(pids map[string]int) error {
	return s.until("the reporters' processes are gone", func() error {
		for node, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("that on %s, %d, is there", node, pid)
			}
		}
		return nil
	})
}

// intervalIn is what a companion's file says.
func intervalIn(pod *corev1.Pod) time.Duration {
	c, err := v1alpha1.DecodeReporter([]byte(pod.Annotations[configAnnotation]))
	if err != nil {
		return 0
	}
	return c.Probe.Interval.Duration
}

// kubectl shows a command, runs it, and shows its last lines: all, for 0.
func (s *stage) kubectl(last int, args ...string) error { return s.show(0, last, args...) }

// kubectlExits shows a command whose exit code tells, and all that it says.
func (s *stage) kubectlExits(code int, args ...string) error { return s.show(code, 0, args...) }

func (s *stage) show(code, last int, args ...string) error {
	line := commandLine(args)
	if last > 0 {
		line += fmt.Sprintf(" | tail -n %d", last)
	}
	s.note("$ %s", line)
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.tools, "kubectl"), args...)
	// kubectl finds its plugins in PATH.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.admin, "PATH="+s.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == code {
		err = nil
	} else if err == nil && code != 0 {
		err = fmt.Errorf("exit code 0, must be %d", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, output)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if last > 0 {
		lines = lines[max(0, len(lines)-last):]
	}
	s.text(strings.Join(lines, "\n"))
	return nil
}

// commandLine is a kubectl command as one would type it.
func commandLine(args []string) string {
	words := []string{"kubectl"}
	for _, a := range args {
		if strings.ContainsAny(a, `{}"'\[]*|<>&; `) {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
