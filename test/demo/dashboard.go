package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const (
	// apiServer is where kube-apiserver's own plugin is, beside those of the nodes.
	apiServer = "kube-apiserver"
	// openShiftKey is the key of openshift-apiserver.
	openShiftKey = "2"
	// Prometheus's own, on OpenShift.
	prometheusNamespace, prometheusName = "openshift-monitoring", "prometheus-k8s"
)

// monitored is a cluster that Prometheus scrapes.
type monitored struct {
	*cluster
	prometheus *prometheus
	used       int // Secrets that were made
}

// dashboardDemo lets a real Prometheus scrape a cluster in which things happen, and
// requires that each query of the dashboard returns series.
func dashboardDemo(d *demo, lasts time.Duration, stay bool) {
	m := &monitored{cluster: newCluster(d)}
	m.say("A real Prometheus scrapes kms-health and a kube-apiserver that encrypts with a KMS")
	m.say("plugin, and evaluates the alerts that are shipped. Then every query of the dashboard")
	m.say("must return series.")
	m.build()
	m.scrape()
	m.observe(lasts)
	m.panels()
	m.alerts()
	if stay {
		m.say("\nPrometheus stays until Ctrl-C, for queries (it has no web page): %s", m.prometheus.url)
		<-m.signals.Done()
		return
	}
	m.next = "Next: `make dashboard STAY=1` keeps Prometheus, as a data source for a Grafana of yours."
}

// build starts the cluster and kms-health, with two targets: companions beside
// kube-apiserver, and containers in the pods of openshift-apiserver.
func (m *monitored) build() {
	m.title("A cluster with two API servers on three nodes, kms-health, and plugins.")
	m.components, m.serving = []string{"deployment"}, map[string]map[string]string{}
	m.startPlugin(apiServer, "1", m.dir)
	m.encryption = []byte(strings.ReplaceAll(apiservers.Encryption("1", "identity"), "/var/run/kmsplugin", m.dir))
	var err error
	m.metrics, err = controlplane.FreeAddress()
	m.must(err)
	kube := apiservers.Kube.Target(m.serve("127.0.0.1:9180"))
	openShift := apiservers.OpenShift.Target("delivery: Deployment", "deployment: apiserver", m.serve("127.0.0.1:9181"))
	m.startCluster()
	m.setEncryption("1", "1", "identity")
	m.rollAll("1", "1")
	for _, revision := range []string{"", "1"} {
		m.must(apiservers.Apply(m.ctx, m.client, "openshift-apiserver-operator", apiservers.Secrets, apiservers.OpenShift.Namespace,
			apiservers.Secret(revision, apiservers.Encryption(openShiftKey, "identity"))))
	}
	m.must(apiservers.Apply(m.ctx, m.client, "openshift-apiserver-operator", apiservers.Deployments, apiservers.OpenShift.Namespace, apiservers.Deployment("1")))
	m.configure(configuration("probe:\n  interval: 1s\n  checks: {roundTrip: {interval: 1m}}\n", kube, openShift))
	m.startOperator()
	m.expect("all three nodes report", all("1=healthy"), interval)
	m.startOpenShiftPlugins()
}

// serve is the line of a target whose reporters serve at an address. All nodes are one
// machine here: each reporter gets an address of its own.
func (m *monitored) serve(address string) string {
	m.serving[address] = map[string]string{}
	for _, node := range nodeNames {
		free, err := controlplane.FreeAddress()
		m.must(err)
		m.serving[address][node] = free
	}
	return fmt.Sprintf("serving: {address: %q}", address)
}

// startOpenShiftPlugins starts those in the pods of openshift-apiserver, once the reporter
// is in them.
func (m *monitored) startOpenShiftPlugins() {
	pods := map[string]*corev1.Pod{}
	m.until("the reporter runs in three pods of openshift-apiserver", func() error {
		list, err := m.kube.CoreV1().Pods(apiservers.OpenShift.Namespace).List(m.ctx, metav1.ListOptions{LabelSelector: "apiserver=true"})
		if err != nil {
			return err
		}
		clear(pods)
		for i := range list.Items {
			if p := &list.Items[i]; len(p.Spec.Containers) == 2 && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				pods[p.Spec.NodeName] = p
			}
		}
		if len(pods) != len(nodeNames) || len(list.Items) != len(nodeNames) {
			return fmt.Errorf("in %d of %d", len(pods), len(list.Items))
		}
		return nil
	})
	for node, pod := range pods {
		m.startPlugin(node, openShiftKey, m.workers.EmptyDir(pod, socketVolume))
	}
}

// scrape starts Prometheus with OpenShift's ServiceAccount for it, and waits for the first
// samples of everything.
func (m *monitored) scrape() {
	m.title("Prometheus scrapes the reporters, the operator and kube-apiserver, every " + scrapeEvery.String() + ".")
	m.must(m.CreateServiceAccount(m.ctx, prometheusNamespace, prometheusName))
	meta := metav1.ObjectMeta{Name: prometheusName}
	_, err := m.kube.RbacV1().ClusterRoles().Create(m.ctx, &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{})
	m.must(err)
	_, err = m.kube.RbacV1().ClusterRoleBindings().Create(m.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: prometheusName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: prometheusNamespace, Name: prometheusName}}}, metav1.CreateOptions{})
	m.must(err)
	token, err := m.ServiceAccountToken(m.ctx, prometheusNamespace, prometheusName, controlplane.TokenOptions{Lifetime: 24 * time.Hour})
	m.must(err)
	tokenFile, caFile := filepath.Join(m.dir, "scrape.token"), filepath.Join(m.dir, "scrape.crt")
	m.must(os.WriteFile(tokenFile, []byte(token), 0o600))
	m.must(os.WriteFile(caFile, m.RESTConfig().CAData, 0o600))

	https := func(name string, tls map[string]any, target any) scrapeJob {
		return scrapeJob{"job_name": name, "scheme": "https", "authorization": map[string]any{"credentials_file": tokenFile},
			"tls_config": tls, "static_configs": []any{target}}
	}
	var reporters []any
	for address, nodes := range m.serving {
		_, port, _ := strings.Cut(address, ":")
		for node, used := range nodes {
			reporters = append(reporters, scrapeTarget(used, home, node+":"+port))
		}
	}
	m.prometheus = startPrometheus(m.demo,
		https("apiserver", map[string]any{"ca_file": caFile}, scrapeTarget(m.Address(), "default", "master-0:6443")),
		// Its certificate is of its own making, as in manifests/components/monitoring.
		https("kms-health-operator", map[string]any{"insecure_skip_verify": true}, scrapeTarget(m.metrics, home, "kms-health-operator:8443")),
		scrapeJob{"job_name": "kms-health-reporter", "static_configs": reporters})
	want := float64(len(reporters) + 3)
	m.until("every target is scraped", func() error {
		up, err := m.prometheus.number("sum(up)")
		if err == nil && up != want {
			err = fmt.Errorf("%v of %v are", up, want)
		}
		return err
	})
	m.note("%v targets, %d of them reporters.", want, len(reporters))
}

// event is something that happens at a part of the time.
type event struct {
	at   float64
	what string
	do   func()
}

func (m *monitored) events() []event {
	do := func(key string, nodes []string, words ...string) func() {
		return func() {
			for _, node := range nodes {
				m.command(m.control(node, key), words...)
			}
		}
	}
	first := []string{apiServer, "master-0"} // the one kube-apiserver is that of master-0
	return []event{
		{0.10, "The remote key of kube-apiserver is rotated. master-0 uses the new one.", func() {
			do("1", first[:1], "rotate")()
			do("1", first[1:], "reload")()
		}},
		{0.20, "The other nodes use it, too.", do("1", nodeNames[1:], "reload")},
		{0.35, "The vault behind kube-apiserver's plugin on master-1 is sealed.", do("1", nodeNames[1:2], "unhealthy", "vault is sealed")},
		{0.45, "The plugin on master-0 cannot reach its vault.", do("1", first, "rpc-error", "Unavailable", "no route to the vault")},
		{0.50, "openshift-apiserver's plugin on master-2 crashes.", do(openShiftKey, nodeNames[2:], "crash")},
		{0.60, "The plugin on master-0 reaches its vault again.", do("1", first, "heal")},
		{0.70, "openshift-apiserver's plugin on master-2 returns.", do(openShiftKey, nodeNames[2:], "return")},
		{0.95, "The vault on master-1 is unsealed.", do("1", nodeNames[1:2], "heal")},
	}
}

// observe lets things happen, and uses kube-apiserver every second.
func (m *monitored) observe(lasts time.Duration) {
	m.title(fmt.Sprintf("What happens in %s, beside a Secret that is written and two that are read every second:", lasts))
	began, events := time.Now(), m.events()
	for elapsed := time.Duration(0); elapsed < lasts; elapsed = time.Since(began) {
		for len(events) > 0 && elapsed >= time.Duration(events[0].at*float64(lasts)) {
			m.note("%5s  %s", elapsed.Round(time.Second), events[0].what)
			events[0].do()
			events = events[1:]
		}
		m.use()
		select {
		case <-time.After(time.Second):
		case <-m.alive.Done():
			m.fail("the operator ended by itself")
		case <-m.ctx.Done():
			m.must(m.ctx.Err())
		}
	}
}

// use writes a Secret, and reads that and the first one, whose key is not used any more
// after the rotation.
func (m *monitored) use() {
	ctx, cancel := context.WithTimeout(m.ctx, grace)
	defer cancel()
	secrets := m.kube.CoreV1().Secrets("default")
	name := func(n int) string { return "used-" + strconv.Itoa(n) }
	_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name(m.used)}}, metav1.CreateOptions{})
	m.must(err)
	for _, n := range []int{0, m.used} {
		_, err := secrets.Get(ctx, name(n), metav1.GetOptions{})
		m.must(err)
	}
	m.used++
}
