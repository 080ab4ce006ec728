package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/podspec"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// settled is how long the operator must have written nothing to be done.
const settled = 3 * time.Second

// operatorFixture is an operator, and what it serves: a cluster of its own with
// OpenShift's three API servers, each with another delivery. Nodes are package nodes',
// so what the operator delivers does not run.
type operatorFixture struct {
	*fixture
	namespace string // the operator's
	config    string // the folder of its file
	admin     dynamic.Interface
	kube      kubernetes.Interface
	metrics   *scraper
	process   *process
}

func TestOperator(t *testing.T) {
	f := newFixture(t)
	binary := f.program("kms-health-operator")
	f.add(row{what: "operator: binary, stripped", measured: megabytes(f.size(binary))})
	o := f.startOperator(binary)
	o.quietTime()
	o.reportedTime()
	o.followSecret()
	o.followFile()
}

// startOperator starts the operator as manifests/ does, with the rights that it ships
// with: elected, and with metrics over TLS. It returns when all is delivered.
func (f *fixture) startOperator(binary string) *operatorFixture {
	f.Helper()
	o := &operatorFixture{fixture: f, namespace: install.Namespace(install.OpenShift), config: filepath.Join(f.configs, "operator")}
	f.progress("starting etcd, kube-apiserver and kube-controller-manager for the operator")
	cluster := controlplane.StartForTest(f, controlplane.Options{CRDs: controlplane.TechPreviewNoUpgrade, Audit: true})
	f.cluster = cluster
	f.must(cluster.ApplyOpenShiftConfig(running, controlplane.TechPreviewNoUpgrade))
	f.must(cluster.StartControllerManager(running, controlplane.ControllerManagerOptions{}))
	var err error
	o.admin, err = dynamic.NewForConfig(cluster.RESTConfig())
	f.must(err)
	o.kube, err = kubernetes.NewForConfig(cluster.RESTConfig())
	f.must(err)
	f.must(apiservers.CreateNamespaces(running, o.kube))
	f.must(install.Apply(running, cluster.RESTConfig(), install.OpenShift, "deployment", "legacy-token"))
	workers, err := nodes.Start(running, cluster.RESTConfig(), nodeNames...)
	f.must(err)
	f.Cleanup(workers.Stop)
	for _, s := range apiservers.All {
		f.fill(o.admin, s)
		for _, revision := range []string{"", "1"} {
			o.encrypt(s, revision, "1")
		}
	}
	for _, node := range nodeNames {
		_, err := workers.RunStaticPod(running, node, apiservers.StaticPod("1"))
		f.must(err)
	}
	f.must(apiservers.Apply(running, o.admin, owner, apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment("1")))
	o.runExternal()

	f.progress("the operator delivers to 3 targets")
	token, err := cluster.ServiceAccountToken(running, o.namespace, install.ServiceAccount, controlplane.TokenOptions{})
	f.must(err)
	kubeconfig, err := cluster.WriteKubeconfig(filepath.Join(f.dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	f.must(err)
	o.configure(30 * time.Second)
	address, certs := o.serve()
	o.process, _ = f.start(filepath.Join(f.dir, "operator.log"), binary, "run",
		"--config", filepath.Join(o.config, "config.yaml"), "--kubeconfig", kubeconfig, "--namespace", o.namespace, "--image", "reporter:1",
		"--metrics-bind-address", address, "--metrics-cert-dir", certs, "--health-bind-address", f.freeAddress())
	o.awaitDelivered()
	return o
}

// runExternal runs a pod of oauth-apiserver on each node, to which its owner has added the
// reporter.
func (o *operatorFixture) runExternal() {
	o.Helper()
	s := apiservers.OAuth
	for _, node := range nodeNames {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + node, Namespace: s.Namespace, Labels: map[string]string{"apiserver": "true"}},
			Spec: corev1.PodSpec{
				NodeName:    node,
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name: s.Name, Image: "oauth:1", VolumeMounts: []corev1.VolumeMount{{Name: "sockets", MountPath: "/var/run/kmsplugin"}},
				}},
				Volumes: []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			},
		}
		plugin := v1alpha1.Plugin{KeyID: "1", Endpoint: "unix:///var/run/kmsplugin/kms-1.sock"}
		o.must(podspec.Inject(&pod.ObjectMeta, &pod.Spec, podspec.Options{
			Image: "reporter:1", Endpoints: []string{plugin.Endpoint},
			ConfigMap: manifests.ConfigMapName(s.Name, []v1alpha1.Plugin{plugin}), Secret: "kms-health-reporter-" + s.Name + "-mintedtoken",
		}))
		_, err := o.kube.CoreV1().Pods(s.Namespace).Create(running, pod, metav1.CreateOptions{})
		o.must(err)
	}
}

// serve returns the address of the operator's metrics and the folder of its
// certificate, and makes the scraper with the rights to read them.
func (o *operatorFixture) serve() (address, certs string) {
	o.Helper()
	ca, err := controlplane.NewCA("metrics")
	o.must(err)
	pair, err := ca.Serving("127.0.0.1")
	o.must(err)
	certs = filepath.Join(o.dir, "serving")
	o.must(os.Mkdir(certs, 0o700))
	o.must(os.WriteFile(filepath.Join(certs, "tls.crt"), pair.Cert, 0o600))
	o.must(os.WriteFile(filepath.Join(certs, "tls.key"), pair.Key, 0o600))
	o.must(o.cluster.CreateServiceAccount(running, namespace, account))
	name := metav1.ObjectMeta{Name: "bench-scraper"}
	_, err = o.kube.RbacV1().ClusterRoles().Create(running, &rbacv1.ClusterRole{
		ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}},
	}, metav1.CreateOptions{})
	o.must(err)
	_, err = o.kube.RbacV1().ClusterRoleBindings().Create(running, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	o.must(err)
	token, err := o.cluster.ServiceAccountToken(running, namespace, account, controlplane.TokenOptions{})
	o.must(err)
	address = o.freeAddress()
	o.metrics = newScraper(o, address, ca, token)
	return address, certs
}

// configure writes the operator's file, and returns just before when.
func (o *operatorFixture) configure(interval time.Duration) time.Time {
	o.Helper()
	changed := time.Now()
	o.must(nodes.WriteVolume(o.config, map[string]string{"config.yaml": fmt.Sprintf(
		"apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\nprobe: {interval: %s}\ntargets:\n", interval) +
		apiservers.Kube.Target("delivery: Companion", `serving: {address: "0.0.0.0:9180", secret: serving}`) +
		apiservers.OpenShift.Target("delivery: Deployment", "deployment: apiserver") +
		apiservers.OAuth.Target("delivery: External")}))
	return changed
}

// fill gives an operator resource as many conditions as OpenShift's have: each event of
// a watch has all of them.
func (f *fixture) fill(admin dynamic.Interface, s apiservers.Server) {
	f.Helper()
	var conditions []any
	for i := range 100 {
		conditions = append(conditions, map[string]any{
			"type": fmt.Sprintf("SomeController%dDegraded", i), "status": "False", "reason": "AsExpected",
			"message": strings.Repeat("Everything is healthy. ", 10), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	f.must(apiservers.Apply(running, admin, owner, controlplane.OperatorGVR(s.Resource), "", s.Status(conditions...), "status"))
}

// encrypt writes the encryption config of a revision, or the live one, with
// plugins of these key ids, the first of which writes.
func (o *operatorFixture) encrypt(s apiservers.Server, revision string, keyIDs ...string) {
	o.Helper()
	text := apiservers.Encryption(slices.Concat(keyIDs, []string{"identity"})...)
	o.must(apiservers.Apply(running, o.admin, owner, apiservers.Secrets, s.Namespace, apiservers.Secret(revision, text)))
}

// awaitDelivered waits until every target's condition is True, and the operator has
// written nothing for a while.
func (o *operatorFixture) awaitDelivered() {
	o.Helper()
	for _, s := range apiservers.All {
		o.until("delivery to "+s.Name, freshPoll, func() bool {
			resource, err := o.admin.Resource(controlplane.OperatorGVR(s.Resource)).Get(running, controlplane.ClusterObject, metav1.GetOptions{})
			return err == nil && operatorcr.Read(resource).Conditions[delivery.ConditionType].Status == operatorcr.True
		})
	}
	written, since := -1, time.Now()
	o.until("the operator's last write", settled/10, func() bool {
		requests := slices.DeleteFunc(o.requests(time.Time{}), func(event auditv1.Event) bool { return !isWrite(event) })
		if len(requests) != written {
			written, since = len(requests), time.Now()
		}
		return time.Since(since) > settled
	})
}

// requests are the operator's that came after a time, from the API server's log.
func (o *operatorFixture) requests(after time.Time) []auditv1.Event {
	o.Helper()
	o.must(o.cluster.AuditFence(running))
	seen := map[string]bool{}
	events, err := o.cluster.AuditEventsByUser(
		controlplane.ServiceAccountUser(o.namespace, install.ServiceAccount),
		func(event *auditv1.Event) bool {
			id := string(event.AuditID) // a watch's beginning and end have one
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

// quietTime measures what the operator does while nothing happens.
func (o *operatorFixture) quietTime() {
	o.progress("nothing happens around the operator, for %s", o.quiet)
	began, before := time.Now(), cpuTime(o, o.process.PID())
	o.pause(o.quiet)
	quiet := fmt.Sprintf("operator, quiet for %s: ", o.quiet)
	o.add(row{what: quiet + "CPU, user and system", measured: milliseconds(cpuTime(o, o.process.PID()) - before)})
	byVerb, written := map[string]int{}, 0
	for _, r := range o.requests(began) {
		what := r.Verb
		if r.ObjectRef != nil && r.ObjectRef.Resource == "leases" {
			what += " of its lease"
		}
		byVerb[what]++
		if isWrite(r) {
			written++
			o.progress("the operator wrote: %s %s", r.Verb, r.RequestURI)
		}
	}
	list := []string{}
	for _, verb := range slices.Sorted(maps.Keys(byVerb)) {
		list = append(list, fmt.Sprintf("%d %s", byVerb[verb], verb))
	}
	o.add(row{
		what: quiet + "requests", measured: strings.Join(list, ", "),
		value: fmt.Sprintf("%d writes", written), bound: "0 writes", verdict: atMost(written, 0),
	})
}

// reportedTime measures memory while reporters report: each on its node, once a
// second, on every operator resource.
func (o *operatorFixture) reportedTime() {
	o.progress("reporters report around the operator, for %s", o.reports)
	o.report(5 * time.Second) // the first reports are news, which is rolled up
	pid := o.process.PID()
	began, before, cpuBefore := time.Now(), memoryOf(o, pid), cpuTime(o, pid)
	o.report(o.reports)
	after, cpuAfter := memoryOf(o, pid), cpuTime(o, pid)
	for _, r := range o.requests(began) {
		if isWrite(r) && r.ObjectRef != nil && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			o.Errorf("the operator writes because of reports: %s %s", r.Verb, r.RequestURI)
		}
	}
	judged := atMost(max(before.all, after.all), maxOperatorResident)
	if o.reports < fullReports {
		judged = notJudged
	}
	o.add(row{
		what: fmt.Sprintf("operator, reports for %s: resident memory (VmRSS)", o.reports), measured: megabytes(before.all) + " to " + megabytes(after.all),
		bound: megabytes(int64(maxOperatorResident)), verdict: judged,
	})
	o.add(row{what: "  of it not the binary's (RssAnon)", measured: megabytes(before.anon) + " to " + megabytes(after.anon)})
	o.add(row{what: "  the most it ever was (VmHWM)", measured: megabytes(max(before.peak, after.peak))})
	o.add(row{what: "  CPU meanwhile, user and system", measured: milliseconds(cpuAfter - cpuBefore)})
}

// report writes what the reporters would, once a second, and scrapes the operator. It
// fails if there are fewer reports than there should be, or fewer deliveries than three.
func (o *operatorFixture) report(d time.Duration) {
	o.Helper()
	began, written, scraped := time.Now(), 0, 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < d {
		var entries []health.Entry
		for _, keyID := range []string{"1", "2"} {
			entries = append(entries, health.Entry{KeyID: keyID, KEKID: "kek-" + keyID, Status: health.Healthy, LastChecked: time.Now(), Interval: time.Second})
		}
		message, err := health.EncodeMessage(entries)
		o.must(err)
		for _, s := range apiservers.All {
			for _, node := range nodeNames {
				o.must(s.Report(running, o.admin, node, message, began))
				written++
			}
		}
		if time.Since(began) >= time.Duration(scraped)*scrapeEvery {
			scraped++
			delivered := 0.0
			for series, value := range o.metrics.scrape(o) {
				if strings.HasPrefix(series, "kms_health_operator_delivered{") {
					delivered += value
				}
			}
			if delivered != float64(len(apiservers.All)) {
				o.Fatalf("the operator's metrics have %.0f deliveries, there are %d", delivered, len(apiservers.All))
			}
		}
		<-tick.C
	}
	if want := int(d.Seconds()) * len(apiservers.All) * len(nodeNames); written < want*9/10 {
		o.Fatalf("%d reports in %s, must be %d: this would not measure the work", written, d, want)
	}
}

// followSecret measures the time from the answer to a write of an encryption config to
// the event of a ConfigMap with the same plugins.
func (o *operatorFixture) followSecret() {
	o.progress("%d changes of an encryption config", o.rotations)
	external := apiservers.OAuth
	events, err := o.kube.CoreV1().ConfigMaps(external.Namespace).Watch(running, metav1.ListOptions{LabelSelector: manifests.TargetLabel + "=" + external.Name})
	o.must(err)
	defer events.Stop()
	var took []time.Duration
	for i := range o.rotations {
		o.between(i)
		keyIDs := rotation(i)
		o.encrypt(external, "", keyIDs...)
		answered := time.Now()
		took = append(took, o.await(events, fmt.Sprintf("the file of key ids %v", keyIDs), func(event watch.Event) bool {
			cm, ok := event.Object.(*corev1.ConfigMap)
			return ok && event.Type != watch.Deleted && slices.Equal(keyIDsOf(cm.Data["config.yaml"]), keyIDs)
		}).Sub(answered))
	}
	slowest := slices.Max(took)
	o.add(row{
		what: fmt.Sprintf("operator: encryption config to ConfigMap, slowest of %d", len(took)), measured: milliseconds(slowest),
		bound: milliseconds(maxFollow), verdict: atMost(slowest, maxFollow),
	})
	o.add(row{what: "  the median of them", measured: milliseconds(median(took))})
}

// rotation is the plugin set after the i-th step of one key's way to the next: it
// comes, reads, writes, and is alone. None is ever one of before.
func rotation(i int) []string {
	last, next := strconv.Itoa(i/3+1), strconv.Itoa(i/3+2)
	return [][]string{{last, next}, {next, last}, {next}}[i%3]
}

func TestRotationNeverComesBackToASet(t *testing.T) {
	seen := map[string]bool{"1": true}
	last := []string{"1"}
	for i := range 30 {
		now := rotation(i)
		if text := strings.Join(now, " "); seen[text] {
			t.Errorf("step %d: %s was there before", i, text)
		} else {
			seen[text] = true
		}
		if !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(last, id) }) {
			t.Errorf("step %d: from %v to %v no key stays", i, last, now)
		}
		last = now
	}
}

// keyIDsOf are those of a reporter's file, the one that writes first, which is
// how the operator writes them.
func keyIDsOf(file string) []string {
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		return nil
	}
	var writes, reads []string
	for _, p := range c.Plugins {
		if p.Role == v1alpha1.RoleWrite {
			writes = append(writes, p.KeyID)
		} else {
			reads = append(reads, p.KeyID)
		}
	}
	return slices.Concat(writes, reads)
}

// followFile measures the time from a change of the operator's file to the event
// of the last of the companions that has it.
func (o *operatorFixture) followFile() {
	o.progress("%d changes of the operator's file", o.edits)
	events, err := o.kube.CoreV1().Pods(o.namespace).Watch(running, metav1.ListOptions{LabelSelector: manifests.TargetLabel + "=" + apiservers.Kube.Name})
	o.must(err)
	defer events.Stop()
	var took []time.Duration
	for i := range o.edits {
		o.between(i)
		interval := time.Duration(40+i) * time.Second
		changed := o.configure(interval)
		updated := map[string]bool{}
		took = append(took, o.await(events, fmt.Sprintf("companions with interval %s", interval), func(event watch.Event) bool {
			pod, ok := event.Object.(*corev1.Pod)
			if ok && event.Type != watch.Deleted && strings.Contains(pod.Annotations[manifests.ConfigAnnotation], "interval: "+interval.String()) {
				updated[pod.Spec.NodeName] = true
			}
			return len(updated) == len(nodeNames)
		}).Sub(changed))
	}
	o.add(row{what: fmt.Sprintf("operator: its file to all companions' annotations, median of %d", len(took)), measured: milliseconds(median(took))})
	o.add(row{what: "  the slowest of them", measured: milliseconds(slices.Max(took))})
}

// between waits until the operator has done the last change, out of step with its
// timers.
func (o *operatorFixture) between(i int) { o.pause(time.Duration(700+i%7*37) * time.Millisecond) }

// await waits for an event, and returns when it came.
func (o *operatorFixture) await(events watch.Interface, what string, found func(watch.Event) bool) time.Time {
	o.Helper()
	ctx, cancel := context.WithTimeout(running, waitLimit)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			o.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		case event, open := <-events.ResultChan():
			at := time.Now()
			if !open || event.Type == watch.Error {
				o.Fatalf("wait for %s: the watch ended: %v", what, event.Object)
			}
			if found(event) {
				return at
			}
		}
	}
}
