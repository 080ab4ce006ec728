package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/health"
)

// scenes are played in order; off and onAgain only where nobody wants to stay. Each
// does something, waits until it shows in the cluster, and prints that.
var (
	scenes   = []func(*stage) error{begin, idle, on, ill, migration, live, killed, lookAround}
	offAndOn = []func(*stage) error{off, onAgain}
	last     = []func(*stage) error{seen}
)

const interval = time.Second

// promptly bounds how soon a fault is to be seen: an interval, and what a busy
// machine adds.
const promptly = 5 * interval

func begin(s *stage) error {
	s.say("kms-health-operator brings a reporter to every KMS plugin beside an API server, and")
	s.say("takes it back. Real here: etcd, kube-apiserver and kube-controller-manager with")
	s.say("OpenShift's CRDs, the operator with the rights that it ships with, the reporters,")
	s.say("and KMS v2 plugins on sockets. Stood in for: three nodes, which run the reporters as")
	s.say("processes of this machine, and kube-apiserver's static pods on them.")
	began := time.Now()
	if err := s.startCluster(); err != nil {
		return err
	}
	s.say("The cluster is up after %.0f seconds, with manifests/openshift applied.", time.Since(began).Seconds())
	return nil
}

func idle(s *stage) error {
	s.title("KMS is off: the operator looks, and runs nothing.")
	if err := s.setEncryption("1", encryption("identity")); err != nil {
		return err
	}
	if err := s.rollAll("1"); err != nil {
		return err
	}
	if err := s.configure(operatorConfiguration("1s")); err != nil {
		return err
	}
	if err := s.startOperator(); err != nil {
		return err
	}
	s.note("$ kms-health-operator run --config operator.yaml …     # process %d, as ServiceAccount %s", s.operator.PID(), home+"/kms-health-operator")
	s.text(operatorConfiguration("1s"))
	// For the revisions in use it looked at the pods.
	if err := s.awaitSecrets("encryption-config", "encryption-config-1"); err != nil {
		return err
	}
	if err := s.kubectl(0, "get", "roles", "-n", target, "-l", managed, "-o", `custom-columns=ROLE:.metadata.name,MAY READ:.rules[*].resourceNames`); err != nil {
		return err
	}
	if err := s.kubectl(0, "get", "pods", "-A", "-L", "revision"); err != nil {
		return err
	}
	if err := s.stays("no companion", time.Second, func() error { return s.run() }); err != nil {
		return err
	}
	s.note("Three API servers, and no reporter.")
	return nil
}

// awaitSecrets waits until the operator may read exactly these.
func (s *stage) awaitSecrets(names ...string) error {
	return s.until("the operator may read "+strings.Join(names, " and "), func() error {
		role, err := s.kube.RbacV1().Roles(target).Get(s.ctx, secretRole, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var may []string
		for _, r := range role.Rules {
			may = append(may, r.ResourceNames...)
		}
		if slices.Sort(may); !slices.Equal(slices.Compact(may), names) {
			return fmt.Errorf("it may read %v", may)
		}
		return nil
	})
}

func on(s *stage) error {
	s.title("KMS is turned on. The Secret names a plugin, kms-1, and static pods of revision 2 have it.")
	if err := s.setEncryption("2", encryption("1", "identity")); err != nil {
		return err
	}
	if err := s.kubectl(0, "get", "secret", "encryption-config", "-n", target, "-o", `go-template={{index .data "encryption-config" | base64decode}}`); err != nil {
		return err
	}
	if err := s.rollAll("2", "1"); err != nil {
		return err
	}
	began := time.Now()
	if err := s.awaitCompanions(nodeNames...); err != nil {
		return err
	}
	pods, err := s.companions()
	if err != nil {
		return err
	}
	pod := pods[nodeNames[0]]
	s.note("From it, the operator made a companion beside each, which mounts that pod's sockets;")
	s.note("the companion's file is an annotation of its own:")
	if err := s.kubectl(0, "get", "pod", pod.Name, "-n", home, "-o", fmt.Sprintf(`go-template={{index .metadata.annotations %q}}`, configAnnotation)); err != nil {
		return err
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			s.note("Its sockets: %s on %s.", v.HostPath.Path, pod.Spec.NodeName)
		}
	}
	s.note("And from each, a condition of kubeapiservers/cluster, KMSHealthReporter_<node>:")
	if err := s.expect("all three nodes report", all("1=healthy"), interval); err != nil {
		return err
	}
	s.note("All of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
	return nil
}

func ill(s *stage) error {
	const node = "master-1"
	s.title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	healthy := all("1=healthy")
	for _, step := range []struct {
		command []string
		what    string
		want    want
	}{
		{[]string{"unhealthy", "vault is sealed"}, "the plugin answers, and not well", healthy.but(node, "1=unhealthy")},
		{[]string{"heal"}, "it answers well again", healthy},
	} {
		began := time.Now()
		if err := s.tell(node, "1", step.command[0], step.command[1:]...); err != nil {
			return err
		}
		s.note("On %s, %s:", node, step.what)
		if err := s.expect(step.what, step.want, interval); err != nil {
			return err
		}
		took := time.Since(began)
		if took > promptly {
			return fmt.Errorf("that took %s, with an interval of %s", took, interval)
		}
		s.note("In the condition %d ms after; the interval is %s.", took.Milliseconds(), interval)
	}
	return nil
}

func migration(s *stage) error {
	s.title("A migration: the Secret names a second key. Pods get its plugin node by node; old pods keep theirs.")
	before := s.pids()
	if err := s.setEncryption("3", encryption("1", "2", "identity")); err != nil {
		return err
	}
	if err := s.roll("master-0", "3", "1", "2"); err != nil {
		return err
	}
	s.note("master-0 is at revision 3; nobody else is told of a socket that it has not got:")
	if err := s.expect("master-0 reports on two plugins", all("1=healthy").but("master-0", "1=healthy 2=healthy"), interval); err != nil {
		return err
	}
	if err := s.same(before, "master-1", "master-2"); err != nil {
		return err
	}
	for _, node := range []string{"master-1", "master-2"} {
		if err := s.roll(node, "3", "1", "2"); err != nil {
			return err
		}
	}
	s.note("The others follow; then key 2 becomes the one that writes, with revision 4, and comes first:")
	if err := s.setEncryption("4", encryption("2", "1", "identity")); err != nil {
		return err
	}
	if err := s.rollAll("4", "1", "2"); err != nil {
		return err
	}
	if err := s.expect("the second key writes", all("2=healthy 1=healthy"), interval); err != nil {
		return err
	}
	reports, err := s.reports()
	if err != nil {
		return err
	}
	agreement := health.KeyAgreement(reports, nodeNames, "2", time.Now())
	if !agreement.Agreed {
		return fmt.Errorf("the nodes do not agree on key 2: %v", agreement.Nodes)
	}
	s.note("All nodes name one remote key for key 2, %s: a rotation may go on.", agreement.KEKID)
	return nil
}

func live(s *stage) error {
	s.title("Another interval in the operator's file: live, by the same processes.")
	before := s.pids()
	s.note("$ sed -i 's/interval: 1s/interval: 2s/' operator.yaml")
	if err := s.configure(operatorConfiguration("2s")); err != nil {
		return err
	}
	if err := s.expect("every 2s", all("2=healthy 1=healthy"), 2*time.Second); err != nil {
		return err
	}
	if err := s.same(before, nodeNames...); err != nil {
		return err
	}
	s.note("These are the same three processes: no pod was replaced.")
	return nil
}

func killed(s *stage) error {
	s.title("The operator is killed in the middle of such a change.")
	before := s.pids()
	s.note("$ sed -i 's/interval: 2s/interval: 3s/' operator.yaml; kill -KILL %d", s.operator.PID())
	changed := make(chan error, 1)
	watching, err := s.kube.CoreV1().Pods(home).Watch(s.ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return err
	}
	defer watching.Stop()
	go func() { changed <- s.configure(operatorConfiguration("3s")) }()
	if err := s.killAtFirst(watching.ResultChan(), 3*time.Second); err != nil {
		return err
	}
	died := time.Now()
	if err := <-changed; err != nil {
		return err
	}
	pods, err := s.companions()
	if err != nil {
		return err
	}
	reached := 0
	for _, p := range pods {
		if intervalIn(p) == 3*time.Second {
			reached++
		}
	}
	s.note("%d of %d companions had the new file by then. While it is dead, the reporters go on:", reached, len(pods))
	if err := s.expectAfter(died); err != nil {
		return err
	}
	s.note("The operator's file changes once more, back to 1s. Then it is started again, and puts all right:")
	if err := s.configure(operatorConfiguration("1s")); err != nil {
		return err
	}
	if err := s.startOperator(); err != nil {
		return err
	}
	s.note("$ kms-health-operator run --config operator.yaml …     # process %d", s.operator.PID())
	if err := s.expect("every 1s", all("2=healthy 1=healthy"), interval); err != nil {
		return err
	}
	if err := s.same(before, nodeNames...); err != nil {
		return err
	}
	s.note("Still the same three processes.")
	return nil
}

func lookAround(s *stage) error {
	s.title("Looking around with kubectl.")
	for _, l := range looks {
		if err := s.kubectl(l.last, l.args...); err != nil {
			return err
		}
	}
	return nil
}

func off(s *stage) error {
	s.title("KMS is turned off: everything is taken back.")
	before := s.pids()
	if err := s.setEncryption("5", encryption("identity")); err != nil {
		return err
	}
	if err := s.roll("master-0", "5"); err != nil {
		return err
	}
	if err := s.awaitCompanions("master-1", "master-2"); err != nil {
		return err
	}
	if err := s.same(before, "master-1", "master-2"); err != nil {
		return err
	}
	s.note("The Secret names no plugin any more, and master-0 has none: its companion is gone. The old")
	s.note("pods of the others still read by theirs, and keep their companions until they go, too.")
	for _, node := range []string{"master-1", "master-2"} {
		if err := s.roll(node, "5"); err != nil {
			return err
		}
	}
	if err := s.awaitCompanions(); err != nil {
		return err
	}
	if err := s.gone(before); err != nil {
		return err
	}
	if err := s.onlyLeft("roles " + secretRole); err != nil {
		return err
	}
	s.note("With those pods gone, so are all companions, their processes and their rights. The operator keeps the")
	s.note("Role by which it goes on looking, until it is told to give that up, too:")
	s.note("$ echo 'managementState: Removed' >> operator.yaml")
	if err := s.configure(operatorConfiguration("1s") + "managementState: Removed\n"); err != nil {
		return err
	}
	if err := s.onlyLeft(); err != nil {
		return err
	}
	if err := s.kubectl(0, "get", strings.Join(kinds, ","), "-A", "-l", managed); err != nil {
		return err
	}
	left, err := s.conditions()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("kubeapiservers/cluster still has conditions: %v", left)
	}
	s.note("And kubeapiservers/cluster has no condition of a node's any more, and no roll-up.")
	return nil
}
