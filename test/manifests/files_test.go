package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

const root = "../../manifests"

func TestConfigMapHoldsTheSampleByteForByte(t *testing.T) {
	raw := disk.Read(t, filepath.Join(root, "kubernetes/config.yaml"))
	var cm corev1.ConfigMap
	must.Succeed(t, yaml.UnmarshalStrict(raw, &cm))
	must.Equal(t, "pkg/config's sample", cm.Data["config.yaml"], string(v1alpha1.OperatorKubernetes))
}

// A release has these files in one folder. `oc adm release new` replaces 0.0.1-snapshot in them by its version, and the
// cluster-version-operator waits until the operator reports the version in the file of the ClusterOperator.
func TestReleaseFilesSayForWhichClustersAndVersionTheyAre(t *testing.T) {
	const release, snapshot = "include.release.openshift.io/", "0.0.1-snapshot"
	versions := map[string]string{}
	for _, folder := range []string{"common", "openshift", "monitoring"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "0000_50_*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		listed := disk.Read(t, filepath.Join(root, folder, "kustomization.yaml"))
		for _, file := range files {
			name := filepath.Base(file)
			if !regexp.MustCompile(`^0000_50_kms-health-operator_[0-9]{2}_[a-z-]+\.yaml$`).MatchString(name) {
				t.Errorf("%s is no name for a release", name)
			}
			if !strings.Contains(string(listed), "- "+name+"\n") {
				t.Errorf("%s is not in its kustomization.yaml", name)
			}
			raw := disk.Read(t, file)
			objects, err := install.Decode(raw)
			must.Succeed(t, err)
			for _, o := range objects {
				a := o.GetAnnotations()
				if a[release+"self-managed-high-availability"] != "true" || a[release+"single-node-developer"] != "true" {
					t.Errorf("%s: %s %s is in no release", name, o.GetKind(), o.GetName())
				}
				if _, hosted := a[release+"ibm-cloud-managed"]; hosted { // hosted control planes run in another cluster
					t.Errorf("%s: %s %s is for hosted control planes", name, o.GetKind(), o.GetName())
				}
				switch o.GetKind() {
				case "ClusterOperator":
					of, _, _ := unstructured.NestedSlice(o.Object, "status", "versions")
					versions["awaited"] = fmt.Sprint(of)
				case "Deployment":
					raw, _ := json.Marshal(o.Object)
					versions["reported"] = string(raw)
				}
			}
		}
	}
	if versions["awaited"] != "[map[name:operator version:"+snapshot+"]]" ||
		!strings.Contains(versions["reported"], `{"name":"OPERATOR_IMAGE_VERSION","value":"`+snapshot+`"}`) {
		t.Errorf("awaited is %s, reported by %s", versions["awaited"], versions["reported"])
	}
}

// Network plugins evaluate the port of a Service or the port of the pods behind it.
func TestNetworkPoliciesLetThroughWhatEachPodNeeds(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "common/0000_50_kms-health-operator_01_networkpolicies.yaml"))
	must.Succeed(t, err)
	objects, err := install.Decode(raw)
	must.Succeed(t, err)
	const in, out = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	const operator, reporter, other = "kms-health-operator", "kms-health-reporter", "other"
	for name, c := range map[string]struct {
		pod  string
		to   networkingv1.PolicyType
		port int32
		want bool
	}{
		"a scrape of the operator":                {operator, in, 8443, true},
		"others to the operator":                  {operator, in, 8081, false},
		"the operator to the Service":             {operator, out, 443, true},
		"the operator to an API server":           {operator, out, 6443, true},
		"the operator to DNS":                     {operator, out, 53, false},
		"a scrape of a reporter, where it serves": {reporter, in, 9180, true},
		"a reporter to an API server":             {reporter, out, 6443, true},
		"a reporter to DNS":                       {reporter, out, 53, true},
		"a reporter to OpenShift's DNS":           {reporter, out, 5353, true},
		"a reporter elsewhere":                    {reporter, out, 80, false},
		"to another pod":                          {other, in, 8443, false},
		"from another pod":                        {other, out, 443, false},
	} {
		must.Equal(t, name+" is let through", letThrough(t, objects, c.pod, c.to, c.port), c.want)
	}
}

// letThrough evaluates the policies of one namespace. It ignores peers: the rules are for all.
func letThrough(t *testing.T, policies []*unstructured.Unstructured, pod string, to networkingv1.PolicyType, port int32) bool {
	t.Helper()
	isolated, let := false, false
	for _, o := range policies {
		var policy networkingv1.NetworkPolicy
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy))
		spec := policy.Spec
		selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
		must.Succeed(t, err)
		if !selector.Matches(labels.Set{"app.kubernetes.io/name": pod}) || !slices.Contains(spec.PolicyTypes, to) {
			continue
		}
		isolated = true
		opens := func(ports []networkingv1.NetworkPolicyPort) bool {
			return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port.IntVal == port
			})
		}
		if to == networkingv1.PolicyTypeIngress {
			let = let || slices.ContainsFunc(spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return opens(r.Ports) })
		} else {
			let = let || slices.ContainsFunc(spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return opens(r.Ports) })
		}
	}
	return !isolated || let
}

// Before version 5.8.2, kustomize sets a namespace on policies, which are cluster-scoped. The patch that removes it
// must also work with 5.8.2, and with a component that is added to manifests/kubernetes itself, as in the quickstart.
func TestPoliciesOfAPlainControlPlaneHaveNoNamespaceByAnyKustomize(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set, so there is no kubectl")
	}
	for name, edit := range map[string]struct{ before, after string }{
		"as by 5.8.1": {},
		"as by 5.8.2": {before: "patches:", after: "patches:\n" +
			"- {target: {group: admissionregistration.k8s.io}, patch: '[{\"op\": \"remove\", \"path\": \"/metadata/namespace\"}]'}"},
		"with a component's": {before: "components:", after: "components:\n- ../components/start-during-plugin-outage"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, (install.Manifests{}).Copy(dir))
			file := filepath.Join(dir, "manifests/kubernetes/kustomization.yaml")
			raw := disk.Read(t, file)
			edited := strings.Replace(string(raw), edit.before+"\n", edit.after+"\n", 1)
			disk.Write(t, file, []byte(edited))
			text, err := install.Kubectl(t.Context(), nil, "kustomize", filepath.Join(dir, "manifests/kubernetes"))
			must.Succeed(t, err)
			objects, err := install.Decode(text)
			must.Succeed(t, err)
			policies := 0
			for _, o := range objects {
				if !slices.Contains([]string{"admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}, o.GroupVersionKind().Group) {
					continue
				}
				if policies++; o.GetNamespace() != "" {
					t.Errorf("%s %s is in namespace %s", o.GetKind(), o.GetName(), o.GetNamespace())
				}
			}
			if policies < 11 {
				t.Errorf("%d policies, bindings and flow schemas", policies)
			}
		})
	}
}

// Dedicated control-plane nodes have these taints. Agents tolerate all taints.
func TestOperatorToleratesTheTaintsOfControlPlanes(t *testing.T) {
	raw := disk.Read(t, filepath.Join(root, "common/0000_50_kms-health-operator_10_deployment.yaml"))
	var d appsv1.Deployment
	must.Succeed(t, yaml.UnmarshalStrict(raw, &d))
	for whose, taint := range map[string]corev1.Taint{
		"kubeadm":          {Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		"OpenShift":        {Key: "node-role.kubernetes.io/master", Effect: corev1.TaintEffectNoSchedule},
		"RKE2 and k3s":     {Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoExecute},
		"Rancher, of RKE2": {Key: "node-role.kubernetes.io/etcd", Effect: corev1.TaintEffectNoExecute},
	} {
		if !slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.ToleratesTaint(klog.Background(), &taint, false)
		}) {
			t.Errorf("%s: %s is not tolerated", whose, taint.ToString())
		}
	}
}
