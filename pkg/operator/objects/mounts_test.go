package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

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
