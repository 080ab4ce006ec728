package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// settled is the time without a write after which the operator counts as finished.
const settled = 3 * time.Second

// measured are the API servers that the operator delivers reporters to.
var measured = []apiservers.Server{apiservers.Kube, apiservers.OpenShift}

// operatorFixture is an operator on its own cluster with two of OpenShift's API servers, in different modes. The nodes
// are simulated (package nodes), so no reporter runs.
type operatorFixture struct {
	*fixture
	name      string // of the build
	namespace string // the operator's
	config    string // the folder of its file
	admin     dynamic.Interface
	kube      kubernetes.Interface
	metrics   string // the URL of the metrics
	process   *process
}

// Each build has its own cluster. The sizes of the -operator-base build have no bound.
func TestOperator(t *testing.T) {
	var sizes, residents []int64
	var cpus []time.Duration
	eachOperator(t, "operator", func(f *fixture, name, binary string, manifests install.Manifests) {
		info, err := os.Stat(binary)
		f.must(err)
		sizes = append(sizes, info.Size())
		bound := int64(maxOperatorBinary)
		if name != "operator" {
			bound = unbounded
		}
		judge(f, name+": binary, stripped", info.Size(), bound, megabytes)
		o := f.startOperator(name, binary, manifests)
		o.quietTime()
		resident, cpu := o.reportedTime()
		residents, cpus = append(residents, resident), append(cpus, cpu)
	})
	if len(residents) > 1 {
		f := newFixture(t)
		compare(f, "operator: binary", sizes)
		compare(f, "operator: resident memory", residents)
		compare(f, "operator: CPU with reports", cpus)
	}
}

// eachOperator measures this build of the operator and the -operator-base build. The latter works only with the
// manifests of its own checkout.
func eachOperator(t *testing.T, what string, measured func(f *fixture, name, binary string, manifests install.Manifests)) {
	builds := []string{"kms-health-operator"}
	if *operatorBase != "" {
		builds = append(builds, *operatorBase)
	}
	for i, build := range builds {
		name := []string{"", "base "}[i] + what
		var manifests install.Manifests
		if i > 0 {
			manifests.Root = filepath.Dir(filepath.Dir(build))
		}
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			measured(f, name, f.program(build), manifests)
		})
	}
}

// newOperator starts a control plane for an operator, with OpenShift's API types if a variant is given.
func (f *fixture) newOperator(name, overlay string, variant controlplane.Variant) *operatorFixture {
	o := &operatorFixture{fixture: f, name: name, namespace: install.Namespace(overlay), config: filepath.Join(f.configs, "operator")}
	f.progress("starting etcd, kube-apiserver and kube-controller-manager for the operator")
	f.cluster = controlplane.StartForTest(f, controlplane.Options{CRDs: variant, Audit: true})
	if variant != "" {
		f.must(f.cluster.ApplyOpenShiftConfig(running, variant))
	}
	f.must(f.cluster.StartControllerManager(running, controlplane.OperatorControllers...))
	o.admin = dynamic.NewForConfigOrDie(f.cluster.RESTConfig())
	o.kube = kubernetes.NewForConfigOrDie(f.cluster.RESTConfig())
	return o
}

// run starts the operator's program with its ServiceAccount, a file and more flags.
func (o *operatorFixture) run(binary, file string, flags ...string) {
	token, err := o.cluster.ServiceAccountToken(running, o.namespace, install.ServiceAccount, controlplane.TokenOptions{})
	o.must(err)
	kubeconfig, err := o.cluster.WriteKubeconfig(filepath.Join(o.dir, "credentials"),
		controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	o.must(err)
	o.must(disk.WriteVolume(o.config, map[string]string{"config.yaml": file}))
	o.process = o.start(strings.ReplaceAll(o.name, " ", "-"), binary, append([]string{"start",
		"--config", filepath.Join(o.config, "config.yaml"), "--kubeconfig", kubeconfig, "--namespace", o.namespace,
		"--image", "reporter:1"}, flags...)...)
}

// awaitDelivery waits until an object's condition shows that an API server's reporters are delivered.
func (o *operatorFixture) awaitDelivery(apiServer string, gvr schema.GroupVersionResource, object string) {
	o.until("delivery to "+apiServer, freshPoll, func() bool {
		resource, err := o.admin.Resource(gvr).Get(running, object, metav1.GetOptions{})
		return err == nil && apiservers.Delivered.MatchString(operatorstatus.Read(resource).Conditions[contract.HealthReporting].Message)
	})
}

// startOperator starts the operator as manifests/ does: with the shipped rights, leader election, and metrics over TLS.
// It returns when everything is delivered.
func (f *fixture) startOperator(name, binary string, manifests install.Manifests) *operatorFixture {
	o := f.newOperator(name, install.OpenShift, controlplane.TechPreviewNoUpgrade)
	f.must(apiservers.CreateNamespaces(running, o.kube))
	f.must(manifests.Apply(running, f.cluster.RESTConfig(), install.OpenShift, "deployment"))
	workers, err := nodes.Start(running, f.cluster.RESTConfig(), nodeNames...)
	f.must(err)
	f.Cleanup(workers.Stop)
	for _, s := range measured {
		f.fill(o.admin, s)
		for _, revision := range []string{"", "1"} {
			text := apiservers.Encryption("1", "identity")
			f.must(apiservers.Apply(running, o.admin, owner, apiservers.Secrets, s.Namespace, apiservers.Secret(revision, text)))
		}
	}
	for _, node := range nodeNames {
		_, err := workers.RunStaticPod(running, node, apiservers.StaticPod("1"))
		f.must(err)
	}
	f.must(apiservers.Apply(running, o.admin, owner, apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment("1")))

	f.progress("the operator sets up 2 API servers")
	o.metrics = controlplane.FreeAddress(f)
	o.run(binary, "apiVersion: kmshealth.openshift.io/v1alpha1\n"+
		"kind: OperatorConfiguration\nprobe: {interval: 30s}\napiServers:\n"+
		apiservers.Kube.Target("mode: CompanionPod", `serving: {address: "0.0.0.0:9180", secret: serving}`)+
		apiservers.OpenShift.Target("mode: Sidecar", "deployment: apiserver"),
		"--metrics-bind-address", o.metrics, "--health-bind-address", controlplane.FreeAddress(f))
	o.awaitDelivered()
	return o
}

// fill gives an operator resource as many conditions as OpenShift's, because each watch event contains all of them.
func (f *fixture) fill(admin dynamic.Interface, s apiservers.Server) {
	var conditions []any
	for i := range 100 {
		conditions = append(conditions, map[string]any{
			"type": fmt.Sprintf("SomeController%dDegraded", i), "status": "False", "reason": "AsExpected",
			"message": strings.Repeat("Everything is healthy. ", 10), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	f.must(apiservers.Apply(running, admin, owner, controlplane.OperatorGVR(s.Resource), "", s.Status(conditions...), "status"))
}

// awaitDelivered waits until every target's reporters are delivered, and until the operator has written nothing for
// settled.
func (o *operatorFixture) awaitDelivered() {
	for _, s := range measured {
		o.awaitDelivery(s.Name, controlplane.OperatorGVR(s.Resource), controlplane.ClusterObject)
	}
	o.until("the operator's last write", settled, func() bool {
		return !slices.ContainsFunc(o.requests(time.Now().Add(-settled)), isWrite)
	})
}

// requests returns the operator's requests after a time, from the API server's audit log.
func (o *operatorFixture) requests(after time.Time) []auditv1.Event {
	o.must(o.cluster.AuditFence(running))
	seen := map[string]bool{}
	events, err := o.cluster.AuditEvents(
		controlplane.ServiceAccountUser(o.namespace, install.ServiceAccount),
		func(event *auditv1.Event) bool {
			id := string(event.AuditID) // the start and the end of a watch have the same ID
			again := seen[id]
			seen[id] = true
			return !again && event.RequestReceivedTimestamp.After(after)
		})
	o.must(err)
	return events
}

// isWrite reports whether a request changes anything but the operator's lease.
func isWrite(event auditv1.Event) bool {
	if event.ObjectRef != nil && event.ObjectRef.Resource == "leases" {
		return false
	}
	return !slices.Contains([]string{"get", "list", "watch"}, event.Verb)
}

// quietTime measures the operator while nothing changes.
func (o *operatorFixture) quietTime() {
	o.progress("nothing happens around the operator, for %s", o.quiet)
	began, before := time.Now(), o.process.cpuTime()
	o.pause(o.quiet)
	quiet := fmt.Sprintf("%s, quiet for %s: ", o.name, o.quiet)
	judge(o.fixture, quiet+"CPU", o.process.cpuTime()-before, unbounded, milliseconds)
	lease, written := 0, 0
	requests := o.requests(began)
	for _, r := range requests {
		switch {
		case isWrite(r):
			written++
			o.progress("the operator wrote: %s %s", r.Verb, r.RequestURI)
		case r.ObjectRef != nil && r.ObjectRef.Resource == "leases":
			lease++
		}
	}
	judge(o.fixture, quiet+"requests in all", len(requests), unbounded, number)
	judge(o.fixture, quiet+"requests for its lease", lease, maxLease, number)
	judge(o.fixture, quiet+"writes", written, 0, number)
}

// reportedTime measures memory and CPU while reporters report: once a second for each node, on every operator resource.
func (o *operatorFixture) reportedTime() (resident int64, cpu time.Duration) {
	o.progress("reporters report around the operator, for %s", o.reports)
	o.report(5 * time.Second) // the first reports change conditions
	began, before, cpuBefore := time.Now(), o.process.memory(), o.process.cpuTime()
	o.report(o.reports)
	after, cpuAfter := o.process.memory(), o.process.cpuTime()
	for _, r := range o.requests(began) {
		if isWrite(r) && r.ObjectRef != nil && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			o.Errorf("the operator writes because of reports: %s %s", r.Verb, r.RequestURI)
		}
	}
	bound := int64(maxOperatorResident)
	if o.reports < fullReports || o.name != "operator" {
		bound = unbounded
	}
	reported := fmt.Sprintf("%s, reports for %s: ", o.name, o.reports)
	resident = max(before.all, after.all)
	judge(o.fixture, reported+"resident memory (VmRSS)", resident, bound, megabytes)
	judge(o.fixture, reported+"of it not the binary's (RssAnon)", max(before.anon, after.anon), unbounded, megabytes)
	cpu = cpuAfter - cpuBefore
	judge(o.fixture, reported+"CPU", cpu, unbounded, milliseconds)
	return resident, cpu
}

// report writes reports once a second, like reporters, and scrapes the operator.
func (o *operatorFixture) report(d time.Duration) {
	began := time.Now()
	o.repeat(d, time.Second, func(i int) {
		message := o.healthy(time.Second)
		for _, s := range measured {
			for _, node := range nodeNames {
				o.must(s.Report(running, o.admin, node, message, began))
			}
		}
		if i%30 == 29 { // like Prometheus
			o.scrape("https://"+o.metrics, o.cluster.RESTConfig().BearerToken)
		}
	})
}

// repeat writes reports at each interval. It fails if it could not write as many.
func (o *operatorFixture) repeat(d, interval time.Duration, write func(i int)) {
	began, n := time.Now(), 0
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ; time.Since(began) < d; n++ {
		write(n)
		<-tick.C
	}
	if want := int(d / interval); n < want*9/10 {
		o.Fatalf("%d times in %s, must be %d: this would not measure the work", n, d, want)
	}
}

// healthy returns a report of two healthy plugins.
func (o *operatorFixture) healthy(interval time.Duration) string {
	var entries []contract.Entry
	for _, keyID := range []string{"1", "2"} {
		entries = append(entries, contract.Entry{KeyID: keyID, KEKID: "kek-" + keyID, Status: contract.Healthy, LastChecked: time.Now(), Interval: interval})
	}
	message, err := contract.EncodeMessage(entries)
	o.must(err)
	return message
}
