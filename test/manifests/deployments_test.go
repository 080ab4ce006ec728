//go:build integration

package manifests

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestOperatorAddsItsContainerToADeploymentAndNothingElse(t *testing.T) {
	openshift.with(t, "deployment")
	openshift.expect(t, question{"patch", "deployments.apps", oas, "apiserver"}, true)
	operator := openshift.as(t)
	client := kubernetes.NewForConfigOrDie(operator)
	labels := map[string]string{"apiserver": "true"}
	d, err := openshift.kube.AppsV1().Deployments(oas).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"theirs": "1"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "openshift-apiserver", Image: "openshift-apiserver:1",
						VolumeMounts: []corev1.VolumeMount{{Name: "sockets", MountPath: "/var/run/kmsplugin"}, {Name: "etcd-client", MountPath: "/etcd"}, {Name: "audit", MountPath: "/var/log"}},
					}},
					Volumes: []corev1.Volume{
						{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "etcd-client", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "etcd-client"}}},
						{Name: "audit", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log/openshift-apiserver"}}},
					},
				},
			},
		},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := openshift.kube.AppsV1().Deployments(oas).Delete(soon(t), "apiserver", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// The object that pkg/operator/reportercontroller applies.
	injection := func(hash string) *unstructured.Unstructured {
		in := objects.Input{
			Config: &v1alpha1.OperatorConfiguration{Image: "reporter:1"},
			Target: &v1alpha1.APIServer{
				Name: "openshift-apiserver", Mode: v1alpha1.ModeSidecar, Deployment: "apiserver", Container: "openshift-apiserver",
			},
		}
		template, err := in.Sidecar(&d.Spec.Template.Spec,
			[]v1alpha1.Plugin{{KeyID: "1", Endpoint: "unix:///var/run/kmsplugin/kms-1.sock"}})
		must.Succeed(t, err)
		template["metadata"].(map[string]any)["annotations"] = map[string]any{contract.ConfigHashAnnotation: hash}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "apiserver", "namespace": oas, "uid": string(d.UID)},
			"spec":     map[string]any{"template": template},
		}}
	}
	template := func(o *unstructured.Unstructured) map[string]any {
		return o.Object["spec"].(map[string]any)["template"].(map[string]any)
	}
	spec := func(o *unstructured.Unstructured) map[string]any { return template(o)["spec"].(map[string]any) }
	ours := func(o *unstructured.Unstructured) map[string]any {
		return spec(o)["containers"].([]any)[0].(map[string]any)
	}
	mount := func(o *unstructured.Unstructured, m map[string]any) {
		ours(o)["volumeMounts"] = append(ours(o)["volumeMounts"].([]any), m)
	}

	for step, hash := range []string{"1", "1", "2"} { // added, applied again, changed
		if err := put(t, operator, injection(hash), false); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for name, c := range map[string]struct {
			change func(*unstructured.Unstructured)
			why    string
		}{
			"a label":  {func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }, "no metadata"},
			"an owner": {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"a/b"}) }, "no metadata"},
			"replicas": {func(o *unstructured.Unstructured) { o.Object["spec"].(map[string]any)["replicas"] = int64(5) }, "the pod template"},
			"paused":   {func(o *unstructured.Unstructured) { o.Object["spec"].(map[string]any)["paused"] = true }, "the pod template"},
			"an annotation": {func(o *unstructured.Unstructured) {
				template(o)["metadata"].(map[string]any)["annotations"].(map[string]any)["theirs"] = "2"
			}, "config-hash"},
			"the pods' labels": {func(o *unstructured.Unstructured) {
				template(o)["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
			}, "config-hash"},
			"the ServiceAccount": {func(o *unstructured.Unstructured) { spec(o)["serviceAccountName"] = "other" }, "the container kms-health"},
			"the host's network": {func(o *unstructured.Unstructured) { spec(o)["hostNetwork"] = true }, "the container kms-health"},
			"the API server's image": {func(o *unstructured.Unstructured) {
				spec(o)["containers"] = append(spec(o)["containers"].([]any), map[string]any{"name": "openshift-apiserver", "image": "evil:1"})
			}, "the container kms-health"},
			"another container": {func(o *unstructured.Unstructured) {
				spec(o)["containers"] = append(spec(o)["containers"].([]any), map[string]any{"name": "other", "image": "evil:1"})
			}, "the container kms-health"},
			"an init container": {func(o *unstructured.Unstructured) {
				spec(o)["initContainers"] = []any{map[string]any{"name": "kms-health-init", "image": "evil:1"}}
			}, "the container kms-health"},
			"another volume": {func(o *unstructured.Unstructured) {
				spec(o)["volumes"] = append(spec(o)["volumes"].([]any), map[string]any{"name": "other", "hostPath": map[string]any{"path": "/"}})
			}, "the container kms-health"},
			"a third-party Secret": {func(o *unstructured.Unstructured) {
				spec(o)["volumes"].([]any)[1].(map[string]any)["secret"].(map[string]any)["secretName"] = "etcd-client"
			}, "own file and credentials"},
			"a third-party ConfigMap": {func(o *unstructured.Unstructured) {
				spec(o)["volumes"].([]any)[0].(map[string]any)["configMap"].(map[string]any)["name"] = "config"
			}, "own file and credentials"},
			"its own host folder": {func(o *unstructured.Unstructured) {
				spec(o)["volumes"].([]any)[2] = map[string]any{"name": objects.NoTokenVolume, "hostPath": map[string]any{"path": "/"}}
			}, ""},
			"privileged": {func(o *unstructured.Unstructured) { ours(o)["securityContext"] = map[string]any{"privileged": true} }, "not privileged"},
			"a Secret as a variable": {func(o *unstructured.Unstructured) {
				ours(o)["env"] = append(ours(o)["env"].([]any), map[string]any{"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "etcd-client", "key": "tls.key"}}})
			}, "not privileged"},
			"the API server's Secret": {func(o *unstructured.Unstructured) {
				mount(o, map[string]any{"name": "etcd-client", "mountPath": "/x", "readOnly": true})
			}, "all read-only"},
			"the API server's host folder": {func(o *unstructured.Unstructured) {
				mount(o, map[string]any{"name": "audit", "mountPath": "/x", "readOnly": true})
			}, "all read-only"},
			"writable sockets": {func(o *unstructured.Unstructured) {
				mount(o, map[string]any{"name": "sockets", "mountPath": "/x"})
			}, "all read-only"},
			"the token": {func(o *unstructured.Unstructured) {
				var kept []any
				for _, m := range ours(o)["volumeMounts"].([]any) {
					if m.(map[string]any)["name"] != objects.NoTokenVolume {
						kept = append(kept, m)
					}
				}
				ours(o)["volumeMounts"] = kept
			}, "all read-only"},
		} {
			t.Run(name, func(t *testing.T) {
				o := injection(hash)
				c.change(o)
				refused(t, operator, o, c.why)
			})
		}
	}
	// Another kind of patch is refused, too.
	eventually(t, "a merge patch is refused", func() error {
		_, err := client.AppsV1().Deployments(oas).Patch(t.Context(), "apiserver", types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"openshift-apiserver","image":"evil:1"}]}}}}`), metav1.PatchOptions{})
		if err == nil {
			return errors.New("it was accepted")
		}
		if !strings.Contains(err.Error(), "the container kms-health") {
			return err
		}
		return nil
	})
	// The operator may remove the sidecar.
	bare := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "apiserver", "namespace": oas, "uid": string(d.UID)},
	}}
	if err := put(t, operator, bare, false); err != nil {
		t.Error(err)
	}
	now, err := openshift.kube.AppsV1().Deployments(oas).Get(t.Context(), "apiserver", metav1.GetOptions{})
	must.Succeed(t, err)
	if objects.Injected(&now.Spec.Template.Spec) {
		t.Error("the reporter is still there")
	}
	// The policy does not apply to other users.
	admins := injection("1")
	spec(admins)["hostNetwork"] = true
	if err := put(t, openshift.config, admins, true); err != nil {
		t.Error(err)
	}
}
