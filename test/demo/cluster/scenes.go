package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/demo/script"
)

const interval = time.Second

// promptly bounds how soon a fault is to be seen: an interval, and what a busy
// machine adds.
const promptly = 5 * interval

func main() {
	const bound = 4 * time.Minute
	stay := flag.Bool("stay", false, "keep the cluster, with KMS on, until Ctrl-C")
	flag.Parse()
	script.Main("demo-cluster", bound, func(s *script.Script) { play(newCluster(s), *stay) })
}

// play leaves the cluster with KMS on, until Ctrl-C, where it is to stay.
func play(c *cluster, stay bool) {
	scenes := []func(){c.begin, c.on, c.unhealthy, c.migration}
	if !stay {
		scenes = append(scenes, c.off)
	}
	for _, scene := range scenes {
		scene()
	}
	if stay {
		c.invite()
		<-c.Signals.Done()
		c.Say("\nEnding everything.")
		return
	}
	c.Next = "Next: `make demo-cluster STAY=1` keeps the cluster, with KMS on, and lists commands to try."
}

func (c *cluster) begin() {
	c.Say("kms-health-operator deploys a reporter for every KMS plugin beside an API server, and")
	c.Say("removes it. Real here: etcd, kube-apiserver and kube-controller-manager with")
	c.Say("OpenShift's CRDs, the operator with the rights that it ships with, the reporters,")
	c.Say("and KMS v2 plugins on sockets. Simulated: three nodes, which run the reporters as")
	c.Say("processes of this machine, and kube-apiserver's static pods on them.")
	began := time.Now()
	c.startCluster()
	c.Say("The cluster is up after %.0f seconds, with manifests/openshift applied.", time.Since(began).Seconds())
}

func (c *cluster) on() {
	c.Title("KMS is turned on. The Secret names a plugin, kms-1, and static pods of revision 2 have it.")
	c.configure(operatorConfiguration)
	c.startOperator()
	c.Text(operatorConfiguration)
	c.setEncryption("2", "1", "identity")
	c.kubectl("get", "secret", "encryption-config", "-n", target, "-o", `go-template={{index .data "encryption-config" | base64decode}}`)
	c.rollAll("2", "1")
	began := time.Now()
	c.awaitCompanions(nodeNames...)
	pods, err := c.companions()
	c.Must(err)
	pod := pods[nodeNames[0]]
	c.Note("From it, the operator made a companion beside each, which mounts that pod's sockets;")
	c.Note("the companion's file is an annotation of its own:")
	c.kubectl("get", "pod", pod.Name, "-n", home, "-o", fmt.Sprintf(`go-template={{index .metadata.annotations %q}}`, configAnnotation))
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			c.Note("Its sockets: %s on %s.", v.HostPath.Path, pod.Spec.NodeName)
		}
	}
	c.Note("And from each, a condition of kubeapiservers/cluster, KMSHealthReporter_<node>:")
	c.expect("all three nodes report", all("1=healthy"))
	c.Note("All of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
}

// unhealthy shows what an administrator sees of a fault, and of its end.
func (c *cluster) unhealthy() {
	const node = "master-1"
	c.Title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	healthy := all("1=healthy")
	c.awaitDegraded(operatorcr.False)
	began := time.Now()
	c.Command(c.control(node, "1"), "unhealthy", "vault is sealed")
	c.expect("the plugin answers that it is unhealthy", healthy.but(node, "1=unhealthy"))
	took := time.Since(began)
	if took > promptly {
		c.Fail("that took %s, with an interval of %s", took, interval)
	}
	c.Note("In the condition %d ms after; the interval is %s. Then on kubeapiservers/cluster:", took.Milliseconds(), interval)
	c.awaitStatus(contract.PluginsDegraded, operatorcr.True, c.resource)
	c.kubectl("get", "kubeapiserver", "cluster", "-o", `go-template={{range .status.conditions}}{{if eq .type "KMSPluginsDegraded"}}{{.type}} is {{.status}}, {{.reason}}:{{"\n"}}{{.message}}{{end}}{{end}}`)
	c.show(1, "kms-health", "status")
	c.awaitDegraded(operatorcr.True)
	c.Note("A cluster operator reports what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	c.kubectl("get", "clusteroperators")
	c.Command(c.control(node, "1"), "heal")
	c.expect("it is healthy again", healthy)
	c.awaitDegraded(operatorcr.False)
	c.show(0, "kms-health", "status")
}

func (c *cluster) migration() {
	c.Title("A migration: the Secret names a second key. Pods get its plugin node by node; old pods keep theirs.")
	before := c.pids()
	c.setEncryption("3", "1", "2", "identity")
	c.roll("master-0", "3", "1", "2")
	c.Note("master-0 is at revision 3; no other reporter gets a socket that its node does not have:")
	c.expect("master-0 reports on two plugins", all("1=healthy").but("master-0", "1=healthy 2=healthy"))
	c.same(before, "master-1", "master-2")
	c.roll("master-1", "3", "1", "2")
	c.roll("master-2", "3", "1", "2")
	c.Note("The others follow; then key 2 becomes the one that writes, with revision 4, and comes first:")
	c.setEncryption("4", "2", "1", "identity")
	c.rollAll("4", "1", "2")
	c.expect("the second key writes", all("2=healthy 1=healthy"))
	reports, err := c.reports()
	c.Must(err)
	agreement := contract.KeyAgreement(reports, nodeNames, "2", time.Now())
	if !agreement.Agreed {
		c.Fail("the nodes do not agree on key 2: %v", agreement.Nodes)
	}
	c.Note("All nodes name one remote key for key 2, %s: a rotation may go on.", agreement.KEKID)
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
	c.Title("KMS is turned off: everything is removed.")
	before := c.pids()
	c.setEncryption("5", "identity")
	c.roll("master-0", "5")
	c.awaitCompanions("master-1", "master-2")
	c.same(before, "master-1", "master-2")
	c.Note("The Secret has no plugin any more, and master-0 has none: its companion is deleted. The old")
	c.Note("pods of the others still read by theirs, and keep their companions until they go, too.")
	c.roll("master-1", "5")
	c.roll("master-2", "5")
	c.awaitCompanions()
	c.ended(before)
	c.Note("With those pods, all companions and their processes are deleted. The operator keeps the Role by")
	c.Note("which it reads encryption configs, and its record in a ClusterRole, until its file removes these, too:")
	c.Shell("echo 'managementState: Removed' >> operator.yaml")
	c.configure(operatorConfiguration + "managementState: Removed\n")
	// All kinds that the operator makes.
	left := []string{"get", "pods,configmaps,secrets,serviceaccounts,daemonsets,roles,clusterroles,clusterrolebindings," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-A", "-l", managed}
	c.Until("nothing of the operator's is left", func() error {
		output, _, err := c.run(append(left, "-o", "name")...)
		if err == nil && len(output) > 0 {
			err = errors.New(string(output))
		}
		return err
	})
	c.kubectl(left...)
	o, err := c.resource()
	c.Must(err)
	if conditions := operatorcr.ReadConditions(o); len(conditions) > 0 {
		c.Fail("kubeapiservers/cluster still has conditions: %v", conditions)
	}
	c.Note("And kubeapiservers/cluster has no condition of a node's any more, and no roll-up.")
}

// invite lists what one can do with a cluster that is kept.
func (c *cluster) invite() {
	c.Say("\nThe cluster stays, with KMS on, until Ctrl-C. To look around, in another terminal:\n")
	c.Say("export KUBECONFIG=%s PATH=%s:%s:$PATH", c.admin, c.tools, filepath.Dir(c.Program("kubectl-kms_health")))
	c.Say("kubectl kms-health status; kubectl kms-health status -w; kubectl kms-health status master-1")
	c.Say("kubectl get clusteroperators")
	for _, l := range looks {
		c.Say("%s", commandLine(l))
	}
	c.Say("\nMake a plugin unhealthy, and read its condition; other faults: make bin/kms-plugin && bin/kms-plugin --help\n")
	for _, order := range []string{`{"name": "unhealthy", "args": ["vault is sealed"]}`, `{"name": "heal"}`} {
		c.Say("curl --unix-socket %s -d '%s' http://plugin/command", c.control("master-1", "2"), order)
	}
	c.Say("\nChange the operator's file, which is watched; the logs of the operator and the reporters:\n")
	c.Say("sed -i 's/interval: .*/interval: 5s/' %s", c.operatorFile())
	c.Say("tail -f %s %s", filepath.Join(c.Script.Dir, "operator.log"), c.Script.Dir+"/reporters/*")
}
