package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("error (-want +got):\n%s", d)
	}
}

var emptyDir = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}

func hostPathOf(p string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: p}}
}

const ofPod = "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/"

var folderCases = map[string]struct {
	annotations map[string]string
	hostNetwork bool
	source      corev1.VolumeSource // of volume s
	mount       corev1.VolumeMount
	endpoints   []string
	kubeletRoot string
	want        []Folder
	err         string
}{
	"an emptyDir": {
		source: emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/run/kms"},
		endpoints: []string{"unix:///run/kms/a.sock"},
		want:      []Folder{{"/run/kms", ofPod + "s", "", true}},
	},
	"an emptyDir of a static pod, and another kubelet root": {
		annotations: mirror, kubeletRoot: "/data/kubelet/",
		source: emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/run/kms"},
		endpoints: []string{"unix:///run/kms/a.sock"},
		want:      []Folder{{"/run/kms", "/data/kubelet/pods/h-0/volumes/kubernetes.io~empty-dir/s", "", true}},
	},
	"an emptyDir with a subPath": {
		source: emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/run/kms", SubPath: "x/y"},
		endpoints: []string{"unix:///run/kms/a.sock"},
		want:      []Folder{{"/run/kms", ofPod + "s", "x/y", true}},
	},
	"a host path": {
		source: hostPathOf("/srv/kms"), mount: corev1.VolumeMount{Name: "s", MountPath: "/run/kms"},
		endpoints: []string{"unix:///run/kms/a.sock"},
		want:      []Folder{{"/run/kms", "/srv/kms", "", false}},
	},
	"a host path with a subPath, mounted above": {
		source: hostPathOf("/srv/"), mount: corev1.VolumeMount{Name: "s", MountPath: "/run/", SubPath: "x"},
		endpoints: []string{"unix:///run/kms/deep/a.sock"},
		want:      []Folder{{"/run/kms/deep", "/srv/x/kms/deep", "", false}},
	},
	"the host's root": {
		source: hostPathOf("/"), mount: corev1.VolumeMount{Name: "s", MountPath: "/"},
		endpoints: []string{"unix:///run/kms/a.sock"},
		want:      []Folder{{"/run/kms", "/run/kms", "", false}},
	},
	"each once, in order, on the host": {
		source: hostPathOf("/srv"), mount: corev1.VolumeMount{Name: "s", MountPath: "/run"},
		endpoints: []string{"unix:///run/b/1.sock", "unix:///run/a/1.sock", "unix:///run/b/2.sock"},
		want:      []Folder{{"/run/b", "/srv/b", "", false}, {"/run/a", "/srv/a", "", false}},
	},
	"a mount over the reporter's own": {
		source: emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/etc"},
		endpoints: []string{"unix:///etc/kms/a.sock"},
		err: `volume "s", with the sockets, is mounted at /etc, which conflicts with the reporter's own mount at ` +
			`/etc/kms-health: mount the sockets' folder separately`,
	},
	"a folder beside the reporter's own": {
		source: hostPathOf("/"), mount: corev1.VolumeMount{Name: "s", MountPath: "/"},
		endpoints: []string{"unix:///etc/kms/a.sock"},
		want:      []Folder{{"/etc/kms", "/etc/kms", "", false}},
	},
	"an abstract socket on the host's network": {hostNetwork: true, endpoints: []string{"unix:///@kms"}},
	"an abstract socket on the pod's network": {
		endpoints: []string{"unix:///@kms"},
		err: "unix:///@kms is an abstract socket, which only containers of the pod reach, since its network is its own: " +
			"use mode Sidecar",
	},
	"a mount of nothing": {
		source: emptyDir, mount: corev1.VolumeMount{Name: "t", MountPath: "/run"}, endpoints: []string{"unix:///run/a.sock"},
		err: `the pod has no volume "t"`,
	},
	"a volume of another kind": {
		source: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
		mount:  corev1.VolumeMount{Name: "s", MountPath: "/run"}, endpoints: []string{"unix:///run/a.sock"},
		err: `volume "s", with the folder /run of sockets, is neither an emptyDir nor a hostPath, which alone can be ` +
			`found on a node: use mode Sidecar`,
	},
	"a subPath upwards": {
		source: emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/run", SubPath: "a/../.."},
		endpoints: []string{"unix:///run/a.sock"},
		err:       `volume "s": its subPath "a/../.." leads out of it`,
	},
	"a relative host path": {
		source: hostPathOf("srv"), mount: corev1.VolumeMount{Name: "s", MountPath: "/run"},
		endpoints: []string{"unix:///run/a.sock"},
		err:       `volume "s": its hostPath "srv" is no absolute path`,
	},
	"a mirror without a hash": {
		annotations: map[string]string{"kubernetes.io/config.mirror": "x"},
		source:      emptyDir, mount: corev1.VolumeMount{Name: "s", MountPath: "/run"},
		endpoints: []string{"unix:///run/a.sock"},
		err: "metadata.annotations[kubernetes.io/config.hash]: is missing in the mirror of a static pod, whose " +
			"UID it holds",
	},
	"a host path needs no hash": {
		annotations: map[string]string{"kubernetes.io/config.mirror": "x"},
		source:      hostPathOf("/srv"), mount: corev1.VolumeMount{Name: "s", MountPath: "/run"},
		endpoints: []string{"unix:///run/a.sock"},
		want:      []Folder{{"/run", "/srv", "", false}},
	},
}

func TestFind(t *testing.T) {
	for name, tt := range folderCases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Annotations: tt.annotations}}
			pod.Spec.HostNetwork = tt.hostNetwork
			pod.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: tt.source}}
			pod.Spec.Containers = []corev1.Container{{Name: "api", VolumeMounts: []corev1.VolumeMount{tt.mount}}}
			got, err := FindFolders(pod, "api", tt.endpoints, tt.kubeletRoot)
			wantError(t, err, tt.err)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("folders (-want +got):\n%s", d)
			}
		})
	}
}

var mirror = map[string]string{"kubernetes.io/config.mirror": "h-0", "kubernetes.io/config.hash": "h-0"}

func TestUID(t *testing.T) {
	for name, tt := range map[string]struct {
		uid         types.UID
		annotations map[string]string
		want, err   string
	}{
		"a pod's own":                     {"u-1", nil, "u-1", ""},
		"a static pod's is in its mirror": {"u-1", mirror, "h-0", ""},
		"a hash alone makes no mirror":    {"u-1", map[string]string{"kubernetes.io/config.hash": "h-0"}, "u-1", ""},
		"a pod without":                   {"", nil, "", `metadata.uid: "" is not the UID of a pod`},
		"a mirror without": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x"}, "",
			"metadata.annotations[kubernetes.io/config.hash]: is missing in the mirror of a static pod, whose UID it holds",
		},
		"a mirror with a path": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "../.."}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "../.." is not the UID of a static pod`,
		},
		"a mirror with dots": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": ".."}, "",
			`metadata.annotations[kubernetes.io/config.hash]: ".." is not the UID of a static pod`,
		},
		"a mirror with a line after": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "h\n"}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "h\n" is not the UID of a static pod`,
		},
		"a mirror with an empty annotation": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "", "kubernetes.io/config.hash": ""}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "" is not the UID of a static pod`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tt.uid, Annotations: tt.annotations}}
			got, err := PodUID(pod)
			wantError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func mountAt(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path}
}
func seenAt(name, path, subPath string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: path, SubPath: subPath}
}

var mountCases = map[string]struct {
	mounts    []corev1.VolumeMount
	endpoints []string
	want      []corev1.VolumeMount
	err       string
}{
	"the socket's folder": {
		[]corev1.VolumeMount{mountAt("s", "/run/kms")}, []string{"unix:///run/kms/a.sock"},
		[]corev1.VolumeMount{seenAt("s", "/run/kms", "")}, "",
	},
	"a folder above": {
		[]corev1.VolumeMount{mountAt("s", "/run")}, []string{"unix:///run/kms/a.sock"},
		[]corev1.VolumeMount{seenAt("s", "/run", "")}, "",
	},
	"the root": {
		[]corev1.VolumeMount{mountAt("s", "/")}, []string{"unix:///a.sock"},
		[]corev1.VolumeMount{seenAt("s", "/", "")}, "",
	},
	"the longest of several": {
		[]corev1.VolumeMount{mountAt("run", "/run"), mountAt("kms", "/run/kms/"), mountAt("other", "/var")},
		[]string{"unix:///run/kms/a.sock"},
		[]corev1.VolumeMount{seenAt("kms", "/run/kms/", "")}, "",
	},
	"a final slash does not count": {
		[]corev1.VolumeMount{mountAt("run", "/run////////"), mountAt("kms", "/run/kms")}, []string{"unix:///run/kms/a.sock"},
		[]corev1.VolumeMount{seenAt("kms", "/run/kms", "")}, "",
	},
	"a name that only begins the same": {
		[]corev1.VolumeMount{mountAt("s", "/run/km")}, []string{"unix:///run/kms/a.sock"}, nil,
		`container "api" mounts no volume at /run/kms or above it, where the socket of unix:///run/kms/a.sock is`,
	},
	"a folder below": {
		[]corev1.VolumeMount{mountAt("s", "/run/kms/deep")}, []string{"unix:///run/kms/a.sock"}, nil,
		`container "api" mounts no volume at /run/kms or above it, where the socket of unix:///run/kms/a.sock is`,
	},
	"a subPath": {
		[]corev1.VolumeMount{{Name: "s", MountPath: "/run/kms", SubPath: "x/y"}}, []string{"unix:///run/kms/a.sock"},
		[]corev1.VolumeMount{seenAt("s", "/run/kms", "x/y")}, "",
	},
	"a subPathExpr": {
		[]corev1.VolumeMount{mountAt("t", "/tmp"), {Name: "s", MountPath: "/run/kms", SubPathExpr: "$(POD)"}},
		[]string{"unix:///run/kms/a.sock"}, nil,
		`container "api" mounts volume "s" by a subPathExpr, which cannot be followed from another container: ` +
			`mount the sockets' folder by subPath, or whole`,
	},
	"each once, in order": {
		[]corev1.VolumeMount{mountAt("a", "/a"), mountAt("b", "/b")},
		[]string{"unix:///b/1.sock", "unix:///a/1.sock", "unix:///b/2.sock"},
		[]corev1.VolumeMount{seenAt("b", "/b", ""), seenAt("a", "/a", "")}, "",
	},
	"abstract sockets": {nil, []string{"unix:///@kms"}, nil, ""},
	"no sockets":       {[]corev1.VolumeMount{mountAt("s", "/run/kms")}, nil, nil, ""},
	"other spellings of a folder": {
		[]corev1.VolumeMount{mountAt("s", "/run/kms")}, []string{"unix:///run//./kms/a.sock", "unix:///run/kms/b.sock/"},
		[]corev1.VolumeMount{{Name: "s", MountPath: "/run/kms", ReadOnly: true}}, "",
	},
}

func TestSocketMounts(t *testing.T) {
	for name, tt := range mountCases {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "api", VolumeMounts: tt.mounts}}}
			got, err := SocketMounts(spec, "", tt.endpoints)
			wantError(t, err, tt.err)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("mounts (-want +got):\n%s", d)
			}
		})
	}
}

func TestSocketMountsOfANamedContainer(t *testing.T) {
	spec := &corev1.PodSpec{Containers: []corev1.Container{
		{Name: contract.ReporterContainer, VolumeMounts: []corev1.VolumeMount{{Name: "ours", MountPath: "/run"}}},
		{Name: "proxy"},
		{Name: "api", VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/run"}}},
	}}
	endpoints := []string{"unix:///run/a.sock"}

	got, err := SocketMounts(spec, "api", endpoints)
	if err != nil || len(got) != 1 || got[0].Name != "s" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = SocketMounts(spec, "", endpoints) // the first container that is not ours
	wantError(t, err, `container "proxy" mounts no volume at /run or above it, where the socket of unix:///run/a.sock is`)
	_, err = SocketMounts(spec, contract.ReporterContainer, endpoints)
	wantError(t, err, `the pod has no container "kms-health" of the API server`)
}

func TestSocketsThatConflictWithTheReportersFolders(t *testing.T) {
	for path, own := range map[string]string{
		"/var/run":                    tokenFolder,
		"/etc/kms-health/config/deep": ConfigFolder,
		"/etc/kms-health/credentials": CredentialsFolder,
		"/":                           ConfigFolder,
	} {
		t.Run(path, func(t *testing.T) {
			spec := apiServerPod()
			spec.Containers[0].VolumeMounts[0].MountPath = path
			plugins := []v1alpha1.Plugin{{KeyID: "x", Endpoint: "unix://" + path + "/x.sock"}}
			_, err := sidecarInput().added(spec, plugins)
			wantError(t, err, `volume "kms-sockets", with the sockets, is mounted at `+path+
				`, which conflicts with the reporter's own mount at `+own+`: mount the sockets' folder separately`)
		})
	}
}
