package podspec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func inject(t *testing.T, meta *metav1.ObjectMeta, spec *corev1.PodSpec, o Options) {
	t.Helper()
	if err := Inject(meta, spec, o); err != nil {
		t.Fatal(err)
	}
}

func TestInjectAddsAndChangesNothingElse(t *testing.T) {
	meta, spec := &metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}, apiServerPod()
	given := meta.Annotations
	inject(t, meta, spec, inDeployment())

	if n := len(spec.Containers); n != 3 || spec.Containers[n-1].Name != ContainerName || !Injected(spec) {
		t.Fatalf("the reporter is not the last container: %v", spec.Containers)
	}
	if d := cmp.Diff(map[string]string{"a": "b", ConfigHashAnnotation: "abc"}, meta.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	if len(given) != 1 {
		t.Errorf("the map that was given became %v", given)
	}
	spec.Containers, spec.Volumes = spec.Containers[:2], spec.Volumes[:1]
	if d := cmp.Diff(apiServerPod(), spec); d != "" {
		t.Errorf("others' (-want +got):\n%s", d)
	}
}

func TestInjectReplacesAnOlderInjection(t *testing.T) {
	meta, spec := &metav1.ObjectMeta{}, apiServerPod()
	older := inDeployment()
	older.Image, older.ConfigHash, older.RunAsUser = "example.com/older", "old", pointer(int64(7))
	inject(t, meta, spec, older)
	// Other containers were added after it, it was edited by hand, and it has a probe, as
	// in earlier versions.
	spec.Containers[2].LivenessProbe = &corev1.Probe{PeriodSeconds: 30}
	spec.Containers = append(spec.Containers, corev1.Container{Name: "late"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "late"})
	spec.Containers[2].Env = append(spec.Containers[2].Env, corev1.EnvVar{Name: "MORE", Value: "x"})

	o := inDeployment()
	o.Secret, o.ConfigHash = "", ""
	inject(t, meta, spec, o)

	want := apiServerPod()
	reporter, volumes, err := Container(want, o)
	if err != nil {
		t.Fatal(err)
	}
	want.Containers = append(want.Containers, corev1.Container{Name: "late"}, reporter)
	want.Volumes = append(append(want.Volumes, volumes...), corev1.Volume{Name: "late"})
	if d := cmp.Diff(want, spec); d != "" {
		t.Errorf("pod (-want +got):\n%s", d)
	}
	if len(meta.Annotations) != 0 {
		t.Errorf("annotations %v", meta.Annotations)
	}
}

// defaulted is a pod template as an API server of 1.36 returns it after
// Inject(inDeployment): with what SetDefaults_Container, _ObjectFieldSelector,
// _ConfigMapVolumeSource, _SecretVolumeSource and the pod's own defaults fill in
// (k8s.io/kubernetes, pkg/apis/core/v1/defaults.go).
const defaulted = `
containers:
- name: kube-apiserver
  image: example.com/apiserver
  imagePullPolicy: Always
  resources: {}
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
  volumeMounts: [{name: kms-sockets, mountPath: /var/run/kmsplugin}]
- name: kms-health
  image: example.com/reporter@sha256:0123
  imagePullPolicy: IfNotPresent
  args: [--config=/etc/kms-health/config/config.yaml]
  env:
  - name: KMS_HEALTH_NODE
    valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}
  - name: KMS_HEALTH_CONFIG_HASH
    valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['kmshealth.openshift.io/config-hash']"}}
  resources: {requests: {cpu: 5m, memory: 24Mi}}
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
  - {name: kms-sockets, readOnly: true, mountPath: /var/run/kmsplugin}
  - {name: kms-health-config, readOnly: true, mountPath: /etc/kms-health/config}
  - {name: kms-health-credentials, readOnly: true, mountPath: /etc/kms-health/credentials}
  - {name: kms-health-no-token, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
volumes:
- {name: kms-health-config, configMap: {name: kms-health-reporter, defaultMode: 420, optional: true}}
- {name: kms-sockets, emptyDir: {}}
- {name: kms-health-credentials, secret: {secretName: kms-health-token, defaultMode: 420, optional: true}}
- {name: kms-health-no-token, emptyDir: {}}
restartPolicy: Always
terminationGracePeriodSeconds: 30
dnsPolicy: ClusterFirst
securityContext: {}
schedulerName: default-scheduler
`

func TestDefaultedFieldsAreNoDrift(t *testing.T) {
	o := inDeployment()
	meta := &metav1.ObjectMeta{Annotations: map[string]string{ConfigHashAnnotation: "abc"}}
	spec := fromYAML[corev1.PodSpec](t, defaulted)
	before := spec.DeepCopy()
	inject(t, meta, &spec, o)
	if !apiequality.Semantic.DeepEqual(before, &spec) || len(meta.Annotations) != 1 {
		t.Errorf("pod (-before +after):\n%s", cmp.Diff(before, &spec))
	}
}

// TestEveryFieldThatIsDefaultedIsSet checks that each field that an API server would
// default is set, for both kinds of volumes.
func TestEveryFieldThatIsDefaultedIsSet(t *testing.T) {
	for name, o := range map[string]Options{"deployment": inDeployment(), "static pod": inStaticPod()} {
		t.Run(name, func(t *testing.T) {
			spec := apiServerPod()
			spec.HostNetwork = true
			c, volumes, err := Container(spec, o)
			if err != nil {
				t.Fatal(err)
			}
			if c.ImagePullPolicy == "" || c.TerminationMessagePath == "" || c.TerminationMessagePolicy == "" {
				t.Errorf("container: %v", c)
			}
			for _, e := range c.Env {
				if e.ValueFrom.FieldRef.APIVersion == "" {
					t.Errorf("env: %v", e)
				}
			}
			for _, v := range volumes {
				if v.ConfigMap != nil && v.ConfigMap.DefaultMode == nil || v.Secret != nil && v.Secret.DefaultMode == nil || v.HostPath != nil && v.HostPath.Type == nil {
					t.Errorf("volume: %v", v)
				}
			}
		})
	}
}

func TestAQuantityInAnotherFormIsNoDrift(t *testing.T) {
	meta, spec := &metav1.ObjectMeta{}, apiServerPod()
	inject(t, meta, spec, inDeployment())
	spec.Containers[2].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.005")
	before := spec.DeepCopy()
	inject(t, meta, spec, inDeployment())
	if !apiequality.Semantic.DeepEqual(before, spec) {
		t.Errorf("pod (-before +after):\n%s", cmp.Diff(before, spec))
	}
}

func TestARejectedInjectionChangesNothing(t *testing.T) {
	meta, spec := &metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}, apiServerPod()
	o := inDeployment()
	o.Endpoints = append(o.Endpoints, "unix:///elsewhere/kms-1.sock")
	err := Inject(meta, spec, o)
	var missing *SocketVolumeMissing
	if !errors.As(err, &missing) || missing.Folder != "/elsewhere" || missing.Container != "kube-apiserver" {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff(apiServerPod(), spec); d != "" || len(meta.Annotations) != 1 {
		t.Errorf("annotations %v, pod (-want +got):\n%s", meta.Annotations, d)
	}
}
