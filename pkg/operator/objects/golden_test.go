package objects

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/test/harness/disk"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// testdata contains the objects of each mode, so that a reviewer can read them.
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
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config  []byte
		change  func(*Input)
		objects func(*Input) []*unstructured.Unstructured
	}{
		"companion": {v1alpha1.OperatorOpenShift, func(in *Input) {
			in.Target.Serving = &v1alpha1.APIServerServing{Address: "0.0.0.0:9180", Secret: "serving"}
			in.ClusterServer, in.Owner = ofAll, &Owner{Name: "owner", UID: "uid"}
		}, func(in *Input) []*unstructured.Unstructured {
			return []*unstructured.Unstructured{in.SecretRole([]string{"3", "4"}),
				in.ConfigMap(CompanionConfigMapName(in.Target.Name, plugins), plugins),
				in.CompanionPod(APIServerPod{Node: "master-0", UID: "u", Folders: ofPod, User: user}, plugins)}
		}},
		"daemonset": {v1alpha1.OperatorKubernetes, func(in *Input) {
			in.Target.Serving = &v1alpha1.APIServerServing{Address: "127.0.0.1:9180"}
		}, func(in *Input) []*unstructured.Unstructured {
			return []*unstructured.Unstructured{in.Destination(), in.ConfigMap(ConfigMapName(in.Target.Name, plugins), plugins),
				in.DaemonSet(onHost, contract.Root, plugins)}
		}},
		"sidecar": {v1alpha1.OperatorOpenShift, func(in *Input) {
			in.Target.Mode, in.Target.Deployment = v1alpha1.ModeSidecar, "apiserver"
		}, func(in *Input) []*unstructured.Unstructured {
			spec := apiServerPod()
			spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1001))}
			spec.Containers[0].Name = in.Target.Container
			template, err := in.Sidecar(spec, plugins)
			if err != nil {
				t.Fatal(err)
			}
			return []*unstructured.Unstructured{in.ConfigMap(ConfigMapName(in.Target.Name, plugins), plugins), {Object: template}}
		}},
	} {
		config, err := v1alpha1.DecodeOperator(c.config)
		if err != nil {
			t.Fatal(err)
		}
		config.Image = "example.com/reporter@sha256:0123"
		in := &Input{Config: config, Namespace: "kms-health", Target: &config.APIServers[0], TLS: settings, CA: []byte("CA"),
			OpenShift: name != "daemonset"}
		c.change(in)
		var texts []string
		for _, o := range append(in.Identity(), c.objects(in)...) {
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		got, path := strings.Join(texts, "---\n"), filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := disk.Read(t, path)
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got; `make generate` writes it anew):\n%s", path, d)
		}
	}
}
