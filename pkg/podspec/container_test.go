package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestContainerOfADeployment(t *testing.T) {
	got, volumes, err := Container(apiServerPod(), inDeployment())
	if err != nil {
		t.Fatal(err)
	}
	want := fromYAML[corev1.Container](t, `
name: kms-health
image: example.com/reporter@sha256:0123
imagePullPolicy: IfNotPresent
args: [--config=/etc/kms-health/config/config.yaml]
env:
- name: KMS_HEALTH_NODE
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}
- name: KMS_HEALTH_CONFIG_HASH
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['kmshealth.openshift.io/config-hash']"}}
resources: {requests: {cpu: 5m, memory: 24Mi}}
volumeMounts:
- {name: kms-sockets, readOnly: true, mountPath: /var/run/kmsplugin}
- {name: kms-health-config, readOnly: true, mountPath: /etc/kms-health/config}
- {name: kms-health-credentials, readOnly: true, mountPath: /etc/kms-health/credentials}
- {name: kms-health-no-token, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
`)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("container (-want +got):\n%s", d)
	}
	wantVolumes := fromYAML[[]corev1.Volume](t, `
- {name: kms-health-config, configMap: {name: kms-health-reporter, defaultMode: 0644, optional: true}}
- {name: kms-health-credentials, secret: {secretName: kms-health-token, defaultMode: 0644, optional: true}}
- {name: kms-health-no-token, emptyDir: {}}
`)
	if d := cmp.Diff(wantVolumes, volumes); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
}

func TestContainerOfAStaticPod(t *testing.T) {
	got, volumes, err := Container(apiServerPod(), inStaticPod())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"--config=/etc/kms-health/config/config.yaml", "--node-name=NODE_NAME"}, got.Args); d != "" {
		t.Errorf("args (-want +got):\n%s", d)
	}
	wantEnv := fromYAML[[]corev1.EnvVar](t, `
- name: KMS_HEALTH_CONFIG_HASH
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['kmshealth.openshift.io/config-hash']"}}
`)
	if d := cmp.Diff(wantEnv, got.Env); d != "" {
		t.Errorf("env (-want +got):\n%s", d)
	}
	if c := got.SecurityContext; c.RunAsUser == nil || *c.RunAsUser != 0 || c.RunAsNonRoot == nil || *c.RunAsNonRoot {
		t.Errorf("security context: %v", c)
	}
	wantVolumes := fromYAML[[]corev1.Volume](t, `
- {name: kms-health-config, hostPath: {path: /etc/kubernetes/static-pod-resources/kms-health, type: DirectoryOrCreate}}
- {name: kms-health-credentials, hostPath: {path: /etc/kubernetes/static-pod-resources/certs/secrets, type: DirectoryOrCreate}}
- {name: kms-health-no-token, emptyDir: {}}
`)
	if d := cmp.Diff(wantVolumes, volumes); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
	if got, want := inStaticPod().Credentials(), "/etc/kms-health/credentials/kms-health-client"; got != want {
		t.Errorf("credentials in %s, want %s", got, want)
	}
}

func TestWithoutCredentialsNoVolumeIsMounted(t *testing.T) {
	for name, o := range map[string]Options{
		"objects":    {Image: "i", ConfigMap: "c"},
		"host files": {Image: "i", HostFiles: &HostFiles{ConfigFolder: "/etc/kms-health"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, volumes, err := Container(apiServerPod(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.VolumeMounts) != 2 || len(volumes) != 2 || o.Credentials() != "" {
				t.Errorf("mounts %v, volumes %v, credentials in %q", c.VolumeMounts, volumes, o.Credentials())
			}
		})
	}
}

func TestNoProbeRestartsTheReporter(t *testing.T) {
	for name, o := range map[string]Options{"deployment": inDeployment(), "static pod": inStaticPod()} {
		for _, hostNetwork := range []bool{false, true} {
			spec := apiServerPod()
			spec.HostNetwork = hostNetwork
			c, _, err := Container(spec, o)
			if err != nil {
				t.Fatal(err)
			}
			if c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil || len(c.Ports) != 0 {
				t.Errorf("%s: liveness %v, readiness %v, startup %v, ports %v", name, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Ports)
			}
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*Options)
		want  string
	}{
		"no image":          {func(o *Options) { o.Image = "" }, "options: image: Required value: the reporter's image"},
		"our own container": {func(o *Options) { o.APIServerContainer = "kms-health" }, `options: apiServerContainer: Invalid value: "kms-health": is the reporter's own container`},
		"both kinds of files": {func(o *Options) { o.HostFiles = &HostFiles{ConfigFolder: "/etc/c"} },
			"options: hostFiles: Forbidden: is not allowed together with configMap or secret"},
		"a relative folder": {func(o *Options) { o.ConfigMap, o.Secret, o.HostFiles = "", "", &HostFiles{ConfigFolder: "etc"} },
			`options: hostFiles.configFolder: Invalid value: "etc": must be the absolute path of a folder, without . or .. or a final /`},
		"a folder upwards": {func(o *Options) {
			o.ConfigMap, o.Secret, o.HostFiles = "", "", &HostFiles{ConfigFolder: "/c", CredentialsFolder: "/a/../b"}
		},
			`options: hostFiles.credentialsFolder: Invalid value: "/a/../b": must be the absolute path of a folder, without . or .. or a final /`},
		"the host's root": {func(o *Options) {
			o.ConfigMap, o.Secret, o.HostFiles = "", "", &HostFiles{ConfigFolder: "/c", CredentialsFolder: "/b"}
		},
			`options: hostFiles.credentialsFolder: Invalid value: "/b": must be two folders deep: its parent is mounted`},
		"a user": {func(o *Options) { o.RunAsUser = pointer(int64(-1)) }, "options: runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		"a node": {func(o *Options) { o.NodeName = "my_node" }, `options: nodeName: Invalid value: "my_node": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		"all at once": {func(o *Options) { o.Image, o.RunAsUser = "", pointer(int64(-1)) },
			`options: [image: Required value: the reporter's image, runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive]`},
	} {
		t.Run(name, func(t *testing.T) {
			o := inDeployment()
			tt.spoil(&o)
			_, _, err := Container(apiServerPod(), o)
			wantError(t, err, tt.want)
		})
	}
}
