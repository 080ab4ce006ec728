//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak makes moves; it is skipped without")
	soakSeed = flag.Uint64("soak-seed", 1, "what its moves are drawn with")
)

const (
	// every is the time between two moves. After each round everything must become healthy.
	every, round = 20 * time.Second, 7 * time.Minute
	// calmAfter bounds the time until then. An agreement takes 180 s, and begins again after an operator's restart.
	calmAfter = rollup.SettlePeriod + 5*time.Minute
)

// soak is the state of a run.
type soak struct {
	*scenario
	before *fixture.Version
	kekIDs []string // only one move at a time changes it

	mu     sync.Mutex
	moves  timeline
	writes []written
	codes  map[int]int // counts of preflight's exit codes
	last   int
	memory map[string][]int // in kB, by container
}

// TestSoak makes random faults, kills, cuts, full disks, upgrades, rotations and edits. Each fault that lasts must be
// in KMSPluginsDegraded with its cause until it ends. No condition may be bad without a cause. Nothing may be written
// under a former key once a later one is agreed on. Memory must not grow.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("takes as long as -soak says, and ten minutes: see make soak-cluster")
	}
	s := newSoak(t)
	objects := s.belongings()
	random := rand.New(rand.NewPCG(*soakSeed, 0))
	var names []string
	for _, n := range s.Nodes() {
		names = append(names, n.Name)
		go s.write(n)
	}
	defer func() { s.summary(s.judge(names)) }() // also of a run that ends early
	began, moving := time.Now(), sync.WaitGroup{}
	for time.Since(began) < *soakFor {
		for start := time.Now(); time.Since(start) < round && time.Since(began) < *soakFor; time.Sleep(every) {
			early := time.Since(began) < *soakFor/2
			s.mu.Lock()
			moves := s.copyMoves()
			s.mu.Unlock()
			m := draw(random, kinds, names, moves.running(), early)
			m.text = fmt.Sprintf("cause-%d.", len(moves))
			moving.Go(func() { s.play(m) })
			if !early {
				s.measure()
			}
		}
		moving.Wait()
		s.calm(names[0])
	}
	if after := s.belongings(); after != objects {
		t.Errorf("there is now:\n%s\nthere was:\n%s", after, objects)
	}
}

func newSoak(t *testing.T) *soak {
	s := &soak{scenario: startWith(t, cluster.Options{Nodes: 3, Disk: "2G"}, soakConfig), codes: map[int]int{},
		memory: map[string][]int{}}
	s.scenario = s.sub(t)
	s.before = s.previous()
	path, err := program.Build(t.TempDir(), "cmd/kubectl-kms_health")
	s.must(err)
	for _, n := range s.Nodes() {
		s.must(n.WriteFile(kubectlPlugin, disk.Read(t, path), 0o755))
	}
	s.must(s.Roll(s.ctx, fixture.Roll{Encryption: apiservers.Encryption("1", "identity"), Plugins: []string{"1"}}))
	s.must(s.WriteAnew(s.ctx))
	s.awaitHealthy(apiservers.Kube)
	s.kekIDs = []string{s.remoteKey(s.node())}
	return s
}

func (s *soak) nodeOf(m *move) *cluster.Node { return s.nodeNamed(m.node) }

// copyMoves returns a copy of the moves so far. The caller holds mu.
func (s *soak) copyMoves() (all timeline) {
	for _, m := range s.moves {
		c := *m
		all = append(all, &c)
	}
	return all
}

// play makes a move.
func (s *soak) play(m *move) {
	s.mu.Lock()
	m.start = time.Now()
	s.moves = append(s.moves, m)
	s.mu.Unlock()
	s.Say("%s %s %s", m.name, m.node, m.text)
	end, err := m.do(s, m)
	ended := time.Now()
	if err == nil && end != nil {
		time.Sleep(m.lasts)
		ended = time.Now()
		if err = end(); m.fault == "" {
			ended = time.Now()
		}
	}
	s.mu.Lock()
	m.end = ended
	s.mu.Unlock()
	s.Say("ended: %s", m)
	if err != nil {
		s.t.Errorf("%s: %v", m, err)
	}
}

// write writes a Secret through a node's API server four times a second, and reads its envelope in etcd.
func (s *soak) write(n *cluster.Node) {
	config, err := n.RESTConfig()
	if err != nil {
		s.t.Error(err)
		return
	}
	config.Timeout = 5 * time.Second
	client := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
	name := "soak-" + n.Name
	for s.ctx.Err() == nil {
		time.Sleep(250 * time.Millisecond)
		w := written{requested: time.Now()}
		patch := fmt.Appendf(nil, `{"stringData": {"at": %q}}`, w.requested)
		if _, err := client.Patch(s.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			_, _ = client.Create(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			continue // the API server or a plugin is down, or the Secret did not exist yet
		}
		found, err := s.Etcd(s.ctx, "/registry/secrets/default/"+name)
		if err != nil || len(found) != 1 {
			continue
		}
		if w.kekID, err = apiservers.StoredKEKID(found[0].Value, "1_secrets"); err != nil {
			s.t.Errorf("%s in etcd: %v", name, err)
		}
		s.mu.Lock()
		s.writes = append(s.writes, w)
		s.mu.Unlock()
	}
}

// measure records the greatest memory of all reporters, and of all operators.
func (s *soak) measure() {
	for _, of := range [][2]string{{reporterPods[apiservers.Kube], reporterContainer}, {operatorPods, operatorContainer}} {
		most := 0
		for _, n := range s.Nodes() {
			found, _ := n.Processes(s.ctx, of[0], of[1])
			for _, p := range found {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
				_, rest, _ := strings.Cut(string(text), "VmRSS:")
				rss := 0
				_, _ = fmt.Sscan(rest, &rss)
				most = max(most, rss)
			}
		}
		s.memory[of[1]] = append(s.memory[of[1]], most)
	}
}

// calm waits without moves until everything is healthy.
func (s *soak) calm(node string) {
	s.Say("calm")
	err := wait.For(s.ctx, calmAfter, "everything is healthy after all moves", func(context.Context) error {
		return s.healthyAgain()
	})
	if err != nil {
		s.t.Error(err)
	} else if err := s.preflight(node); err != nil || s.last != 0 {
		s.t.Errorf("preflight when all is healthy ends with %d: %v", s.last, err)
	}
	s.exited()
}

// judge judges the run.
func (s *soak) judge(nodes []string) *judgement {
	s.mu.Lock()
	began := time.Now()
	if len(s.moves) > 0 {
		began = s.moves[0].start
	}
	j := &judgement{moves: s.copyMoves(), states: s.seen.States(apiservers.Kube, began),
		writes: slices.Clone(s.writes), kekIDs: s.kekIDs, nodes: nodes}
	s.mu.Unlock()
	j.judge()
	for _, problem := range j.problems {
		s.t.Error(problem)
	}
	if n := len(j.states); n == 0 || time.Since(j.states[n-1].At) > time.Minute {
		s.t.Errorf("nothing was seen in etcd for a minute, and %d states before", n)
	}
	return j
}

// exited requires that containers of this project ended only by SIGKILL.
func (s *soak) exited() {
	pods, err := s.Kube.CoreV1().Pods(fixture.Home).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if last := c.LastTerminationState.Terminated; last != nil && last.ExitCode != 128+int32(syscall.SIGKILL) {
				s.t.Errorf("%s: container %s ended with %d (%s) at %s: %s", p.Name, c.Name, last.ExitCode, last.Reason,
					last.FinishedAt.Format(time.TimeOnly), last.Message)
			}
		}
	}
}

// summary judges the memory, and prints a summary of the run.
func (s *soak) summary(j *judgement) {
	var memory []string
	for name, all := range s.memory {
		half := len(all) / 2
		if half == 0 {
			continue
		}
		early, late := slices.Max(all[:half]), slices.Max(all[half:])
		memory = append(memory, fmt.Sprintf("%s %d to %d kB", name, early, late))
		if late > early+early/5 {
			s.t.Errorf("memory of %s grew from %d to %d kB", name, early, late)
		}
	}
	slices.Sort(memory)
	verdict := map[bool]string{true: "FAIL", false: "PASS"}[s.t.Failed()]
	s.t.Logf("seed %d, %s: %s; preflight's codes %v; memory in the last half, by halves of it: %s; %s", *soakSeed,
		*soakFor, j, s.codes, strings.Join(memory, ", "), verdict)
}
