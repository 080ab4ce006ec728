package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// podWith returns an API server's pod with these securityContexts.
func podWith(container *corev1.SecurityContext, pod *corev1.PodSecurityContext) *corev1.Pod {
	p := &corev1.Pod{Spec: *apiServerPod()}
	p.Spec.Containers[0].SecurityContext, p.Spec.SecurityContext = container, pod
	return p
}

func TestReporterHasTheUserOfTheAPIServersContainer(t *testing.T) {
	yes, no := new(true), new(false)
	const root, rootWithout = "0:0 groups 0 DAC_OVERRIDE", "0:0 groups 0"
	for name, c := range map[string]struct {
		container *corev1.SecurityContext
		pod       *corev1.PodSecurityContext
		want      string
		ofImage   bool // the image decides, so a sidecar's user is not known
	}{
		"nothing is configured": {want: root},
		"of the container, not of the pod": {
			&corev1.SecurityContext{RunAsUser: new(int64(7)), RunAsGroup: new(int64(70))},
			&corev1.PodSecurityContext{RunAsUser: new(int64(8)), RunAsGroup: new(int64(80))}, "7:70 groups 70", false,
		},
		"a container without a user": {&corev1.SecurityContext{}, nil, root, false},
		"of the pod": {nil, &corev1.PodSecurityContext{RunAsUser: new(int64(8)), RunAsGroup: new(int64(80))},
			"8:80 groups 80", false},
		"the container's group, the pod's user": {
			&corev1.SecurityContext{RunAsGroup: new(int64(70))}, &corev1.PodSecurityContext{RunAsUser: new(int64(8))},
			"8:70 groups 70", false,
		},
		"supplementary groups and fsGroup": {
			nil, &corev1.PodSecurityContext{SupplementalGroups: []int64{9, 5}, FSGroup: new(int64(7))},
			"0:0 groups 0 5 7 9 DAC_OVERRIDE", false,
		},
		"of the image, not root":                {nil, &corev1.PodSecurityContext{RunAsNonRoot: yes}, root, true},
		"of the image, by the container":        {&corev1.SecurityContext{RunAsNonRoot: yes}, nil, root, true},
		"of the image, the container's may be":  {&corev1.SecurityContext{RunAsNonRoot: no}, &corev1.PodSecurityContext{RunAsNonRoot: yes}, root, false},
		"of the image, any":                     {nil, &corev1.PodSecurityContext{RunAsNonRoot: no}, root, false},
		"ALL dropped":                           {dropping("ALL"), nil, rootWithout, false},
		"all dropped, in lower case":            {dropping("all"), nil, rootWithout, false},
		"it is dropped":                         {dropping("DAC_OVERRIDE"), nil, rootWithout, false},
		"it is dropped with CAP_":               {dropping("CAP_DAC_OVERRIDE"), nil, rootWithout, false},
		"another is dropped":                    {dropping("KILL", "NET_RAW"), nil, root, false},
		"ALL dropped, it is added":              {adding(dropping("ALL"), "DAC_OVERRIDE"), nil, root, false},
		"ALL dropped, it is added with CAP_":    {adding(dropping("ALL"), "CAP_DAC_OVERRIDE"), nil, root, false},
		"ALL dropped, another is added":         {adding(dropping("ALL"), "NET_BIND_SERVICE"), nil, rootWithout, false},
		"it is dropped and added":               {adding(dropping("DAC_OVERRIDE"), "DAC_OVERRIDE"), nil, rootWithout, false},
		"privileged, ALL dropped":               {privileged(dropping("ALL")), nil, root, false},
		"another user, privileged and it added": {user(7, privileged(adding(dropping(), "DAC_OVERRIDE"))), nil, "7:0 groups 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(c.container, c.pod)
			if got, known := UserOf(pod, "kube-apiserver"); got.String() != c.want || known {
				t.Errorf("beside it: got %s, known %v, want %s", got, known, c.want)
			}
			spec, err := added(sidecarInput(), &pod.Spec, sidecarPlugins)
			if err != nil {
				t.Fatal(err)
			}
			got, env := runsAs(t, &spec)
			if c.ofImage {
				if got != "" || env != "" {
					t.Errorf("in it: runs as %q, env %q", got, env)
				}
				return
			}
			if pod.Spec.SecurityContext != nil { // the pod's groups apply to all of its containers
				u, _ := contract.ParseUser(got)
				u.Groups = append(u.Groups, pod.Spec.SecurityContext.SupplementalGroups...)
				if g := pod.Spec.SecurityContext.FSGroup; g != nil {
					u.Groups = append(u.Groups, *g)
				}
				got = u.String()
			}
			if got != c.want || env != c.want {
				t.Errorf("in it: runs as %q, env %q, want %q", got, env, c.want)
			}
		})
	}
}

// SELinux also decides by the type what a process may connect to. RKE2 gives kube-apiserver rke2_service_t (rke2,
// pkg/staticpod). Container runtimes give spc_t to privileged containers. An emptyDir is labelled for its own pod.
func TestReporterMayConnectByItsSELinuxTypeToWhatTheAPIServerMay(t *testing.T) {
	typed := func(name string) *corev1.SELinuxOptions { return &corev1.SELinuxOptions{Type: name} }
	for name, c := range map[string]struct {
		container *corev1.SecurityContext
		pod       *corev1.PodSecurityContext
		agent     string // the type, on a plain control plane
	}{
		"kubeadm's":            {nil, nil, ""},
		"RKE2's":               {dropping(), &corev1.PodSecurityContext{SELinuxOptions: typed("rke2_service_t")}, "spc_t"},
		"privileged":           {privileged(dropping()), nil, "spc_t"},
		"spc_t":                {&corev1.SecurityContext{SELinuxOptions: typed("spc_t")}, nil, "spc_t"},
		"the default, by name": {nil, &corev1.PodSecurityContext{SELinuxOptions: typed("container_t")}, ""},
		"the container's counts": {&corev1.SecurityContext{SELinuxOptions: typed("container_t")},
			&corev1.PodSecurityContext{SELinuxOptions: typed("rke2_service_t")}, ""},
		"a level alone": {nil, &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			user, _ := UserOf(podWith(c.container, c.pod), "kube-apiserver")
			in := sidecarInput()
			in.Target.Mode = v1alpha1.ModeDaemonSet
			if got := seLinuxType(t, in.DaemonSet(nil, user, sidecarPlugins), "spec", "template"); got != c.agent {
				t.Errorf("the agent has %q, want %q", got, c.agent)
			}
			in.Target.Mode = v1alpha1.ModeCompanionPod
			if got := seLinuxType(t, in.CompanionPod(APIServerPod{User: user}, sidecarPlugins)); got != "spc_t" {
				t.Errorf("the companion has %q", got)
			}
		})
	}
	in := sidecarInput()
	in.Target.Mode = v1alpha1.ModeDaemonSet
	if got := seLinuxType(t, in.DaemonSet(nil, contract.Root, sidecarPlugins), "spec", "template"); got != "spc_t" {
		t.Errorf("the agent of an API server that is no pod, as k3s', has %q", got)
	}
}

// seLinuxType returns the type of a container in a pod, or in a template.
func seLinuxType(t *testing.T, o *unstructured.Unstructured, template ...string) string {
	t.Helper()
	containers, _, _ := unstructured.NestedSlice(o.Object, append(template, "spec", "containers")...)
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	is, _, _ := unstructured.NestedString(containers[0].(map[string]any), "securityContext", "seLinuxOptions", "type")
	return is
}

func dropping(names ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: names}}
}

func adding(s *corev1.SecurityContext, names ...corev1.Capability) *corev1.SecurityContext {
	s.Capabilities.Add = names
	return s
}

func privileged(s *corev1.SecurityContext) *corev1.SecurityContext {
	s.Privileged = new(true)
	return s
}

func user(uid int64, s *corev1.SecurityContext) *corev1.SecurityContext {
	s.RunAsUser = &uid
	return s
}

// runsAs returns the user of the reporter's container, and the API server's user in its environment.
func runsAs(t *testing.T, spec *corev1.PodSpec) (is, env string) {
	t.Helper()
	c := spec.Containers[0]
	for _, v := range c.Env {
		if v.Name == contract.APIServerUserVariable {
			env = v.Value
		}
	}
	s := c.SecurityContext
	if d := s.Capabilities.Drop; len(d) != 1 || d[0] != "ALL" || len(s.Capabilities.Add) > 1 {
		t.Errorf("capabilities %+v", s.Capabilities)
	}
	if s.RunAsUser == nil {
		if len(s.Capabilities.Add) > 0 {
			t.Errorf("capabilities %+v", s.Capabilities)
		}
		return "", env
	}
	if *s.RunAsNonRoot != (*s.RunAsUser != 0) {
		t.Errorf("runAsNonRoot of %d is %v", *s.RunAsUser, *s.RunAsNonRoot)
	}
	u := contract.User{UID: *s.RunAsUser, GID: *s.RunAsGroup, DACOverride: len(s.Capabilities.Add) == 1 && s.Capabilities.Add[0] == "DAC_OVERRIDE"}
	if p := spec.SecurityContext; p != nil {
		if p.FSGroup != nil {
			t.Errorf("fsGroup %d", *p.FSGroup)
		}
		u.Groups = p.SupplementalGroups
	}
	return u.String(), env
}

func TestUserThatTheNodeReportsCountsFirst(t *testing.T) {
	linux := &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 65534, GID: 65534, SupplementalGroups: []int64{65534, 1000}}}
	for name, c := range map[string]struct {
		status corev1.ContainerStatus
		want   string
		known  bool
	}{
		"no container yet":           {corev1.ContainerStatus{Name: "kube-apiserver"}, "7:0 groups 0", false},
		"a node that reports none":   {corev1.ContainerStatus{Name: "kube-apiserver", ContainerID: "cri-o://1"}, "7:0 groups 0", true},
		"the user of another system": {corev1.ContainerStatus{Name: "kube-apiserver", ContainerID: "a", User: &corev1.ContainerUser{}}, "7:0 groups 0", true},
		"the node's":                 {corev1.ContainerStatus{Name: "kube-apiserver", ContainerID: "a", User: linux}, "65534:65534 groups 65534 1000", true},
		"of another container":       {corev1.ContainerStatus{Name: "kms-plugin", ContainerID: "a", User: linux}, "7:0 groups 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(user(7, &corev1.SecurityContext{}), nil)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{c.status}
			if got, known := UserOf(pod, "kube-apiserver"); got.String() != c.want || known != c.known {
				t.Errorf("got %s, %v, want %s, %v", got, known, c.want, c.known)
			}
		})
	}
	t.Run("root by the node, with the capabilities of the spec", func(t *testing.T) {
		pod := podWith(dropping("ALL"), nil)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "kube-apiserver", User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{}}}}
		if got, _ := UserOf(pod, "kube-apiserver"); got.String() != "0:0 groups 0" {
			t.Errorf("got %s", got)
		}
	})
}

// The files in a static pod's folder belong to root.
func TestSidecarOfAStaticPodIsRoot(t *testing.T) {
	for name, c := range map[string]struct {
		container *corev1.SecurityContext
		is, env   string
	}{
		"as the API server":    {nil, "0:0 groups 0 DAC_OVERRIDE", "0:0 groups 0 DAC_OVERRIDE"},
		"without DAC_OVERRIDE": {dropping("ALL"), "0:0 groups 0", "0:0 groups 0"},
		"not as it":            {user(7, &corev1.SecurityContext{}), "0:0 groups 0", "7:0 groups 0"},
		"as one of its image":  {&corev1.SecurityContext{RunAsNonRoot: new(true)}, "0:0 groups 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.HostFolder = "/etc/kubernetes/kms-health"
			spec, err := added(in, &podWith(c.container, nil).Spec, sidecarPlugins)
			if err != nil {
				t.Fatal(err)
			}
			if is, env := runsAs(t, &spec); is != c.is || env != c.env {
				t.Errorf("runs as %q, env %q", is, env)
			}
		})
	}
}

// Each reporter keeps its samples in a volume of its pod. The volume is on disk, bounded, and the only writable one.
func TestStateIsTheOnlyFolderThatAReporterMayWrite(t *testing.T) {
	in := sidecarInput()
	sidecar, err := added(in, apiServerPod(), sidecarPlugins)
	if err != nil {
		t.Fatal(err)
	}
	in.Target.Mode, in.Target.Serving = v1alpha1.ModeCompanionPod, &v1alpha1.APIServerServing{Secret: "s"}
	folders := []Folder{{MountPath: "/run/kms", HostPath: "/srv"}}
	u := contract.User{UID: 7, GID: 70, Groups: []int64{9, 70, 5}}
	companion := typed[corev1.Pod](t, in.CompanionPod(APIServerPod{Folders: folders, User: u}, nil)).Spec
	if is, env := runsAs(t, &companion); is != u.String() || env != u.String() {
		t.Errorf("a companion of %s runs as %q, env %q", u, is, env)
	}
	for name, spec := range map[string]corev1.PodSpec{"sidecar": sidecar, "companion": companion} {
		t.Run(name, func(t *testing.T) {
			c := spec.Containers[0]
			if c.Args[1] != "--state="+contract.StateFile {
				t.Errorf("args %v", c.Args)
			}
			for _, m := range c.VolumeMounts {
				if state := m.Name == contract.StateVolume; m.ReadOnly == state || state && m.MountPath != contract.StateFolder {
					t.Errorf("%+v", m)
				}
			}
			found := false
			for _, v := range spec.Volumes {
				if v.Name == contract.StateVolume {
					found = v.EmptyDir != nil && v.EmptyDir.Medium == "" && v.EmptyDir.SizeLimit.Cmp(resource.MustParse("8Mi")) == 0
				}
			}
			if !found {
				t.Errorf("volumes %+v", spec.Volumes)
			}
		})
	}
}
