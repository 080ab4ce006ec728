//go:build integration

package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The defaults of the environment variables SEQUENCES (how many random sequences of changes run) and SEED (the seed of
// the first). A failure names its seed.
const sequences, firstSeed = 2, 1

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	must.Succeed(t, err)
	return n
}

// model is the state that the test gave the cluster. The objects that the operator should create follow from it.
type model struct {
	random   *rand.Rand
	revision int
	live     []string            // the live providers of kube-apiserver
	other    []string            // the providers of openshift-apiserver, live and deployed
	at       apiservers.Server   // the configuration's second API server, in its namespace
	revs     map[string]string   // each node's revision
	sets     map[string][]string // the providers of kube-apiserver's revisions
	second   map[string]string   // the revision of a node's second kube-apiserver, in a rollout that is stuck
	file     []string            // the plugins of kube-apiserver in the operator's file; nil: it reads the Secret
	probed   []string            // file at the last call of report: the reporters' files change a moment later
	unset    map[string]bool     // the nodes whose kube-apiserver has no flag for an encryption config
	interval string
	profile  string
	source   v1alpha1.ConfigSource // of kube-apiserver's companions

	behind     map[string]time.Duration // how far each node's clock is behind; negative: ahead
	broken     map[string]string        // the later content of each revision's Secret that cannot be read or decoded
	stopNative func()                   // ends OpenShift's own reporters; nil: there is none
	unmanaged  bool
	silent     map[string]bool       // the nodes whose reporters of kube-apiserver write nothing
	servers    map[string]corev1.Pod // kube-apiserver's pods at the last reports, by UID
	reported   map[string]bool       // the UIDs of pods, with their plugins, whose companion has reported
	turn       bool                  // flips at each call of report
	made       int                   // how many static pods were created
	restored   bool                  // etcd was restored
}

var providerSets = [][]string{
	{"aescbc", "identity"}, {"1", "identity"}, {"1", "2", "identity"}, {"2", "1", "aescbc"}, {"2", "identity"}, {"aescbc", "2"}, {"identity"},
	{"1", apiservers.Unmounted, "identity"}, {apiservers.Unmounted, "2", "1", "identity"},
	{apiservers.Unprobed, "identity"}, {"1", apiservers.Unprobed, "identity"},
	{moved, "identity"}, {"2", moved, "identity"}, {"1", "identity", apiservers.Reversed}, {"1", "2", apiservers.Reversed},
}

const moved = "1" + apiservers.Moved

// files are the plugins that the operator's file may have. nil: none.
var files = [][]string{nil, {"1"}, {"1", "2"}, {"2"}, {moved}}

// probed reports whether a provider is a plugin that reporters can probe.
func probed(provider string) bool { return provider == "1" || provider == "2" || provider == moved }

// mixed reports whether resources have different first providers.
func mixed(providers []string) bool { return slices.Contains(providers, apiservers.Reversed) }

// keys returns the plugins that reporters can probe: as text with their roles, such as 1W+2R, and as a list.
func keys(providers []string) (text string, ids []string) {
	var write, read []string
	for i, p := range providers {
		switch {
		case !probed(p):
			continue
		case i == 0, mixed(providers) && i == len(providers)-2:
			write = append(write, p+"W")
		default:
			read = append(read, p+"R")
		}
		ids = append(ids, p)
	}
	return strings.Join(append(write, read...), "+"), ids
}

func (m *model) config() string {
	at := m.at.Target("mode: Sidecar", "deployment: apiserver")
	state := ""
	if m.unmanaged {
		state = "managementState: Unmanaged\n"
	}
	kube := []string{"mode: CompanionPod", "configSource: " + string(m.source), fixture.Serving}
	if m.file != nil {
		kube = append(kube, "plugins:")
		for i, word := range m.file {
			p, role := pluginOf(word), []v1alpha1.Role{v1alpha1.RoleWrite, v1alpha1.RoleRead}[min(i, 1)]
			kube = append(kube, fmt.Sprintf("- {keyID: %q, endpoint: %q, role: %s, timeout: 10s}", p.KeyID, p.Endpoint, role))
		}
	}
	return state + fixture.Every(m.interval, apiservers.Kube.Target(kube...),
		strings.Replace(at, "container: "+m.at.Name, "container: "+apiservers.OpenShift.Name, 1))
}

// want returns the desired objects, in the format of fixture.Describe.
func (m *model) want() []string {
	tls := fixture.TLSProfile(m.profile)
	var lines []string
	var pods []string
	source := fromAnnotation
	if m.source == v1alpha1.ConfigSourceConfigMap {
		source = fromConfigMap
	}
	on := false
	revisions := map[string]bool{}
	files := map[string]string{} // by ConfigMap: of sets with the same sockets, the last one counts
	for _, node := range fixture.NodeNames {
		text, ids := keys(m.setOf(m.revs[node]))
		files[setName(apiservers.Kube, ids...)] = text
	}
	for _, node := range fixture.NodeNames {
		revisions[m.revs[node]] = true
		if text, ids := keys(m.setOf(m.revs[node])); len(ids) > 0 {
			on = true
			if m.source == v1alpha1.ConfigSourceConfigMap {
				text = files[setName(apiservers.Kube, ids...)]
			}
			pods = append(pods, fmt.Sprintf("companion on %s, reporter:1%s%s every %s to kubeapiservers, %s", node, source, text, m.interval, tls))
		}
	}
	if _, ids := keys(m.live); len(ids) > 0 {
		on = true
	}
	secrets := "encryption-config"
	for _, r := range slices.Sorted(maps.Keys(revisions)) {
		secrets += " encryption-config-" + r
	}
	switch {
	case m.file != nil: // the operator reads no Secret
		lines = append(lines, base(apiservers.Kube, fixture.Namespace, "", pods...)...)
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == role(apiservers.Kube, "") })
	case on:
		lines = append(lines, base(apiservers.Kube, fixture.Namespace, secrets, pods...)...)
	default:
		lines = append(lines, idle(apiservers.Kube, secrets)...)
	}
	secrets = fmt.Sprintf("encryption-config encryption-config-%s", m.revs["other"])
	if text, ids := keys(m.other); m.at.Namespace == absent {
		lines = append(lines, "ClusterRole kms-health-reporter-"+m.at.Name)
	} else if len(ids) > 0 {
		target, ns := m.at, m.at.Namespace
		lines = append(lines, base(target, ns, secrets,
			"Secret "+ns+"/kms-health-reporter-"+target.Name+"-token: token",
			"Deployment "+ns+"/apiserver: injected reporter:1, "+setName(target, ids...),
			"ConfigMap "+ns+"/"+setName(target, ids...)+": "+text+" every "+m.interval+" to "+target.Resource)...)
	} else {
		lines = append(lines, idle(m.at, secrets)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// rollUp returns the expected roll-up of an API server whose probed plugins are all reported as healthy: the reason of
// KMSHealthReporting, the possible statuses and reasons of KMSPluginsDegraded, and whether all reporters agree on a
// key. used are the encryption configs of its pods, after the live one.
func rollUp(used ...[]string) (reporting string, degraded []string, agreed bool) {
	has := func(is func(string) bool) bool {
		return slices.ContainsFunc(used, func(set []string) bool { return slices.ContainsFunc(set, is) })
	}
	agreed = probed(used[0][0]) && !slices.ContainsFunc(used, func(set []string) bool {
		return pluginOf(set[0]).KeyID != pluginOf(used[0][0]).KeyID || mixed(set)
	})
	switch {
	case has(func(p string) bool { return p == apiservers.Unprobed }):
		return contract.ProviderNotProbed, []string{"Unknown " + contract.ProviderNotProbed}, agreed
	case has(func(p string) bool { return p == apiservers.Unmounted }): // its report may not be due yet
		return contract.SocketVolumeMissing,
			[]string{"False " + contract.Progressing, "Unknown " + contract.ReportsMissing}, agreed
	case has(probed):
		return contract.AsExpected, []string{"False " + contract.AsExpected}, agreed
	default:
		return "", []string{" "}, false
	}
}

// differs returns an error unless the conditions are as expected.
func (m *model) differs(t *testing.T) error {
	var found error
	for server, used := range map[apiservers.Server][][]string{apiservers.Kube: m.used(), m.at: {m.other}} {
		is := fixture.Resource(t, server).Conditions
		reporting, degraded, agreed := rollUp(used...)
		c := is[contract.PluginsDegraded]
		now := c.Status + " " + c.Reason
		switch {
		case server.Namespace == absent:
			reporting, degraded, agreed = contract.NamespaceMissing, []string{now}, false
		case server != apiservers.Kube || reporting != contract.AsExpected || m.source != v1alpha1.ConfigSourceConfigMap:
		case m.file == nil, is[contract.HealthReporting].Reason != reporting:
			reporting = contract.ConfigMapsEncrypted // all encryption configs here encrypt ConfigMaps
		}
		if is[contract.HealthReporting].Reason != reporting || !slices.Contains(degraded, now) ||
			fixture.Agrees(is[contract.WriteKeyAgreed]) != agreed {
			found = fmt.Errorf("%s must be %q, %q, agreed %t, and is %+v", server.Name, reporting, degraded, agreed, is)
		}
	}
	if c := fixture.ClusterOperator(t)["Progressing"]; c.Status != operatorstatus.False {
		found = errors.Join(found, fmt.Errorf("ClusterOperator: %+v", c))
	}
	return found
}

// namespacesOfMoves are the namespaces where openshift-apiserver runs. It does not run in absent.
var namespacesOfMoves = []string{apiservers.OpenShift.Namespace, apiservers.OAuth.Namespace}

const absent = "absent"

// grantAbsent permits the operator to see that the namespace absent does not exist.
func grantAbsent(t *testing.T) {
	t.Helper()
	const group, name = "rbac.authorization.k8s.io", "sees-absent"
	fixture.ApplyObject(t, fixture.Kinds["ClusterRole"], "", map[string]any{
		"apiVersion": group + "/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
		"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"namespaces"},
			"resourceNames": []any{absent}, "verbs": []any{"list", "watch"}}},
	})
	fixture.ApplyObject(t, fixture.Kinds["ClusterRoleBinding"], "", map[string]any{
		"apiVersion": group + "/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
		"roleRef": map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": install.ServiceAccount,
			"namespace": fixture.Namespace}},
	})
	fixture.Excuse(func(e *auditv1.Event) bool { return strings.Contains(e.RequestURI, "/namespaces/"+absent+"/") })
}

// setOf returns the providers of a pod of kube-apiserver.
func (m *model) setOf(revision string) []string {
	if m.file != nil {
		return m.file
	}
	return m.sets[revision]
}

// used returns the providers of the live configuration, and then of kube-apiserver's pods.
func (m *model) used() [][]string {
	used := [][]string{m.live}
	if m.file != nil {
		used[0] = m.file
	}
	for _, node := range fixture.NodeNames {
		used = append(used, m.setOf(m.revs[node]))
	}
	for _, revision := range m.second {
		used = append(used, m.setOf(revision))
	}
	return used
}

// pod returns a pod of kube-apiserver, like OpenShift's with or without its own reporter. Each pod is different, so no
// UID is used twice; the end-to-end test that moves a manifest away and back covers that.
func (m *model) pod(node, revision string) *corev1.Pod {
	pod := fixture.StaticPod(revision, false)
	if m.stopNative != nil {
		pod = fixture.NativeStaticPod(revision)
	}
	if m.unset[node] {
		pod.Spec.Containers[0].Command = []string{"kube-apiserver"}
	}
	m.made++
	pod.Annotations = map[string]string{"made": strconv.Itoa(m.made)}
	return pod
}

// run runs kube-apiserver on a node at the node's revision.
func (m *model) run(t *testing.T, node string) {
	t.Helper()
	fixture.RunStatic(t, node, m.pod(node, m.revs[node]))
}

func companions(t *testing.T) []corev1.Pod {
	t.Helper()
	selector := metav1.ListOptions{LabelSelector: fixture.Companions}
	pods, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).List(t.Context(), selector)
	must.Succeed(t, err)
	return pods.Items
}

// report writes the report of each reporter, by the clock of its node. A companion whose API server has ended reports a
// missing socket.
func (m *model) report(t *testing.T) {
	t.Helper()
	before, file := m.servers, m.probed
	m.servers, m.probed = map[string]corev1.Pod{}, m.file
	for _, p := range apiServerPods(t, apiservers.Kube.Namespace) {
		m.servers[string(p.UID)] = p
	}
	pods := companions(t)
	if m.turn = !m.turn; m.turn { // two companions on a node write last in turns
		slices.Reverse(pods)
	}
	for _, p := range pods {
		node, beside := p.Spec.NodeName, p.Annotations[contract.BesideAnnotation]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || m.silent[node] {
			continue
		}
		e := contract.Entry{Status: contract.Healthy, KEKID: "k", Reporter: string(p.UID)}
		server, runs := m.servers[beside]
		if !runs {
			server = before[beside]
		}
		if server.Name == "" {
			e.Status, e.KEKID, e.Reason = contract.Error, "", contract.SocketMissing
			server.Labels = map[string]string{"revision": m.revs[node]}
		}
		set := file
		if file == nil {
			set = m.sets[server.Labels["revision"]]
		}
		m.write(t, apiservers.Kube, node, set, e)
		m.reported[reported(beside, set)] = true
	}
	for _, p := range apiServerPods(t, m.at.Namespace) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && objects.Injected(&p.Spec) {
			e := contract.Entry{Status: contract.Healthy, KEKID: "k", Reporter: string(p.UID)}
			m.write(t, m.at, p.Spec.NodeName, m.other, e)
		}
	}
}

// reported returns the key of model.reported for a pod's UID and its plugins.
func reported(uid string, providers []string) string {
	text, _ := keys(providers)
	return uid + " " + text
}

// write writes a report with the entry e for each plugin that reporters can probe.
func (m *model) write(t *testing.T, server apiservers.Server, node string, providers []string, e contract.Entry) {
	t.Helper()
	var all []contract.Entry
	at := time.Now().Add(-m.behind[node])
	_, ids := keys(providers)
	for _, id := range ids {
		e.KeyID, e.LastChecked, e.Interval = pluginOf(id).KeyID, at, reportInterval
		e.Socket = strings.TrimPrefix(pluginOf(id).Endpoint, "unix://")
		all = append(all, e)
	}
	if len(all) > 0 {
		fixture.Report(t, server, node, at, all...)
	}
}

// apiServerPods returns the API server's pods in a namespace. A static pod has its UID on the node.
func apiServerPods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	selector := metav1.ListOptions{LabelSelector: "apiserver=true"}
	list, err := fixture.Kube.CoreV1().Pods(namespace).List(t.Context(), selector)
	must.Succeed(t, err)
	for i := range list.Items {
		if uid, err := objects.PodUID(&list.Items[i]); err == nil {
			list.Items[i].UID = types.UID(uid)
		}
	}
	return list.Items
}

// claims returns an error if a condition claims more than is known: agreement, while API servers write with several
// keys or an unknown one; or reporting or health, while no reporter of a node has reported on the plugins, at their
// sockets, since its API server started. Typed reports of OpenShift's own reporters count as reports.
func (m *model) claims(t *testing.T) error {
	t.Helper()
	is := fixture.Resource(t, apiservers.Kube).Conditions
	_, _, agree := rollUp(m.used()...)
	agree = agree && len(m.second) == 0 && (m.file == nil || len(m.unset) == 0)
	for uid, server := range m.servers {
		node, revision := server.Spec.NodeName, server.Labels["revision"]
		_, ids := keys(m.setOf(revision))
		silent := len(ids) > 0 && m.second[node] == "" && !m.reported[reported(uid, m.setOf(revision))] && m.stopNative == nil
		all := fmt.Sprintf("every plugin is healthy on %d nodes", len(fixture.NodeNames))
		if silent && (is[contract.HealthReporting].Status == operatorstatus.True || is[contract.PluginsDegraded].Message == all) {
			return fmt.Errorf("%s has not reported on %v: %+v", node, ids, is)
		}
		agree = agree && (m.file != nil || m.broken[revision] == "")
	}
	if fixture.Agrees(is[contract.WriteKeyAgreed]) && !agree {
		return fmt.Errorf("with %v: %+v", m.used(), is)
	}
	return nil
}

// awaitNoClaim checks that no condition claims more than is known, now and for a while. If the operator's file has the
// plugins, the API servers first load the file. Then the plugins get other sockets while reporters still probe the old
// ones.
func (m *model) awaitNoClaim(t *testing.T, op *fixture.Operator) {
	t.Helper()
	if m.file != nil {
		m.endSurges(t)
		m.manage(op)
		for _, node := range fixture.NodeNames {
			m.run(t, node)
		}
		fixture.Eventually(t, "API servers have loaded the file", func() error { return m.arrived(t, m.want()) })
		m.awaitClaims(t, len(m.unset) > 0)
		m.file = map[bool][]string{true: {"1"}, false: {moved}}[m.file[0] == moved]
		op.Configure(m.config())
	}
	m.awaitClaims(t, m.file == nil && len(m.broken)+len(m.second) > 0 && probed(m.live[0]))
}

// arrived returns an error until exactly these objects exist, and each companion belongs to an existing pod.
func (m *model) arrived(t *testing.T, want []string) error {
	t.Helper()
	m.report(t)
	for _, p := range companions(t) {
		if beside := p.Annotations[contract.BesideAnnotation]; m.servers[beside].Name == "" {
			return fmt.Errorf("%s is beside %s, which has gone", p.Name, beside)
		}
	}
	return differ(t, want...)
}

// manage ends the states unmanaged and silent.
func (m *model) manage(op *fixture.Operator) {
	m.unmanaged = false
	clear(m.silent)
	op.Configure(m.config())
}

// awaitClaims waits until no condition claims more than is known. With more it then checks this for 13 s, while the
// reporters write.
func (m *model) awaitClaims(t *testing.T, more bool) {
	t.Helper()
	m.report(t)
	time.Sleep(2 * time.Second) // for a roll-up
	// Long before the reports are stale: nobody writes them now, and stale ones support no claim.
	wait.Eventually(t, contract.StaleIntervals*reportInterval/2, "what is not known of a node is not claimed",
		func() error { return m.claims(t) })
	if !more {
		return
	}
	fixture.Never(t, 13*time.Second, func() error {
		m.report(t)
		time.Sleep(time.Second)
		return m.claims(t)
	})
}

// repair makes the encryption configs of all revisions readable.
func (m *model) repair(t *testing.T, p *faultyProxy) {
	t.Helper()
	p.refused.Store(false)
	for revision, text := range m.broken {
		fixture.ApplyObject(t, apiservers.Secrets, apiservers.Kube.Namespace, apiservers.Secret(revision, text))
	}
	clear(m.broken)
}

// native starts or ends OpenShift's own reporters.
func (m *model) native(t *testing.T) string {
	t.Helper()
	if m.stopNative != nil {
		m.stopNative()
		m.stopNative = nil
	} else {
		m.stopNative = startNative(t)
	}
	for _, node := range fixture.NodeNames {
		m.run(t, node)
	}
	return fmt.Sprintf("OpenShift's own reporters run: %t", m.stopNative != nil)
}

func startNative(t *testing.T) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	plugin := kmsplugin.StartForTest(t, kmsplugin.Options{
		Endpoint: "unix://" + filepath.Join(dir, "kms.sock"), StateDir: filepath.Join(dir, "key"),
	})
	var all []*fixture.NativeReporter
	for _, node := range fixture.NodeNames {
		all = append(all, fixture.StartNativeReporter(t, apiservers.Kube, node, plugin))
	}
	return func() {
		for _, r := range all {
			r.Stop()
		}
		fixture.RemoveNativeReports(t, apiservers.Kube)
	}
}

// deploy rolls openshift-apiserver out to its revision, in each of its namespaces.
func (m *model) deploy(t *testing.T) {
	t.Helper()
	for _, namespace := range namespacesOfMoves {
		server := apiservers.Server{Namespace: namespace}
		fixture.SetEncryption(t, server, apiservers.Encryption(m.other...), m.revs["other"])
		fixture.ApplyObject(t, apiservers.Deployments, namespace, apiservers.Deployment(m.revs["other"]))
	}
}

func (m *model) node() string { return fixture.NodeNames[m.random.IntN(len(fixture.NodeNames))] }

func (m *model) pick() []string { return providerSets[m.random.IntN(len(providerSets))] }

func (m *model) next() string { m.revision++; return fmt.Sprint(m.revision) }

// configure sets another encryption config of kube-apiserver.
func (m *model) configure(t *testing.T) (revision, text string) {
	t.Helper()
	m.live = m.pick()
	revision, text = m.next(), apiservers.Encryption(m.live...)
	m.sets[revision] = m.live
	fixture.SetEncryption(t, apiservers.Kube, text, revision)
	return revision, text
}

// roll rolls kube-apiserver out to another encryption config on some nodes. The Secret of the revision may be
// unreadable until repair.
func (m *model) roll(t *testing.T, p *faultyProxy) string {
	revision, text := m.configure(t)
	how := []string{"readable", "readable", "refused", "broken"}[m.random.IntN(4)]
	switch how {
	case "refused":
		p.refused.Store(true)
	case "broken":
		secret := apiservers.Secret(revision, "no encryption config")
		fixture.ApplyObject(t, apiservers.Secrets, apiservers.Kube.Namespace, secret)
	}
	if how == "broken" || p.refused.Load() {
		m.broken[revision] = text
	}
	nodes := m.random.Perm(len(fixture.NodeNames))[:1+m.random.IntN(len(fixture.NodeNames))]
	for _, i := range nodes {
		m.revs[fixture.NodeNames[i]] = revision
		m.run(t, fixture.NodeNames[i])
	}
	return fmt.Sprintf("kube-apiserver has %v, revision %s (%s), on nodes %v", m.live, revision, how, nodes)
}

// actions returns the possible actions. Each returns a description of what it did.
func (m *model) actions(t *testing.T, op *fixture.Operator, p *faultyProxy) []func() string {
	roll := func() string { return m.roll(t, p) }
	return []func() string{
		roll, roll, roll, // more often, since the other actions matter most during a rollout
		func() string {
			m.other = m.pick()
			m.revs["other"] = m.next()
			m.deploy(t)
			return fmt.Sprintf("openshift-apiserver has %v", m.other)
		},
		func() string {
			m.interval = fmt.Sprintf("%ds", 10+m.random.IntN(50))
			op.Configure(m.config())
			return "interval " + m.interval
		},
		func() string {
			m.source = []v1alpha1.ConfigSource{v1alpha1.ConfigSourceConfigMap, v1alpha1.ConfigSourceAnnotation}[m.random.IntN(2)]
			op.Configure(m.config())
			return "configSource " + string(m.source)
		},
		func() string {
			m.profile = []string{"", "Old", "Modern"}[m.random.IntN(3)]
			fixture.SetTLSProfile(t, m.profile)
			return "profile " + m.profile
		},
		func() string { return m.edit(t) },
		func() string {
			op.Restart(syscall.SIGKILL)
			return "operator killed"
		},
		func() string {
			p.errors.Store(int64(m.random.IntN(60)))
			return fmt.Sprintf("%d%% of the requests fail", p.errors.Load())
		},
		func() string { return m.deletePod(t) },
		func() string {
			m.at = []apiservers.Server{apiservers.OpenShift, apiservers.OAuth}[m.random.IntN(2)]
			if m.at.Resource == apiservers.OpenShift.Resource {
				m.at.Namespace = append(namespacesOfMoves, absent)[m.random.IntN(3)]
			}
			op.Configure(m.config())
			return m.at.Name + " is in " + m.at.Namespace
		},
		func() string {
			node := m.node()
			m.behind[node] = m.anyTime(30 * 24 * time.Hour)
			return fmt.Sprintf("the clock of %s is %s behind", node, m.behind[node])
		},
		func() string { return m.shift(p) },
		func() string {
			p.loses.Store(!p.loses.Load())
			return fmt.Sprintf("a request is lost now and then: %t", p.loses.Load())
		},
		func() string { return m.surge(t) },
		func() string {
			m.file = files[m.random.IntN(len(files))]
			op.Configure(m.config())
			return fmt.Sprintf("the operator's file has the plugins %v", m.file)
		},
		func() string { return m.setFlag(t, op) },
		func() string { return m.restore(t, p, roll) },
		func() string { m.repair(t, p); return "all encryption configs can be read" },
		func() string { return m.native(t) },
		func() string { return m.failCompanion(t) },
		func() string {
			node := m.node()
			m.silent[node] = !m.silent[node]
			return fmt.Sprintf("the reporter of %s is silent: %t", node, m.silent[node])
		},
		func() string {
			m.unmanaged = !m.unmanaged
			op.Configure(m.config())
			return fmt.Sprintf("unmanaged: %t", m.unmanaged)
		},
	}
}

// deletePod deletes a pod of openshift-apiserver.
func (m *model) deletePod(t *testing.T) string {
	pods, err := fixture.Kube.CoreV1().Pods("openshift-apiserver").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		return "no pod to delete"
	}
	name := pods.Items[m.random.IntN(len(pods.Items))].Name
	_ = fixture.Kube.CoreV1().Pods("openshift-apiserver").Delete(t.Context(), name, metav1.DeleteOptions{})
	return "pod " + name + " deleted"
}

func (m *model) failCompanion(t *testing.T) string {
	pods := companions(t)
	if len(pods) == 0 {
		return "no companion to fail"
	}
	pod := &pods[m.random.IntN(len(pods))]
	return fmt.Sprintf("pod %s fails: %v", pod.Name, failPod(t.Context(), pod))
}

// intruder is in everything that edit writes.
const intruder = "intruder"

// edit changes or deletes an object that the operator created.
func (m *model) edit(t *testing.T) string {
	all, err := fixture.ListMade(t.Context())
	must.Succeed(t, err)
	all = slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		return o.GetLabels()[contract.ManagedByLabel] != contract.OperatorName || o.GetKind() == "ReplicaSet" || o.GetKind() == "ControllerRevision"
	})
	if len(all) == 0 {
		return "nothing to edit"
	}
	o := all[m.random.IntN(len(all))]
	what := o.GetKind() + " " + o.GetName()
	resource := fixture.Client.Resource(fixture.Kinds[o.GetKind()]).Namespace(o.GetNamespace())
	if o.GetKind() == "Role" {
		fixture.Excuse(func(e *auditv1.Event) bool {
			return strings.Contains(e.RequestURI, "/secrets") && strings.Contains(e.RequestURI, "encryption-config")
		})
	}
	if m.random.IntN(2) == 0 && o.GetKind() != "ClusterRole" { // a ClusterRole has the operator's recorded state
		_ = resource.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
		return what + " deleted"
	}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{contract.ManagedByLabel: nil}}}
	switch o.GetKind() {
	case "ConfigMap":
		patch = map[string]any{"data": map[string]any{"config.yaml": intruder + ": true"}}
	case "ClusterRoleBinding":
		patch = map[string]any{"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": intruder}}}
	case "Pod":
		patch = map[string]any{"metadata": map[string]any{"annotations": map[string]any{contract.ConfigAnnotation: intruder + ": true"}}}
	case "ClusterRole", "Role":
		patch = map[string]any{"rules": []any{map[string]any{"apiGroups": []any{intruder}, "resources": []any{"*"}, "verbs": []any{"get"}}}}
	case "Secret", "ServiceAccount":
		return "nothing to edit of " + what
	}
	raw, err := json.Marshal(patch)
	must.Succeed(t, err)
	_, err = resource.Patch(t.Context(), o.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: intruder})
	return fmt.Sprintf("%s edited: %v", what, err)
}

func TestRandomSequencesEndAsAFreshRenderWould(t *testing.T) {
	first := fromEnvironment(t, "SEED", firstSeed)
	for i := range fromEnvironment(t, "SEQUENCES", sequences) {
		seed := first + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { playSequence(t, seed) })
	}
}

func newModel(seed uint64) *model {
	return &model{
		random: rand.New(rand.NewPCG(seed, 0)), interval: "30s", revision: 100, at: apiservers.OpenShift,
		live: []string{"1", "identity"}, other: []string{"1", "identity"},
		sets: map[string][]string{"100": {"1", "identity"}}, second: map[string]string{}, unset: map[string]bool{},
		revs: map[string]string{"other": "100"}, source: v1alpha1.ConfigSourceAnnotation,
		behind: map[string]time.Duration{}, broken: map[string]string{},
		silent: map[string]bool{}, reported: map[string]bool{},
	}
}

// create creates the cluster's objects as in the model, until the test ends.
func (m *model) create(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { m.endSurges(t) })
	fixture.RollOut(t, fixture.InPod, "100", m.live...)
	for _, node := range fixture.NodeNames {
		m.revs[node] = "100"
	}
	m.deploy(t)
}

// awaitStill waits until the operator's objects no longer change: the described parts may be as wanted before the
// operator has handled the last change.
func awaitStill(t *testing.T, op *fixture.Operator) (once string) {
	t.Helper()
	fixture.Eventually(t, "the end of the sequence stays", func() error {
		was := once
		once = snapshot(t, op)
		if strings.Contains(once, intruder) {
			return fmt.Errorf("an edit is not undone")
		}
		time.Sleep(time.Second)
		if once != was {
			return fmt.Errorf("still changing")
		}
		return nil
	})
	return once
}

func playSequence(t *testing.T, seed uint64) {
	grantMoved(t)
	grantAbsent(t)
	m, p := newModel(seed), newFaultyProxy(t, seed)
	op := fixture.NewOperator(t)
	op.Server = p.URL
	m.create(t)
	op.Start(m.config())

	var actionsDone []string
	t.Cleanup(func() {
		t.Logf("SEED=%d SEQUENCES=1 repeats it:\n  %s", seed, strings.Join(actionsDone, "\n  "))
	})
	seen, began := fixture.RecordConditions(t, apiservers.Kube), time.Now()
	actions := m.actions(t, op, p)
	for i := range 8 + m.random.IntN(6) {
		next := m.random.IntN(len(actions))
		if i == 4 { // consecutive seeds cover all actions
			next = int(seed) % len(actions)
		}
		actionsDone = append(actionsDone, actions[next]())
		m.report(t)
		time.Sleep(time.Duration(m.random.IntN(700)) * time.Millisecond)
	}
	p.errors.Store(0)
	m.awaitNoClaim(t, op)
	m.repair(t, p)
	m.awaitOneReporter(t)
	m.endSurges(t)
	m.manage(op)
	want := m.want()
	fixture.Eventually(t, "the end of the sequence", func() error { return m.arrived(t, want) })
	m.load(t, want)
	once := awaitStill(t, op)
	m.awaitConditions(t, "the conditions of the end")
	if found := seen.With("KMSPluginsDegraded True Plugin"); len(found) > 0 {
		t.Errorf("every plugin of an API server that runs is healthy, but there was %v", found)
	}
	if found := seen.With(contract.ReporterStale); len(found) > 0 && time.Since(began) < contract.StaleIntervals*reportInterval {
		t.Errorf("no report is that old, but there was %v", found)
	}
	m.restoreOutage(t, p)
	if m.stopNative != nil {
		m.stopNative()
	}

	op.Configure("managementState: Removed\n" + m.config())
	op.AwaitNothingLeft()
	op.Configure(m.config())
	awaitObjects(t, "the same made anew", m.want()...)
	fixture.AwaitEqual(t, "what was reached is what is made anew", once, func() string { return snapshot(t, op) })
}
