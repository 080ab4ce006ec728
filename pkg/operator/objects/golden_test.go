package objects

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// testdata contains the objects of each mode, so that a reviewer can read them. Every field that an API server would
// default is set (k8s.io/kubernetes, pkg/apis/core/v1/defaults.go), so an object read back equals the applied one. No
// container has probes: a missing key pair or a port in use must not restart the reporter. A static pod may not refer
// to Secrets and ConfigMaps.
func TestObjectsOfEachMode(t *testing.T) {
	plugins := []v1alpha1.Plugin{
		{KeyID: "1", Endpoint: "unix:///var/run/kmsplugin/kms-1.sock", Role: v1alpha1.RoleRead},
		{KeyID: "2", Endpoint: "unix:///var/run/kmsplugin/kms-2.sock", Role: v1alpha1.RoleWrite},
	}
	plugins[0].Timeout.Duration, plugins[1].Timeout.Duration = 3*time.Second, time.Minute // more than the interval
	onHost := []Folder{{MountPath: "/var/run/kmsplugin", HostPath: "/var/run/kmsplugin"}}
	ofPod := []Folder{{MountPath: "/var/run/kmsplugin", HostPath: "/var/lib/kubelet/pods/u/volumes/x", SubPath: "s", EmptyDir: true}}
	user := contract.User{UID: 1001, GID: 1002, Groups: []int64{1003, 1002}}
	settings, err := tlsprofile.Of(nil)
	must.Succeed(t, err)
	type objects = []*unstructured.Unstructured
	sidecar := func(in *Input) objects {
		in.Target.Mode, in.Target.Deployment = v1alpha1.ModeSidecar, "apiserver"
		spec := apiServerPod()
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1001))}
		spec.Containers[0].Name = in.Target.Container
		template, err := in.Sidecar(spec, plugins)
		must.Succeed(t, err)
		return objects{in.ConfigMap(ConfigMapName(in.Target.Name, plugins), plugins), {Object: template}}
	}
	for name, of := range map[string]func(*Input) objects{
		"companion": func(in *Input) objects {
			in.Target.Serving = &v1alpha1.APIServerServing{Address: "0.0.0.0:9180", Secret: "serving"}
			in.ClusterServer, in.OwnerUID = ofAll, "uid"
			return objects{in.SecretRole([]string{"3", "4"}),
				in.CompanionPod(APIServerPod{Node: "master-0", UID: "u", Folders: ofPod, User: user}, plugins)}
		},
		"daemonset": func(in *Input) objects {
			in.Target.Serving = &v1alpha1.APIServerServing{Address: "127.0.0.1:9180"}
			return objects{in.Destination(), in.ConfigMap(ConfigMapName(in.Target.Name, plugins), plugins),
				in.DaemonSet(onHost, contract.Root, plugins)}
		},
		"sidecar": sidecar,
		"static-pod": func(in *Input) objects {
			in.HostFolder = "/etc/kubernetes/kms-health"
			return sidecar(in)
		},
	} {
		text := v1alpha1.OperatorOpenShift
		if name == "daemonset" {
			text = v1alpha1.OperatorKubernetes
		}
		config, err := v1alpha1.DecodeOperator(text)
		must.Succeed(t, err)
		config.Image = "example.com/reporter@sha256:0123"
		in := &Input{Config: config, Namespace: "kms-health", Target: &config.APIServers[0], TLS: settings, CA: []byte("CA"),
			OpenShift: name != "daemonset"}
		var texts []string
		all := of(in)
		for _, o := range append(in.Identity(), all...) {
			texts = append(texts, marshal(t, o.Object))
		}
		got, path := strings.Join(texts, "---\n"), filepath.Join("testdata", name+".yaml")
		if *update {
			disk.Write(t, path, []byte(got))
		}
		if d := cmp.Diff(string(disk.Read(t, path)), got); d != "" {
			t.Errorf("%s (-want +got; `make generate` writes it anew):\n%s", path, d)
		}
		refers := strings.Contains(got, "secretName:") || strings.Contains(got, "configMap:")
		if strings.Contains(got, "Probe:") || name == "static-pod" && refers {
			t.Errorf("%s has a probe, or a static pod refers to an object", path)
		}
		if n := strings.Count(got, "mountPath: ") - strings.Count(got, "readOnly: true\n"); n != 1 {
			t.Errorf("%s: %d mounts are writable, want the state's alone", path, n)
		}
	}
}
