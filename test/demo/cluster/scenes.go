package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/demo/script"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	interval = time.Second
	// promptly bounds how soon a fault is to be seen: an interval, and what a busy machine adds.
	promptly = 5 * interval
	// inertia is how long something must last until the ClusterOperator reports it.
	inertia = 3 * time.Second
	// managed selects what the operator makes.
	managed = contract.ManagedByLabel + "=" + contract.OperatorName
)

var operatorConfiguration = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n" +
	"probe:\n  interval: " + interval.String() + "\napiServers:\n" + apiservers.Kube.Target()

func main() {
	const bound = 4 * time.Minute
	stay := flag.Bool("stay", false, "keep the cluster, with KMS on, until Ctrl-C")
	flag.Parse()
	script.Main("demo-cluster", bound, func(s *script.Script) { play(newCluster(s), *stay) })
}

// play leaves the cluster with KMS on, until Ctrl-C, where it is to stay.
func play(c *cluster, stay bool) {
	for _, scene := range []func(){c.begin, c.on, c.unhealthy, c.migration} {
		scene()
	}
	if stay {
		c.invite()
		<-c.Signals.Done()
		c.Say("\nEnding everything.")
		return
	}
	c.off()
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
	c.kubectl(0, "get", "secret", "encryption-config", "-n", target, "-o",
		`go-template={{index .data "encryption-config" | base64decode}}`)
	c.roll("2", []string{"1"}, nodeNames...)
	began := time.Now()
	c.awaitCompanions(nodeNames...)
	c.Note("From it, the operator made a companion beside each, which mounts that pod's sockets.")
	c.expect("all three nodes report", "1=healthy", "1=healthy", "1=healthy")
	c.Note("From each, there is a condition of kubeapiservers/cluster, KMSHealthReporter_<node>;")
	c.Note("all of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
}

// unhealthy shows what an administrator sees of a fault, and of its end.
func (c *cluster) unhealthy() {
	const node = "master-1"
	c.Title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	c.awaitStatus("Degraded", operatorcr.False, c.clusterOperator)
	began := time.Now()
	c.Command(c.control(node, "1"), "unhealthy", "vault is sealed")
	c.expect("the plugin answers that it is unhealthy", "1=healthy", "1=unhealthy", "1=healthy")
	took := time.Since(began)
	if took > promptly {
		c.Fail("that took %s, with an interval of %s", took, interval)
	}
	c.Note("In the condition %d ms after; the interval is %s. Then on kubeapiservers/cluster:",
		took.Milliseconds(), interval)
	c.awaitStatus(contract.PluginsDegraded, operatorcr.True, c.resource)
	c.kubectl(1, "kms-health", "status")
	c.awaitStatus("Degraded", operatorcr.True, c.clusterOperator)
	c.Note("A cluster operator reports what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	c.kubectl(0, "get", "clusteroperators")
	c.Command(c.control(node, "1"), "heal")
	c.expect("it is healthy again", "1=healthy", "1=healthy", "1=healthy")
	c.awaitStatus("Degraded", operatorcr.False, c.clusterOperator)
	c.kubectl(0, "kms-health", "status")
}

func (c *cluster) migration() {
	c.Title("A migration: the Secret names a second key. Pods get its plugin node by node; old pods keep theirs.")
	c.setEncryption("3", "1", "2", "identity")
	c.roll("3", []string{"1", "2"}, "master-0")
	c.Note("master-0 is at revision 3; no other reporter gets a socket that its node does not have:")
	c.expect("master-0 reports on two plugins", "1=healthy 2=healthy", "1=healthy", "1=healthy")
	c.roll("3", []string{"1", "2"}, "master-1", "master-2")
	c.Note("The others follow; then key 2 becomes the one that writes, with revision 4, and comes first:")
	c.setEncryption("4", "2", "1", "identity")
	c.roll("4", []string{"1", "2"}, nodeNames...)
	reports := c.expect("the second key writes", "2=healthy 1=healthy", "2=healthy 1=healthy", "2=healthy 1=healthy")
	agreement := contract.KeyAgreement(reports, nodeNames, "2", time.Now())
	if !agreement.Agreed {
		c.Fail("the nodes do not agree on key 2: %v", agreement.Nodes)
	}
	c.Note("All nodes name one remote key for key 2, %s: a rotation may go on.", agreement.KEKID)
}

func (c *cluster) off() {
	c.Title("KMS is turned off: everything is removed.")
	c.setEncryption("5", "identity")
	c.roll("5", nil, "master-0")
	c.awaitCompanions("master-1", "master-2")
	c.Note("The Secret has no plugin any more, and master-0 has none: its companion is deleted. The old")
	c.Note("pods of the others still read by theirs, and keep their companions until they go, too.")
	c.roll("5", nil, "master-1", "master-2")
	c.awaitCompanions()
	c.Note("With those pods, all companions are deleted. The operator keeps the Role by which it reads")
	c.Note("encryption configs, and its record in a ClusterRole, until its file removes these, too:")
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
	c.kubectl(0, left...)
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
	c.Say("export KUBECONFIG=%s PATH=%s:$PATH", c.admin, c.searchPath())
	c.Say("kubectl kms-health status; kubectl kms-health status -w; kubectl kms-health status master-1")
	c.Say("kubectl get clusteroperators; kubectl get pods -A -o wide; kubectl get events -n %s", home)
	c.Say("kubectl get kubeapiserver cluster -o yaml")
	c.Say("\nMake a plugin unhealthy, and read its condition; first: make bin/kms-plugin\n")
	c.Say("bin/kms-plugin ctl --control %s unhealthy 'vault is sealed'", c.control("master-1", "2"))
	c.Say("bin/kms-plugin ctl --control %s heal", c.control("master-1", "2"))
	c.Say("bin/kms-plugin ctl --help    # other faults")
	c.Say("\nChange the operator's file, which is watched; the logs of the operator and the reporters:\n")
	c.Say("sed -i 's/interval: .*/interval: 5s/' %s", c.operatorFile())
	c.Say("tail -f %s %s", c.path("operator.log"), c.path("reporters/*.log"))
}

// resource is kubeapiservers/cluster.
func (c *cluster) resource() (*unstructured.Unstructured, error) {
	resource := c.client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers))
	return resource.Get(c.Ctx, controlplane.ClusterObject, metav1.GetOptions{})
}

func (c *cluster) clusterOperator() (*unstructured.Unstructured, error) {
	resource := c.client.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators))
	return resource.Get(c.Ctx, contract.ClusterOperator, metav1.GetOptions{})
}

func (c *cluster) awaitStatus(kind, status string, read func() (*unstructured.Unstructured, error)) {
	c.Until(kind+" is "+status, func() error {
		o, err := read()
		if err != nil {
			return err
		}
		if found := operatorcr.ReadConditions(o)[kind]; found.Status != status {
			return fmt.Errorf("it is %s: %s", found.Status, found.Message)
		}
		return nil
	})
}

// expect waits until the nodes' conditions have this, each "1=healthy 2=healthy" with the write key
// first, freshly, and shows them.
func (c *cluster) expect(what string, want ...string) (reports map[string][]contract.Entry) {
	c.Until(what, func() error {
		o, err := c.resource()
		if err != nil {
			return err
		}
		reports = map[string][]contract.Entry{}
		for _, r := range operatorcr.Read(o).Reports {
			reports[r.Node] = r.Entries
		}
		for i, node := range nodeNames {
			if got := describe(reports[node]); got != want[i] {
				return fmt.Errorf("%s reports %q, must report %q", node, got, want[i])
			}
		}
		return nil
	})
	var lines []script.Line
	for _, node := range nodeNames {
		for _, e := range reports[node] {
			age := max(0, time.Since(e.LastChecked)).Truncate(time.Second)
			lines = append(lines, script.Line{
				Status: e.Status, Cells: []string{node, e.KeyID, string(e.Status), e.KEKID, age.String(), e.Detail},
			})
		}
	}
	c.Table("NODE\tKEY\tSTATUS\tKEK ID\tAGE\tDETAIL", lines)
	return reports
}

func describe(entries []contract.Entry) string {
	var parts []string
	for _, e := range entries {
		text := e.KeyID + "=" + string(e.Status)
		if f := e.Freshness(time.Now()); f != contract.Fresh {
			text += "," + string(f)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// awaitCompanions waits until companions run on exactly these nodes.
func (c *cluster) awaitCompanions(on ...string) {
	c.Until("companions on "+strings.Join(on, ", "), func() error {
		list, err := c.kube.CoreV1().Pods(home).List(c.Ctx, metav1.ListOptions{LabelSelector: managed})
		if err != nil {
			return err
		}
		var running []string
		for _, p := range list.Items {
			running = append(running, p.Spec.NodeName)
		}
		if slices.Sort(running); !slices.Equal(running, on) {
			return fmt.Errorf("they are on %v", running)
		}
		return nil
	})
}
