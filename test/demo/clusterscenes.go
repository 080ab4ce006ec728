package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

const interval = time.Second

// promptly bounds how soon a fault is to be seen: an interval, and what a busy
// machine adds.
const promptly = 5 * interval

// clusterDemo leaves the cluster with KMS on, until Ctrl-C, where it is to stay.
func clusterDemo(d *demo, stay bool) {
	c := newCluster(d)
	scenes := []func(){c.begin, c.on, c.unhealthy, c.migration}
	if !stay {
		scenes = append(scenes, c.off)
	}
	for _, scene := range scenes {
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

func (c *cluster) on() {
	c.title("KMS is turned on. The Secret names a plugin, kms-1, and static pods of revision 2 have it.")
	c.configure(operatorConfiguration)
	c.startOperator()
	c.text(operatorConfiguration)
	c.setEncryption("2", "1", "identity")
	c.kubectl("get", "secret", "encryption-config", "-n", target, "-o", `go-template={{index .data "encryption-config" | base64decode}}`)
	c.rollAll("2", "1")
	began := time.Now()
	c.awaitCompanions(nodeNames...)
	pods, err := c.companions()
	c.must(err)
	pod := pods[nodeNames[0]]
	c.note("From it, the operator made a companion beside each, which mounts that pod's sockets;")
	c.note("the companion's file is an annotation of its own:")
	c.kubectl("get", "pod", pod.Name, "-n", home, "-o", fmt.Sprintf(`go-template={{index .metadata.annotations %q}}`, configAnnotation))
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			c.note("Its sockets: %s on %s.", v.HostPath.Path, pod.Spec.NodeName)
		}
	}
	c.note("And from each, a condition of kubeapiservers/cluster, KMSHealthReporter_<node>:")
	c.expect("all three nodes report", all("1=healthy"))
	c.note("All of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
}

// unhealthy shows what an administrator sees of a fault, and of its end.
func (c *cluster) unhealthy() {
	const node = "master-1"
	c.title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	healthy := all("1=healthy")
	c.awaitDegraded(operatorcr.False)
	began := time.Now()
	c.command(c.control(node, "1"), "unhealthy", "vault is sealed")
	c.expect("the plugin answers that it is unhealthy", healthy.but(node, "1=unhealthy"))
	took := time.Since(began)
	if took > promptly {
		c.fail("that took %s, with an interval of %s", took, interval)
	}
	c.note("In the condition %d ms after; the interval is %s. Then on kubeapiservers/cluster:", took.Milliseconds(), interval)
	c.awaitStatus(contract.PluginsDegraded, operatorcr.True, c.resource)
	c.kubectl("get", "kubeapiserver", "cluster", "-o", `go-template={{range .status.conditions}}{{if eq .type "KMSPluginsDegraded"}}{{.type}} is {{.status}}, {{.reason}}:{{"\n"}}{{.message}}{{end}}{{end}}`)
	c.show(1, "kms-health", "status")
	c.awaitDegraded(operatorcr.True)
	c.note("A cluster operator reports what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	c.kubectl("get", "clusteroperators")
	c.command(c.control(node, "1"), "heal")
	c.expect("it is healthy again", healthy)
	c.awaitDegraded(operatorcr.False)
	c.show(0, "kms-health", "status")
}

func (c *cluster) migration() {
	c.title("A migration: the Secret names a second key. Pods get its plugin node by node; old pods keep theirs.")
	before := c.pids()
	c.setEncryption("3", "1", "2", "identity")
	c.roll("master-0", "3", "1", "2")
	c.note("master-0 is at revision 3; no other reporter gets a socket that its node does not have:")
	c.expect("master-0 reports on two plugins", all("1=healthy").but("master-0", "1=healthy 2=healthy"))
	c.same(before, "master-1", "master-2")
	c.roll("master-1", "3", "1", "2")
	c.roll("master-2", "3", "1", "2")
	c.note("The others follow; then key 2 becomes the one that writes, with revision 4, and comes first:")
	c.setEncryption("4", "2", "1", "identity")
	c.rollAll("4", "1", "2")
	c.expect("the second key writes", all("2=healthy 1=healthy"))
	reports, err := c.reports()
	c.must(err)
	agreement := contract.KeyAgreement(reports, nodeNames, "2", time.Now())
	if !agreement.Agreed {
		c.fail("the nodes do not agree on key 2: %v", agreement.Nodes)
	}
	c.note("All nodes name one remote key for key 2, %s: a rotation may go on.", agreement.KEKID)
}

// looks are commands to look around with.
var looks = [][]string{
	{"get", "pods", "-n", home, "-o", "wide"},
	{"get", "pods", "-n", target, "-L", "revision"},
	{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthReporter_master-1")].message}`},
	{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthReporting")].message}`},
	{"get", "events", "-n", home, "--sort-by=.lastTimestamp"},
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
	c.note("With those pods, all companions and their processes are deleted. The operator keeps the Role by")
	c.note("which it reads encryption configs, and its record in a ClusterRole, until its file removes these, too:")
	c.shell("echo 'managementState: Removed' >> operator.yaml")
	c.configure(operatorConfiguration + "managementState: Removed\n")
	// All kinds that the operator makes.
	left := []string{"get", "pods,configmaps,secrets,serviceaccounts,daemonsets,roles,clusterroles,clusterrolebindings," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-A", "-l", managed}
	c.until("nothing of the operator's is left", func() error {
		output, _, err := c.run(append(left, "-o", "name")...)
		if err == nil && len(output) > 0 {
			err = errors.New(string(output))
		}
		return err
	})
	c.kubectl(left...)
	o, err := c.resource()
	c.must(err)
	if conditions := operatorcr.ReadConditions(o); len(conditions) > 0 {
		c.fail("kubeapiservers/cluster still has conditions: %v", conditions)
	}
	c.note("And kubeapiservers/cluster has no condition of a node's any more, and no roll-up.")
}

// invite lists what one can do with a cluster that is kept.
func (c *cluster) invite() {
	c.say("\nThe cluster stays, with KMS on, until Ctrl-C. To look around, in another terminal:\n")
	c.say("export KUBECONFIG=%s PATH=%s:%s:$PATH", c.admin, c.tools, filepath.Dir(c.program("kubectl-kms_health")))
	c.say("kubectl kms-health status; kubectl kms-health status -w; kubectl kms-health status master-1")
	c.say("kubectl get clusteroperators")
	for _, l := range looks {
		c.say("%s", commandLine(l))
	}
	c.say("\nMake a plugin unhealthy, and read its condition; other faults: make bin/kms-plugin && bin/kms-plugin --help\n")
	for _, order := range []string{`{"name": "unhealthy", "args": ["vault is sealed"]}`, `{"name": "heal"}`} {
		c.say("curl --unix-socket %s -d '%s' http://plugin/command", c.control("master-1", "2"), order)
	}
	c.say("\nChange the operator's file, which is watched; the logs of the operator and the reporters:\n")
	c.say("sed -i 's/interval: .*/interval: 5s/' %s", c.operatorFile())
	c.say("tail -f %s %s", filepath.Join(c.dir, "operator.log"), c.dir+"/reporters/*")
}
