//go:build integration

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

const withoutConfigMaps = "start-during-plugin-outage"

// certificateOf returns the certificate of a new CA that expires after lifetime.
func certificateOf(t *testing.T, name string, lifetime time.Duration) string {
	t.Helper()
	ca, err := controlplane.NewCAFor(name, lifetime)
	must.Succeed(t, err)
	return string(ca.PEM())
}

// ownCAs returns the CAs in the annotation of the operator's Deployment, the managers that own it, and the generation.
func ownCAs(t *testing.T) (ca string, owners []string, generation int64) {
	t.Helper()
	d, err := fixture.Kube.AppsV1().Deployments(fixture.Namespace).Get(t.Context(), contract.OperatorName, metav1.GetOptions{})
	must.Succeed(t, err)
	for _, m := range d.ManagedFields {
		if strings.Contains(m.FieldsV1.String(), "f:"+contract.CAAnnotation) {
			owners = append(owners, m.Manager+" "+string(m.Operation))
		}
	}
	return d.Spec.Template.Annotations[contract.CAAnnotation], owners, d.Generation
}

// setClusterCA writes kube-root-ca.crt, as kube-controller-manager does after a rotation of the CA.
func setClusterCA(t *testing.T, cas ...string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": strings.Join(cas, "")}}
	_, err := fixture.Kube.CoreV1().ConfigMaps(fixture.Namespace).Update(t.Context(), m, metav1.UpdateOptions{})
	must.Succeed(t, err)
}

func awaitCA(t *testing.T, what string, want ...string) {
	t.Helper()
	fixture.AwaitEqual(t, what, strings.Join(want, ""), func() string { ca, _, _ := ownCAs(t); return ca })
}

// withoutPublisher stops the controller that writes the ConfigMaps kube-root-ca.crt.
func withoutPublisher(t *testing.T) {
	t.Helper()
	restart := func(names []string) error {
		if err := fixture.Cluster.KillControllerManager(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
		defer cancel()
		return fixture.Cluster.StartControllerManager(ctx, names...)
	}
	names := slices.DeleteFunc(slices.Clone(controlplane.OperatorControllers), func(n string) bool { return n == controlplane.RootCAPublisherController })
	must.Succeed(t, restart(names))
	t.Cleanup(func() { must.Succeed(t, restart(controlplane.OperatorControllers)) })
}

// setCAByPage runs the documented command that sets the CA.
func setCAByPage(t *testing.T, kubeconfig string) {
	t.Helper()
	page := disk.Read(t, "../../../docs/quickstart/single-node.md")
	_, command, _ := strings.Cut(string(page), "    kubectl apply -k manifests/single-node\n")
	command, _, _ = strings.Cut(command, "\n\n")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// applyByFlux applies the Deployment as Flux's kustomize-controller does. It first takes over the fields that any
// kubectl wrote (github.com/fluxcd/pkg/ssa, PatchReplaceFieldsManagers), so that it removes fields that are not in its
// files.
func applyByFlux(t *testing.T, kubeconfig string, documents []string) {
	t.Helper()
	const flux = "kustomize-controller"
	deployments := fixture.Kube.AppsV1().Deployments(fixture.Namespace)
	// The patch has the resourceVersion, and a controller may write the status at any time.
	fixture.Eventually(t, "Flux owns what kubectl wrote", func() error {
		d, err := deployments.Get(t.Context(), contract.OperatorName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		by := sets.New[string]()
		for _, m := range d.ManagedFields {
			if strings.HasPrefix(m.Manager, "kubectl") {
				by.Insert(m.Manager)
			}
		}
		patch, err := csaupgrade.UpgradeManagedFieldsPatch(d, by, flux)
		if err == nil {
			_, err = deployments.Patch(t.Context(), d.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		}
		return err
	})
	at := slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, "\nkind: Deployment\n") })
	_, err := install.Kubectl(t.Context(), []byte(documents[at]), "--kubeconfig", kubeconfig, "apply", "--server-side",
		"--force-conflicts", "--field-manager", flux, "-f", "-")
	must.Succeed(t, err)
}

func TestOperatorKeepsTheCAInItsDeploymentCurrent(t *testing.T) {
	withoutPublisher(t)
	rendered, err := install.YAML(t.Context(), install.OpenShift, append(slices.Clone(fixture.Components), withoutConfigMaps)...)
	must.Succeed(t, err)
	documents := slices.DeleteFunc(strings.SplitAfter(string(rendered), "\n---\n"), func(d string) bool { return strings.Contains(d, "monitoring.coreos.com") })
	kubeconfig := fixture.Cluster.AdminKubeconfig(t)
	apply := func() {
		t.Helper()
		_, err := install.Kubectl(t.Context(), []byte(strings.Join(documents, "")), "--kubeconfig", kubeconfig, "apply", "-f", "-")
		must.Succeed(t, err)
	}
	t.Cleanup(func() { // other tests use the Deployment without a CA
		ctx, cancel := context.WithTimeout(context.Background(), 2*fixture.Timeout)
		defer cancel()
		_, err := install.Kubectl(ctx, nil, "--kubeconfig", kubeconfig, "delete", "--cascade=foreground",
			"-n", fixture.Namespace, "deployment", contract.OperatorName)
		must.Succeed(t, errors.Join(err, fixture.InstallOperator(ctx)))
	})

	serving := string(fixture.Cluster.RESTConfig().CAData)
	setClusterCA(t, serving)
	apply()
	setCAByPage(t, kubeconfig)
	awaitCA(t, "it is set by the page's command", serving)
	op := fixture.NewOperator(t, "--keep-ca")
	op.Start("apiServers: []\n")
	_, _, first := ownCAs(t)
	fixture.Eventually(t, "the operator owns it", func() error {
		if _, owners, generation := ownCAs(t); !slices.Contains(owners, contract.CAManager+" Apply") || generation != first {
			return fmt.Errorf("owned by %q, generation %d, want %d", owners, generation, first)
		}
		return nil
	})
	applyByFlux(t, kubeconfig, documents)
	awaitCA(t, "it stays when Flux removes what kubectl wrote", serving)
	apply() // kubectl's annotation, which Flux removed, must exist for later applies

	rejected := func(what, ca string, last ...string) {
		t.Helper()
		logged := strings.Count(op.Logged(), "Failed to keep the CA current")
		recovered := strings.Count(op.Logged(), "Recovered: keep the CA current")
		setClusterCA(t, ca)
		op.AwaitLogged(what+": it is reported", "Failed to keep the CA current", logged+1)
		awaitCA(t, what+": it is not written", last...)
		setClusterCA(t, last...)
		op.AwaitLogged(what+": it is fixed", "Recovered: keep the CA current", recovered+1)
	}
	rejected("empty", "", serving)
	lifetime := 90 * time.Second // the operator, which checks every 10 s, must follow two changes within it
	ends := time.Now().Add(lifetime)
	before, after := certificateOf(t, "before", lifetime), certificateOf(t, "after", time.Hour)
	setClusterCA(t, before)
	awaitCA(t, "the old CA stays beside another one", serving, before)
	// What a new pod gets still verifies the API server, whose certificate is not rotated yet.
	op.Kill(syscall.SIGTERM)
	credentials := op.Credentials()
	ca, _, set := ownCAs(t)
	disk.Write(t, filepath.Join(filepath.Dir(credentials), controlplane.KubeconfigCAFile), []byte(ca))
	op.Run(credentials)
	setClusterCA(t, serving, after)
	awaitCA(t, "an operator that started with these CAs connects", serving, before, after)
	if _, owners, generation := ownCAs(t); generation != set+1 || !slices.Equal(owners, []string{contract.CAManager + " Apply"}) {
		t.Errorf("owned by %q, generation %d, want %d", owners, generation, set+1)
	}
	if left := time.Until(ends); left < 0 {
		t.Fatalf("the old CA ended %s before it was looked for", -left)
	}
	awaitCA(t, "without the old CA, when it has ended", serving, after)
	if left := time.Until(ends); left > 2*time.Second { // certificates have whole seconds
		t.Errorf("the old CA was removed %s before its end", left)
	}

	_, _, generation := ownCAs(t)
	apply()
	awaitCA(t, "applying again changes nothing", serving, after)
	_, _, now := ownCAs(t)
	must.Equal(t, "the generation after applying again", now, generation)
	rejected("no PEM", "not a CA\n", serving, after)
	op.Kill(syscall.SIGTERM) // its field in the Deployment stays
}
