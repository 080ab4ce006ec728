//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// soakConfig is the operator's configuration.
var soakConfig = strings.Replace(kubeOnly, "{interval: 1s}", "{interval: 2s, checks: {roundTrip: {interval: 1m}}}", 1)

var apiServerKilled = &kind{name: "API server killed", weight: 4, blinds: ofNode, settles: 30 * time.Second,
	do: killAPIServer}

// kinds are all moves.
var kinds = slices.Concat([]*kind{
	{name: "reporter killed", weight: 5, blinds: ofNode, settles: 15 * time.Second, early: true,
		do: kills(reporterPods[apiservers.Kube], reporterContainer)},
	{name: "plugin killed", weight: 4, plugin: true, do: kills(cluster.APIServerName, "kms-plugin-1")},
	{name: "operator killed", weight: 4, blinds: ofAll, settles: 20 * time.Second, early: true,
		do: kills(operatorPods, operatorContainer)},
	apiServerKilled,
	{name: "etcd restarted", weight: 3, blinds: ofAll, settles: 20 * time.Second, do: restartEtcd},
	{name: "network cut", weight: 4, blinds: ofAll, settles: 30 * time.Second, beside: true, least: 15 * time.Second,
		most: 75 * time.Second, do: cutNetwork},
	{name: "disk full", weight: 4, beside: true, least: 15 * time.Second, most: 75 * time.Second, do: fillDisk},
	{name: "upgrade and back", weight: 3, blinds: ofAll, settles: 30 * time.Second, early: true, do: upgrade},
	{name: "rotation", weight: 4, do: func(s *soak, _ *move) (func() error, error) { return nil, s.rotate() }},
	{name: "interval edited", weight: 3, least: 15 * time.Second, most: time.Minute,
		do: configures(strings.Replace(soakConfig, "interval: 2s", "interval: 3s", 1))},
	{name: "file of garbage", weight: 3, spoils: true, least: 15 * time.Second, most: time.Minute,
		do: configures("garbage: [")},
	{name: "preflight", weight: 4,
		do: func(s *soak, m *move) (func() error, error) { return nil, s.preflight(m.node) }},
}, faultKinds())

// faultKinds are the faults of a plugin.
func faultKinds() (all []*kind) {
	for _, f := range []struct {
		fault, detail string
		reason        contract.Reason
	}{
		{"unhealthy %s", "%s", contract.ReportedUnhealthy},
		{"rpc-error Internal %s", "%s", contract.ReportedUnhealthy},
		{"hang", "", contract.Timeout},
		{"crash", "", contract.ConnectFailed},
		{"status-key-id", "key_id is empty", contract.ProtocolViolation},
		{"version %s", "%s", contract.ProtocolViolation},
		{"refuse-encrypt PermissionDenied %s", "%s", "PermissionDenied"},
		{"refuse-decrypt PermissionDenied %s", "%s", "PermissionDenied"},
		{"wrong-decrypt", "differ", contract.RoundTripMismatch},
	} {
		name, _, _ := strings.Cut(f.fault, " ")
		k := &kind{name: name, weight: 3, fault: f.fault, detail: f.detail, reason: f.reason, plugin: true, do: breaks}
		k.least, k.most = k.namedAfter()/2, k.namedAfter()+2*time.Minute
		all = append(all, k)
	}
	return all
}

// breaks makes a plugin unhealthy. After a wrong answer to Decrypt the API server is restarted at the end, as the
// runbook says: until then it cannot read the objects of that data key.
func breaks(s *soak, m *move) (func() error, error) {
	p := s.pluginOn(s.nodeOf(m))
	words := strings.Fields(strings.ReplaceAll(m.fault, "%s", m.text))
	_, err := p.Do(words[0], words[1:]...)
	return func() error {
		_, err := p.Do("heal")
		if m.name == "wrong-decrypt" {
			s.play(&move{kind: apiServerKilled, node: m.node})
		}
		return err
	}, err
}

// kills kills the process of a container, on the move's node or the next node that has one.
func kills(podPrefix, container string) func(*soak, *move) (func() error, error) {
	return func(s *soak, m *move) (func() error, error) {
		nodes := s.Nodes()
		at := slices.Index(nodes, s.nodeOf(m))
		for _, n := range append(nodes[at:], nodes[:at]...) {
			before, err := n.Processes(s.ctx, podPrefix, container)
			if err != nil || len(before) == 0 {
				continue
			}
			s.mu.Lock()
			m.node = n.Name
			s.mu.Unlock()
			old := func(p cluster.Process) bool { return p.PID == before[0].PID }
			return func() error {
				return s.retry("a new process of "+container+" on "+n.Name, func() error {
					found, err := n.Processes(s.ctx, podPrefix, container)
					if err == nil && (len(found) == 0 || slices.ContainsFunc(found, old)) {
						err = fmt.Errorf("%v", found)
					}
					return err
				})
			}, syscall.Kill(before[0].PID, syscall.SIGKILL)
		}
		return nil, fmt.Errorf("no process of %s", container)
	}
}

// serves waits until the API servers of these nodes answer.
func (s *soak) serves(nodes ...*cluster.Node) error {
	for _, n := range nodes {
		if err := n.AwaitAPIServer(s.ctx, "/livez"); err != nil {
			return err
		}
	}
	return nil
}

func killAPIServer(s *soak, m *move) (func() error, error) {
	end, err := kills(cluster.APIServerName, cluster.APIServerName)(s, m)
	return func() error { return errors.Join(end(), s.serves(s.nodeOf(m))) }, err
}

func restartEtcd(s *soak, _ *move) (func() error, error) {
	return func() error { return s.serves(s.Nodes()...) }, s.node().RestartEtcd()
}

func cutNetwork(s *soak, m *move) (func() error, error) {
	n := s.nodeOf(m)
	restore := func() error { return errors.Join(n.RestoreNetwork(context.WithoutCancel(s.ctx)), s.serves(n)) }
	return restore, n.CutNetwork(s.ctx)
}

func fillDisk(s *soak, m *move) (func() error, error) {
	const file = "/var/log/full"
	n := s.nodeOf(m)
	_, err := n.Run(s.ctx, "dd", "if=/dev/zero", "of="+file, "bs=64K")
	if err == nil || !strings.Contains(err.Error(), "No space left") {
		return nil, fmt.Errorf("the disk is not full: %w", err)
	}
	return func() error { return os.Remove(n.Path(file)) }, nil
}

// retry calls a function that needs an API server until it succeeds.
func (s *soak) retry(what string, do func() error) error {
	return wait.For(s.ctx, 10*time.Minute, what, func(context.Context) error { return do() })
}

func configures(config string) func(*soak, *move) (func() error, error) {
	return func(s *soak, _ *move) (func() error, error) {
		put := func(config string) error {
			return s.retry("the configuration is written", func() error { return s.Configure(s.ctx, config) })
		}
		return func() error { return put(soakConfig) }, put(config)
	}
}

func upgrade(s *soak, _ *move) (func() error, error) {
	to := func(v *fixture.Version) error {
		return errors.Join(
			s.retry("version "+v.Name+" is installed", func() error { return s.Install(s.ctx, v, soakConfig) }),
			s.retry("version "+v.Name+" runs", func() error { return s.runs(v, fixture.Home) }),
		)
	}
	return func() error { return to(s.version) }, to(s.before)
}

// rotate rotates the key of all plugins.
func (s *soak) rotate() error {
	command := "rotate"
	for _, n := range s.Nodes() {
		err := s.retry(command+" on "+n.Name, func() error {
			state, err := s.pluginOn(n).Do(command)
			if err == nil && !slices.Contains(s.kekIDs, state.KeyID) {
				s.kekIDs = append(s.kekIDs, state.KeyID)
			}
			return err
		})
		if err != nil {
			return err
		}
		command = "refresh"
	}
	return nil
}

const kubectlPlugin = "/opt/kubectl-kms_health"

// preflight runs kubectl kms-health preflight on a node. An undocumented exit code is an error.
func (s *soak) preflight(node string) error {
	_, err := s.nodeNamed(node).Run(s.ctx, kubectlPlugin, "preflight", "--kubeconfig=/etc/kubernetes/pki/admin.kubeconfig",
		"--timeout=60s")
	code := 0
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		code, err = exited.ExitCode(), nil
	}
	s.mu.Lock()
	s.codes[code]++
	s.last = code
	s.mu.Unlock()
	if code > 3 || code < 0 {
		err = fmt.Errorf("preflight ends with %d", code)
	}
	return err
}

// healthyAgain returns an error unless the cluster is healthy, and agrees on the newest key.
func (s *soak) healthyAgain() error {
	state, err := s.Now(s.ctx, apiservers.Kube)
	if err != nil {
		return err
	}
	errs := []error{state.Healthy(), state.Is(contract.WriteKeyAgreed, "True", contract.AsExpected)}
	newest := s.kekIDs[len(s.kekIDs)-1]
	if message := state.Conditions[contract.WriteKeyAgreed].Message; !strings.Contains(message, newest) {
		errs = append(errs, fmt.Errorf("agreed on %s, the newest is %s", message, newest))
	}
	for _, n := range s.Nodes() {
		code, err := n.Get(s.ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz of %s: %d", n.Name, code)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
