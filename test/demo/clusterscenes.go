package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const interval = time.Second

// promptly bounds how soon a fault is to be seen: an interval, and what a busy
// machine adds.
const promptly = 5 * interval

// clusterDemo leaves the cluster with KMS on, until Ctrl-C, where it is to stay.
func clusterDemo(d *demo, stay bool) {
	c := newCluster(d)
	scenes := []func(){c.begin, c.idle, c.on, c.unhealthy, c.migration, c.live, c.killedOperator, c.lookAround}
	if !stay {
		scenes = append(scenes, c.off, c.onAgain)
	}
	for _, scene := range append(scenes, c.whatAdministratorsSee) {
		scene()
	}
	if stay {
		c.invite()
		<-c.signals.Done()
		c.say("\nEnding everything.")
		return
	}
	c.next = "Next: `make demo-cluster STAY=1` keeps the cluster, with KMS on, and lists commands to try."
}

func (c *cluster) begin() {
	c.say("kms-health-operator deploys a reporter for every KMS plugin beside an API server, and")
	c.say("removes it. Real here: etcd, kube-apiserver and kube-controller-manager with")
	c.say("OpenShift's CRDs, the operator with the rights that it ships with, the reporters,")
	c.say("and KMS v2 plugins on sockets. Simulated: three nodes, which run the reporters as")
	c.say("processes of this machine, and kube-apiserver's static pods on them.")
	began := time.Now()
	c.startCluster()
	c.say("The cluster is up after %.0f seconds, with manifests/openshift applied.", time.Since(began).Seconds())
}

func (c *cluster) idle() {
	c.title("KMS is off: the operator watches, and runs nothing.")
	c.setEncryption("1", "identity")
	c.rollAll("1")
	c.configure(operatorConfiguration("1s"))
	c.startOperator()
	c.text(operatorConfiguration("1s"))
	// For the revisions in use it looked at the pods.
	c.awaitSecrets("encryption-config", "encryption-config-1")
	c.kubectl(0, "get", "roles", "-n", target, "-l", managed, "-o", `custom-columns=ROLE:.metadata.name,MAY READ:.rules[*].resourceNames`)
	c.kubectl(0, "get", "pods", "-A", "-L", "revision")
	c.stays("no companion", time.Second, func() error { return c.runOn() })
	c.note("Three API servers, and no reporter.")
}

func (c *cluster) on() {
	c.title("KMS is turned on. The Secret names a plugin, kms-1, and static pods of revision 2 have it.")
	c.setEncryption("2", "1", "identity")
	c.kubectl(0, "get", "secret", "encryption-config", "-n", target, "-o", `go-template={{index .data "encryption-config" | base64decode}}`)
	c.rollAll("2", "1")
	began := time.Now()
	c.awaitCompanions(nodeNames...)
	pods, err := c.companions()
	c.must(err)
	pod := pods[nodeNames[0]]
	c.note("From it, the operator made a companion beside each, which mounts that pod's sockets;")
	c.note("the companion's file is an annotation of its own:")
	c.kubectl(0, "get", "pod", pod.Name, "-n", home, "-o", fmt.Sprintf(`go-template={{index .metadata.annotations %q}}`, configAnnotation))
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			c.note("Its sockets: %s on %s.", v.HostPath.Path, pod.Spec.NodeName)
		}
	}
	c.note("And from each, a condition of kubeapiservers/cluster, KMSHealthReporter_<node>:")
	c.expect("all three nodes report", all("1=healthy"), interval)
	c.note("All of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
}

func (c *cluster) unhealthy() {
	const node = "master-1"
	c.title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	healthy := all("1=healthy")
	for _, step := range []struct {
		command []string
		what    string
		want    want
	}{
		{[]string{"unhealthy", "vault is sealed"}, "the plugin answers that it is unhealthy", healthy.but(node, "1=unhealthy")},
		{[]string{"heal"}, "it is healthy again", healthy},
	} {
		began := time.Now()
		c.command(c.control(node, "1"), step.command...)
		c.note("On %s, %s:", node, step.what)
		c.expect(step.what, step.want, interval)
		took := time.Since(began)
		if took > promptly {
			c.fail("that took %s, with an interval of %s", took, interval)
		}
		c.note("In the condition %d ms after; the interval is %s.", took.Milliseconds(), interval)
	}
}

func (c *cluster) migration() {
	c.title("A migration: the Secret names a second key. Pods get its plugin node by node; old pods keep theirs.")
	before := c.pids()
	c.setEncryption("3", "1", "2", "identity")
	c.roll("master-0", "3", "1", "2")
	c.note("master-0 is at revision 3; no other reporter gets a socket that its node does not have:")
	c.expect("master-0 reports on two plugins", all("1=healthy").but("master-0", "1=healthy 2=healthy"), interval)
	c.same(before, "master-1", "master-2")
	c.roll("master-1", "3", "1", "2")
	c.roll("master-2", "3", "1", "2")
	c.note("The others follow; then key 2 becomes the one that writes, with revision 4, and comes first:")
	c.setEncryption("4", "2", "1", "identity")
	c.rollAll("4", "1", "2")
	c.expect("the second key writes", all("2=healthy 1=healthy"), interval)
	reports, err := c.reports()
	c.must(err)
	agreement := health.KeyAgreement(reports, nodeNames, "2", time.Now())
	if !agreement.Agreed {
		c.fail("the nodes do not agree on key 2: %v", agreement.Nodes)
	}
	c.note("All nodes name one remote key for key 2, %s: a rotation may go on.", agreement.KEKID)
}

func (c *cluster) live() {
	c.title("Another interval in the operator's file: live, by the same processes.")
	before := c.pids()
	c.shell("sed -i 's/interval: 1s/interval: 2s/' operator.yaml")
	c.configure(operatorConfiguration("2s"))
	c.expect("every 2s", all("2=healthy 1=healthy"), 2*time.Second)
	c.same(before, nodeNames...)
	c.note("These are the same three processes: no pod was replaced.")
}

func (c *cluster) killedOperator() {
	c.title("The operator is killed in the middle of such a change.")
	before := c.pids()
	c.shell("sed -i 's/interval: 2s/interval: 3s/' operator.yaml; kill -KILL %d", c.operator.PID())
	watching, err := c.kube.CoreV1().Pods(home).Watch(c.ctx, metav1.ListOptions{LabelSelector: managed})
	c.must(err)
	defer watching.Stop()
	c.configure(operatorConfiguration("3s"))
	c.killAtFirst(watching.ResultChan(), 3*time.Second)
	died := time.Now()
	pods, err := c.companions()
	c.must(err)
	reached := 0
	for _, p := range pods {
		if intervalIn(p) == 3*time.Second {
			reached++
		}
	}
	c.note("%d of %d companions had the new file by then. While it is down, the reporters continue:", reached, len(pods))
	c.expectAfter(died)
	c.note("The operator's file changes once more, back to 1s. Then the operator is started again, and applies it:")
	c.configure(operatorConfiguration("1s"))
	c.startOperator()
	c.expect("every 1s", all("2=healthy 1=healthy"), interval)
	c.same(before, nodeNames...)
	c.note("Still the same three processes.")
}

// killAtFirst kills the operator when the first companion has a file with this interval.
func (c *cluster) killAtFirst(events <-chan watch.Event, every time.Duration) {
	for timeout := time.After(waitLimit); ; {
		select {
		case e, ok := <-events:
			if !ok {
				c.must(errors.New("the watch of the companions ended"))
			}
			if pod, ok := e.Object.(*corev1.Pod); ok && intervalIn(pod) == every {
				c.kill(c.operator)
				return
			}
		case <-timeout:
			c.fail("expected, but not seen within %s: a companion's file has %s", waitLimit, every)
		case <-c.ctx.Done():
			c.must(c.ctx.Err())
		}
	}
}

// look is a command to look around with. Its last lines are shown: all, for 0.
type look struct {
	args []string
	last int
}

var looks = []look{
	{args: []string{"get", "pods", "-n", home, "-o", "wide"}},
	{args: []string{"get", "pods", "-n", target, "-L", "revision"}},
	{args: []string{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthReporter_master-1")].message}`}},
	{args: []string{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthDelivery")].message}`}},
	{args: []string{"get", "events", "-n", home, "--sort-by=.lastTimestamp"}, last: 6},
}

func (c *cluster) lookAround() {
	c.title("Looking around with kubectl.")
	for _, l := range looks {
		c.kubectl(l.last, l.args...)
	}
}

func (c *cluster) off() {
	c.title("KMS is turned off: everything is removed.")
	before := c.pids()
	c.setEncryption("5", "identity")
	c.roll("master-0", "5")
	c.awaitCompanions("master-1", "master-2")
	c.same(before, "master-1", "master-2")
	c.note("The Secret has no plugin any more, and master-0 has none: its companion is deleted. The old")
	c.note("pods of the others still read by theirs, and keep their companions until they go, too.")
	c.roll("master-1", "5")
	c.roll("master-2", "5")
	c.awaitCompanions()
	c.ended(before)
	c.onlyLeft(keptWhileOff...)
	c.note("With those pods, all companions, their processes and their rights are deleted. The operator keeps the")
	c.note("Role by which it reads encryption configs, and its record in a ClusterRole, until its file removes")
	c.note("these, too:")
	c.shell("echo 'managementState: Removed' >> operator.yaml")
	c.configure(operatorConfiguration("1s") + "managementState: Removed\n")
	c.onlyLeft()
	// All kinds that the operator makes.
	c.kubectl(0, "get", "pods,configmaps,secrets,serviceaccounts,daemonsets,roles,clusterroles,clusterrolebindings,"+
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-A", "-l", managed)
	o, err := c.resource()
	c.must(err)
	if left := operatorcr.ReadConditions(o); len(left) > 0 {
		c.fail("kubeapiservers/cluster still has conditions: %v", left)
	}
	c.note("And kubeapiservers/cluster has no condition of a node's any more, and no roll-up.")
}

func (c *cluster) onAgain() {
	c.title("KMS is turned on again.")
	c.shell("sed -i '/managementState/d' operator.yaml")
	c.configure(operatorConfiguration("1s"))
	c.setEncryption("6", "2", "identity")
	c.rollAll("6", "2")
	c.expect("all three nodes report", all("2=healthy"), interval)
}

func (c *cluster) whatAdministratorsSee() {
	const node = "master-1"
	c.title("What an administrator sees of a fault, and of its end.")
	c.awaitDegraded(operatorcr.False)
	c.kubectl(0, "get", "clusteroperators")
	began := time.Now()
	c.command(c.control(node, "2"), "unhealthy", "vault is sealed")
	c.awaitStatus(rollup.Degraded, operatorcr.True, c.resource)
	c.note("The vault behind the plugin on %s is sealed. %d ms later, on kubeapiservers/cluster:", node, time.Since(began).Milliseconds())
	c.kubectl(0, "get", "kubeapiserver", "cluster", "-o", `go-template={{range .status.conditions}}{{if eq .type "KMSPluginsDegraded"}}{{.type}} is {{.status}}, {{.reason}}:{{"\n"}}{{.message}}{{end}}{{end}}`)
	c.show(1, 0, "kms-health", "status")
	c.awaitDegraded(operatorcr.True)
	c.note("A cluster operator reports what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	c.kubectl(0, "get", "clusteroperators")
	c.command(c.control(node, "2"), "heal")
	c.awaitDegraded(operatorcr.False)
	c.note("It is unsealed:")
	c.show(0, 0, "kms-health", "status")
	c.kubectl(0, "get", "clusteroperators")
}

// invite lists what one can do with a cluster that is kept.
func (c *cluster) invite() {
	c.say("\nThe cluster stays, with KMS on, until Ctrl-C. To look around, in another terminal:\n")
	c.say("export KUBECONFIG=%s PATH=%s:%s:$PATH", c.admin, c.tools, filepath.Dir(c.program("kubectl-kms_health")))
	c.say("kubectl kms-health status; kubectl kms-health watch; kubectl kms-health explain master-1")
	c.say("kubectl get clusteroperators")
	for _, l := range looks {
		c.say("%s", commandLine(l.args))
	}
	c.say("\nMake a plugin unhealthy, and read its condition; other faults: make bin/kms-plugin && bin/kms-plugin --help\n")
	for _, order := range []string{`{"name": "unhealthy", "args": ["vault is sealed"]}`, `{"name": "heal"}`} {
		c.say("curl --unix-socket %s -d '%s' http://plugin/command", c.control("master-1", "2"), order)
	}
	c.say("\nChange the operator's file, which is watched; the logs of the operator and the reporters:\n")
	c.say("sed -i 's/interval: .*/interval: 5s/' %s", c.operatorFile())
	c.say("tail -f %s %s", filepath.Join(c.dir, "operator.log"), c.dir+"/reporters/*")
}
