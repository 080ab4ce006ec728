package bench

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// The greatest number of API servers in a configuration, on the nodes of a large control plane.
const manyServers, manyNodes = 16, 5

// reportsASecond are as many as in TestOperator.
const reportsASecond = 6

// TestOperatorOfManyAPIServers compares the CPU use of the operator and of -operator-base, each on a plain control
// plane.
func TestOperatorOfManyAPIServers(t *testing.T) {
	if *measure && *operatorBase == "" {
		t.Skip("there is no build to compare with: set OPERATOR_BASE")
	}
	var cpus []time.Duration
	eachOperator(t, "operator of many", func(f *fixture, name, binary string, manifests install.Manifests) {
		o := f.startMany(name, binary, manifests)
		o.reportMany(10 * time.Second) // the first reports change conditions
		before := o.process.cpuTime()
		o.reportMany(o.reports)
		cpu := o.process.cpuTime() - before
		cpus = append(cpus, cpu)
		judge(o.fixture, fmt.Sprintf("%s, reports for %s: CPU", name, o.reports), cpu, unbounded, milliseconds)
	})
	if len(cpus) > 1 {
		compare(newFixture(t), fmt.Sprintf("operator: CPU with %d API servers on %d nodes", manyServers, manyNodes), cpus)
	}
}

func manyServer(i int) string { return fmt.Sprintf("apiserver-%02d", i) }

func manyNode(i int) string { return fmt.Sprintf("master-%d", i) }

// startMany starts the operator with API servers that have a pod on each node, and waits until it has created a
// companion for each.
func (f *fixture) startMany(name, binary string, manifests install.Manifests) *operatorFixture {
	o := f.newOperator(name, install.Kubernetes, "")
	f.must(manifests.Apply(running, f.cluster.RESTConfig(), install.Kubernetes))
	// The manifests grant rights for only one API server, by its name.
	_, err := o.kube.RbacV1().ClusterRoleBindings().Create(running, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: install.ServiceAccount, Namespace: o.namespace}},
	}, metav1.CreateOptions{})
	f.must(err)
	var names []string
	for i := range manyNodes {
		names = append(names, manyNode(i))
	}
	workers, err := nodes.Start(running, f.cluster.RESTConfig(), names...)
	f.must(err)
	f.Cleanup(workers.Stop)
	config := "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\napiServers:\n"
	for i := range manyServers {
		config += manyTarget(manyServer(i))
		for _, node := range names {
			_, err := o.kube.CoreV1().Pods(metav1.NamespaceSystem).Create(running, manyPod(manyServer(i), node),
				metav1.CreateOptions{})
			f.must(err)
		}
	}
	f.Setenv("IS_OPENSHIFT", "false")
	o.run(binary, config, "--metrics-bind-address", "0", "--health-bind-address", "0")
	for i := range manyServers {
		o.awaitDelivery(manyServer(i), contract.KMSHealths.GVR(), manyServer(i))
	}
	return o
}

// manyTarget is an API server's entry in the operator's file.
func manyTarget(name string) string {
	return fmt.Sprintf(`- name: %[1]s
  resource: kmshealths
  namespace: kube-system
  podSelector: {apiserver: %[1]s}
  container: kube-apiserver
  mode: CompanionPod
  connection: {server: "https://localhost:6443"}
  plugins:
  - {keyID: "1", endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}
  - {keyID: "2", endpoint: "unix:///var/run/kmsplugin/kms-2.sock", role: Read}
`, name)
}

func manyPod(server, node string) *corev1.Pod {
	folder := corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: server + "-" + node, Labels: map[string]string{"apiserver": server}},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{
				Name: "kube-apiserver", Image: "kube-apiserver:1",
				VolumeMounts: []corev1.VolumeMount{{Name: "kms-sockets", MountPath: "/var/run/kmsplugin"}},
			}},
			Volumes: []corev1.Volume{{Name: "kms-sockets", VolumeSource: corev1.VolumeSource{HostPath: &folder}}},
		},
	}
}

// reportMany writes reports like the reporters, one API server after another.
func (o *operatorFixture) reportMany(d time.Duration) {
	began, gvr := time.Now(), contract.KMSHealths.GVR()
	o.repeat(d, time.Second/reportsASecond, func(next int) {
		server, node := manyServer(next%manyServers), manyNode(next/manyServers%manyNodes)
		o.must(apiservers.Apply(running, o.admin, contract.ConditionManager(node), gvr, "", map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": contract.KMSHealths.Kind,
			"metadata": map[string]any{"name": server},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": contract.ConditionType(node), "status": "True", "reason": "AsExpected", "message": o.healthy(30 * time.Second),
				"lastTransitionTime": began.UTC().Format(time.RFC3339),
			}}},
		}, "status"))
	})
}
