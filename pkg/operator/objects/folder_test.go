package objects

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
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

// pluginsAt returns plugins with sockets at these paths, separated by spaces.
func pluginsAt(paths string) (all []v1alpha1.Plugin) {
	for _, p := range strings.Fields(paths) {
		all = append(all, v1alpha1.Plugin{Endpoint: "unix://" + p})
	}
	return all
}

// mountsOf reads words of the form volume:path or volume:path:subPath.
func mountsOf(text string) (all []corev1.VolumeMount) {
	for _, word := range strings.Fields(text) {
		part := append(strings.Split(word, ":"), "")
		all = append(all, corev1.VolumeMount{Name: part[0], MountPath: part[1], SubPath: part[2]})
	}
	return all
}

func inShared(folder string) string {
	return "the socket is in " + folder + ", which holds much else, and which no reporter's pod mounts: put it into a " +
		"folder of its own, as /var/run/kmsplugin"
}

const ofPod = "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/"

var folderCases = []struct {
	name      string
	source    corev1.VolumeSource // of volume s
	mount     string
	endpoints string
	want      []Folder
	err       string
}{
	{"an emptyDir", emptyDir, "s:/run/kms", "/run/kms/a.sock", []Folder{{"/run/kms", ofPod + "s", "", true}}, ""},
	{"an emptyDir with a subPath", emptyDir, "s:/run/kms:x/y", "/run/kms/a.sock",
		[]Folder{{"/run/kms", ofPod + "s", "x/y", true}}, ""},
	{"a host path", hostPathOf("/srv/kms"), "s:/run/kms", "/run/kms/a.sock",
		[]Folder{{"/run/kms", "/srv/kms", "", false}}, ""},
	{"a host path with a subPath, mounted above", hostPathOf("/srv/"), "s:/run/:x", "/run/kms/deep/a.sock",
		[]Folder{{"/run/kms/deep", "/srv/x/kms/deep", "", false}}, ""},
	{"the host's root", hostPathOf("/"), "s:/", "/run/kms/a.sock", []Folder{{"/run/kms", "/run/kms", "", false}}, ""},
	{"each once, in order, on the host", hostPathOf("/srv"), "s:/run", "/run/b/1.sock /run/a/1.sock /run/b/2.sock",
		[]Folder{{"/run/b", "/srv/b", "", false}, {"/run/a", "/srv/a", "", false}}, ""},
	{"a mount over the reporter's own", emptyDir, "s:/etc", "/etc/kms/a.sock", nil,
		`volume "s", with the sockets, is mounted at /etc, which conflicts with the reporter's own mount at ` +
			`/etc/kms-health: mount the sockets' folder separately`},
	{"the node's own folder", hostPathOf("/"), "s:/", "/tmp/a.sock", nil, inShared("/tmp")},
	{"the folder of kOps with the API server's keys", hostPathOf("/srv/kubernetes/kube-apiserver"),
		"s:/srv/kubernetes/kube-apiserver", "/srv/kubernetes/kube-apiserver/socket.sock", nil,
		inShared("/srv/kubernetes/kube-apiserver")},
	{"a folder of its own in that", hostPathOf("/srv/kubernetes/kube-apiserver"), "s:/srv/kubernetes/kube-apiserver",
		"/srv/kubernetes/kube-apiserver/kms/socket.sock",
		[]Folder{{"/srv/kubernetes/kube-apiserver/kms", "/srv/kubernetes/kube-apiserver/kms", "", false}}, ""},
	{"kubeadm's folder, mounted elsewhere", hostPathOf("/etc/kubernetes"), "s:/kms", "/kms/kmsplugin.sock", nil,
		inShared("/etc/kubernetes")},
	{"the node's own folder, mounted elsewhere", hostPathOf("/var/run"), "s:/kms", "/kms/a.sock", nil, inShared("/var/run")},
	{"a folder beside the reporter's own", hostPathOf("/"), "s:/", "/etc/kms/a.sock",
		[]Folder{{"/etc/kms", "/etc/kms", "", false}}, ""},
	{"an abstract socket on the pod's network", emptyDir, "s:/run", "/@kms", nil,
		"unix:///@kms is an abstract socket, which only containers of the pod reach, since its network is its own: " +
			"use mode Sidecar"},
	{"a mount of nothing", emptyDir, "t:/run", "/run/a.sock", nil, `volume "t", with the folder /run of sockets, is neither an emptyDir nor ` +
		`a hostPath, which alone can be found on a node: use mode Sidecar`},
	{"a volume of another kind", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, "s:/run", "/run/a.sock", nil,
		`volume "s", with the folder /run of sockets, is neither an emptyDir nor a hostPath, which alone can be ` +
			`found on a node: use mode Sidecar`},
}

func TestFind(t *testing.T) {
	for _, tt := range folderCases {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: tt.source}}
			pod.Spec.Containers = []corev1.Container{{Name: "api", VolumeMounts: mountsOf(tt.mount)}}
			got, err := FindFolders(pod, "api", pluginsAt(tt.endpoints)...)
			wantError(t, err, tt.err)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("folders (-want +got):\n%s", d)
			}
			pod.Spec.HostNetwork = true
			if got, err := FindFolders(pod, "api", pluginsAt("/@kms")...); got != nil || err != nil {
				t.Errorf("an abstract socket on the host's network: %v, %v", got, err)
			}
		})
	}
}

func TestUID(t *testing.T) {
	const isMirror, hash = "kubernetes.io/config.mirror", "kubernetes.io/config.hash"
	mirror := func(hashed string) map[string]string { return map[string]string{isMirror: "x", hash: hashed} }
	for name, tt := range map[string]struct {
		uid         types.UID
		annotations map[string]string
		want        string // empty: an error
	}{
		"a pod's own":                     {"u-1", nil, "u-1"},
		"a static pod's is in its mirror": {"u-1", mirror("h-0"), "h-0"},
		"a hash alone makes no mirror":    {"u-1", map[string]string{hash: "h-0"}, "u-1"},
		"a pod without":                   {"", nil, ""},
		"a mirror without":                {"u-1", map[string]string{isMirror: "x"}, ""},
		"a mirror with a path":            {"u-1", mirror("../.."), ""},
		"a mirror with dots":              {"u-1", mirror(".."), ""},
		"a mirror with a line after":      {"u-1", mirror("h\n"), ""},
		"a mirror with an empty hash":     {"u-1", mirror(""), ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tt.uid, Annotations: tt.annotations}}
		if got, err := PodUID(pod); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Annotations: mirror("h-0")}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: emptyDir}}
	pod.Spec.Containers = []corev1.Container{{Name: "api", VolumeMounts: mountsOf("s:/run/kms")}}
	want := []Folder{{"/run/kms", "/var/lib/kubelet/pods/h-0/volumes/kubernetes.io~empty-dir/s", "", true}}
	got, err := FindFolders(pod, "", pluginsAt("/run/kms/a.sock")...)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("of a static pod: %v, %s", err, d)
	}
}

const notMounted = `container "api" mounts no volume at /run/kms or above it, where the socket of ` +
	`unix:///run/kms/a.sock is; a mount of the socket alone keeps that of one process`

var mountCases = []struct {
	name, mounts, endpoints string
	want                    string // read-only
	err                     string
}{
	{"the socket's folder", "s:/run/kms", "/run/kms/a.sock", "s:/run/kms", ""},
	{"a folder above", "s:/run", "/run/kms/a.sock", "s:/run", ""},
	{"the root", "s:/", "/a.sock", "s:/", ""},
	{"the longest of several", "run:/run kms:/run/kms/ other:/var", "/run/kms/a.sock", "kms:/run/kms/", ""},
	{"a final slash does not count", "run:/run//////// kms:/run/kms", "/run/kms/a.sock", "kms:/run/kms", ""},
	{"a name that only begins the same", "s:/run/km", "/run/kms/a.sock", "", notMounted},
	{"a folder below", "s:/run/kms/deep", "/run/kms/a.sock", "", notMounted},
	{"the socket alone", "s:/run/kms/a.sock", "/run/kms/a.sock", "", notMounted},
	{"a subPath", "s:/run/kms:x/y", "/run/kms/a.sock", "s:/run/kms:x/y", ""},
	{"each once, in order", "a:/a b:/b", "/b/1.sock /a/1.sock /b/2.sock", "b:/b a:/a", ""},
	{"abstract sockets", "", "/@kms", "", ""},
	{"no sockets", "s:/run/kms", "", "", ""},
	{"other spellings of a folder", "s:/run/kms", "/run//./kms/a.sock /run/kms/b.sock/", "s:/run/kms", ""},
}

func TestSocketMounts(t *testing.T) {
	for _, tt := range mountCases {
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "api", VolumeMounts: mountsOf(tt.mounts)}}}
		got, err := SocketMounts(spec, "", pluginsAt(tt.endpoints)...)
		wantError(t, err, tt.err)
		want := mountsOf(tt.want)
		for i := range want {
			want[i].ReadOnly = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: mounts (-want +got):\n%s", tt.name, d)
		}
	}
	expr := corev1.VolumeMount{Name: "s", MountPath: "/run/kms", SubPathExpr: "$(POD)"}
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "api", VolumeMounts: append(mountsOf("t:/tmp"), expr)}}}
	_, err := SocketMounts(spec, "", pluginsAt("/run/kms/a.sock")...)
	wantError(t, err, `container "api" mounts volume "s" by a subPathExpr, which cannot be followed from another `+
		`container: mount the sockets' folder by subPath, or whole`)
}

func TestSocketMountsOfANamedContainer(t *testing.T) {
	spec := &corev1.PodSpec{Containers: []corev1.Container{
		{Name: contract.ReporterContainer, VolumeMounts: []corev1.VolumeMount{{Name: "ours", MountPath: "/run"}}},
		{Name: "proxy"},
		{Name: "api", VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/run"}}},
	}}
	plugins := pluginsAt("/run/a.sock")
	got, err := SocketMounts(spec, "api", plugins...)
	if err != nil || len(got) != 1 || got[0].Name != "s" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = SocketMounts(spec, "", plugins...) // no name: the first container that is not a reporter's
	wantError(t, err, `container "proxy" mounts no volume at /run or above it, where the socket of unix:///run/a.sock is; `+
		`a mount of the socket alone keeps that of one process`)
	_, err = SocketMounts(spec, contract.ReporterContainer, plugins...)
	wantError(t, err, `the pod has no container "kms-health" of the API server`)
}

func TestSocketsThatConflictWithTheReportersFolders(t *testing.T) {
	for path, own := range map[string]string{"/var/run": tokenFolder, "/etc/kms-health/config/deep": ConfigFolder,
		"/etc/kms-health/credentials": CredentialsFolder, "/": ConfigFolder} {
		spec := apiServerPod()
		spec.Containers[0].VolumeMounts[0].MountPath = path
		_, err := added(sidecarInput(), spec, pluginsAt(path+"/x.sock"))
		wantError(t, err, `volume "kms-sockets", with the sockets, is mounted at `+path+
			`, which conflicts with the reporter's own mount at `+own+`: mount the sockets' folder separately`)
	}
}

func TestFoldersAsThePluginsNameThem(t *testing.T) {
	got := AsNamed(pluginsAt("/a/1.sock /a/2.sock /b/3.sock"))
	want := []Folder{{MountPath: "/a", HostPath: "/a"}, {MountPath: "/b", HostPath: "/b"}}
	if d := cmp.Diff(want, got); d != "" || !OnHost(got) || !OnHost(nil) || OnHost([]Folder{got[0], {EmptyDir: true}}) {
		t.Errorf("%s", d)
	}
	if got := AsNamed([]v1alpha1.Plugin{{Endpoint: "unix:///@kms"}}); len(got) > 0 {
		t.Errorf("an abstract socket has the folder %v", got)
	}
}

func TestFoldersThatTheManifestsAllow(t *testing.T) {
	for path, allowed := range map[string]bool{
		"/var/run/kmsplugin": true, "/run/kmsplugin/a": true, "/run/kmsplugins": false, "/opt/kms": false,
	} {
		why := NotAllowed([]Folder{{HostPath: "/run/kmsplugin"}, {HostPath: path}})
		if (why == "") != allowed || !allowed && !strings.Contains(why, "kms-health-pods of the manifests does not allow the folder "+path) {
			t.Errorf("%s: %q", path, why)
		}
	}
	if why := NotAllowed([]Folder{{HostPath: ofPod + "s", EmptyDir: true}}); why != "" {
		t.Errorf("a volume of a pod: %s", why)
	}
	for _, policy := range []string{"common/0000_50_kms-health-operator_03_pods-policy.yaml",
		"components/deployment/policies/deployments.yaml"} {
		want := "- name: socketFolders\n    expression: \"['" + strings.Join(contract.SocketFolders, "', '") + "']\"\n"
		if text := disk.Read(t, "../../../manifests/"+policy); !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s", policy, want)
		}
	}
}
