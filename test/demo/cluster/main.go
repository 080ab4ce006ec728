// Command cluster shows kms-health-operator and its reporters at work on a real etcd, kube-apiserver and
// kube-controller-manager with OpenShift's CRDs: real processes, no root, no internet.
//
//	cluster [--stay]
//
// It exits with 0 only if everything happened as shown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/wait"
)

const (
	// bound limits a run without --stay, and waitLimit each of its waits, also on a busy machine.
	bound     = 4 * time.Minute
	waitLimit = 30 * time.Second
	// inertia is the time that a problem must last until the ClusterOperator reports it.
	inertia = 3 * time.Second
	// managed selects the objects that the operator creates.
	managed = contract.ManagedByLabel + "=" + contract.OperatorName
)

var operatorConfiguration = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n" +
	"probe:\n  interval: 1s\napiServers:\n" + apiservers.Kube.Target()

func main() {
	stay := flag.Bool("stay", false, "keep the cluster, with KMS on, until Ctrl-C")
	flag.Parse()
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(signals, *stay)
	if err != nil && signals.Err() != nil {
		err = errors.New("interrupted; everything was ended")
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo-cluster: %v\n", err)
		os.Exit(1)
	}
}

// failure is the panic that ends a run.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func run(signals context.Context, stay bool) (err error) {
	ctx, cancel := context.WithTimeout(signals, bound)
	defer cancel()
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%w\n%s", r.error, c.logs())
		default:
			panic(r)
		}
		if err = errors.Join(err, c.end()); err == nil && !stay {
			fmt.Println("\nAll of this happened as shown. Nothing is left running.\n" +
				"Next: `make demo-cluster STAY=1` keeps the cluster, with KMS on, and lists commands to try.")
		}
	}()
	c.begin()
	c.on()
	c.unhealthy()
	if stay {
		c.invite()
		<-signals.Done()
		fmt.Println("\nEnding everything.")
		return nil
	}
	c.off()
	return nil
}

func (c *cluster) begin() {
	fmt.Println(`kms-health-operator deploys a reporter for every KMS plugin beside an API server, and
removes it. Real here: etcd, kube-apiserver and kube-controller-manager with
OpenShift's CRDs, the operator with the rights that it ships with, the reporters,
and KMS v2 plugins on sockets. Simulated: three nodes, which run the reporters as
processes of this machine, and kube-apiserver's static pods on them.`)
	began := time.Now()
	c.start()
	fmt.Printf("The cluster is up after %.0f seconds, with manifests/openshift applied.\n", time.Since(began).Seconds())
}

func (c *cluster) on() {
	c.title("KMS is turned on. The Secret names a plugin, kms-1, and static pods of revision 2 have it.")
	c.configure(operatorConfiguration)
	c.startOperator()
	c.text(operatorConfiguration)
	c.setEncryption("2", "1", "identity")
	c.kubectl(0, "get", "secret", "encryption-config", "-n", target, "-o",
		`go-template={{index .data "encryption-config" | base64decode}}`)
	c.roll("2", true)
	began := time.Now()
	c.awaitCompanions(nodeNames...)
	c.note("From it, the operator made a companion beside each, which mounts that pod's sockets, and writes")
	c.note("a condition of kubeapiservers/cluster, KMSHealthReporter_<node>. Seen from there:")
	c.kubectl(0, "wait", "kubeapiserver/cluster", "--for=condition="+contract.HealthReporting+"=True", "--timeout=60s")
	c.kubectl(0, "kms-health", "status")
	c.note("All of that within %.1f seconds of the last static pod.", time.Since(began).Seconds())
	c.kubectl(0, "wait", "clusteroperator/kms-health", "--for=condition=Degraded=False", "--timeout=60s")
}

// unhealthy shows a fault and its end, as an administrator sees them.
func (c *cluster) unhealthy() {
	c.title("The vault behind the plugin on master-1 is sealed. Then it is unsealed.")
	c.note("$ kms-plugin ctl --control %s unhealthy vault is sealed", c.control("master-1"))
	must(c.plugins["master-1"].Do("unhealthy", "vault is sealed"))
	c.kubectl(0, "wait", "kubeapiserver/cluster", "--for=condition="+contract.PluginsDegraded+"=True", "--timeout=30s")
	c.kubectl(1, "kms-health", "status")
	c.kubectl(0, "wait", "clusteroperator/kms-health", "--for=condition=Degraded=True", "--timeout=30s")
	c.note("A cluster operator reports what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	c.kubectl(0, "get", "clusteroperators")
	c.note("$ kms-plugin ctl --control %s heal", c.control("master-1"))
	must(c.plugins["master-1"].Do("heal"))
	c.kubectl(0, "wait", "clusteroperator/kms-health", "--for=condition=Degraded=False", "--timeout=30s")
	c.kubectl(0, "kms-health", "status")
}

func (c *cluster) off() {
	c.title("KMS is turned off: everything is removed.")
	c.setEncryption("3", "identity")
	c.roll("3", false)
	c.awaitCompanions()
	c.note("With the pods that had the plugin, all companions are deleted. The operator keeps the Role by which")
	c.note("it reads encryption configs, and its record in a ClusterRole, until its file removes these, too:")
	c.note("$ echo 'managementState: Removed' >> operator.yaml")
	c.configure(operatorConfiguration + "managementState: Removed\n")
	// All kinds of objects that the operator creates, and its conditions.
	left := []string{"get", "pods,configmaps,secrets,serviceaccounts,daemonsets,roles,clusterroles,clusterrolebindings," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-A", "-l", managed}
	conditions := []string{"get", "kubeapiserver", "cluster", "-o", "jsonpath={.status.conditions[*].type}"}
	c.until("nothing of the operator's is left", func() error {
		for _, args := range [][]string{append(slices.Clone(left), "-o", "name"), conditions} {
			output, _, err := c.run(args...)
			if err == nil && strings.TrimSpace(string(output)) != "" {
				err = errors.New(string(output))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	c.kubectl(0, left...)
	c.kubectl(0, conditions...)
}

// invite prints commands for a cluster that is kept.
func (c *cluster) invite() {
	fmt.Printf(`
The cluster stays until Ctrl-C. Its plugins are real, and its API server encrypts
nothing. To look around, in another terminal:

export KUBECONFIG=%[1]s PATH=%[2]s:$PATH
kubectl kms-health status; kubectl kms-health preflight; kubectl kms-health status master-1
kubectl get clusteroperators; kubectl get pods -A -o wide; kubectl get events -n %[3]s
kubectl get kubeapiserver cluster -o yaml

Make a plugin unhealthy, and read its condition; first: make bin/kms-plugin

bin/kms-plugin ctl --control %[4]s unhealthy 'vault is sealed'
bin/kms-plugin ctl --control %[4]s heal
bin/kms-plugin ctl --help    # other faults

Change the operator's file, which is watched; the logs of the operator and the reporters:

sed -i 's/interval: .*/interval: 5s/' %[5]s/operator.yaml
tail -f %[5]s/operator.log %[5]s/reporters/*.log
`, c.admin, c.searchPath(), home, c.control("master-1"), c.dir)
}

// awaitCompanions waits until companions run on exactly these nodes.
func (c *cluster) awaitCompanions(on ...string) {
	c.until("companions on "+strings.Join(on, ", "), func() error {
		list, err := c.kube.CoreV1().Pods(home).List(c.ctx, metav1.ListOptions{LabelSelector: managed})
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

// until waits until a check succeeds. It fails if the operator ends.
func (c *cluster) until(what string, check func() error) {
	must(wait.For(c.ctx, waitLimit, what, func(context.Context) error {
		if !c.operator.Running() {
			return wait.Final(errors.New("the operator ended by itself"))
		}
		return check()
	}))
}

func (c *cluster) title(text string) {
	c.scene++
	fmt.Printf("\n%d. %s\n", c.scene, text)
}

// note prints a line within a scene.
func (c *cluster) note(format string, args ...any) {
	fmt.Println("   " + c.tidy(fmt.Sprintf(format, args...)))
}

// text prints a program's output, or a file.
func (c *cluster) text(output string) {
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		fmt.Println(strings.TrimRight("     "+c.tidy(line), " "))
	}
}

// tidy keeps the temporary folder out of the output.
func (c *cluster) tidy(text string) string { return strings.ReplaceAll(text, c.dir, "…") }
