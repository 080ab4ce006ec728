package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
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
		"another user, privileged and it added": {asSeven(privileged(adding(dropping(), "DAC_OVERRIDE"))), nil, "7:0 groups 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(c.container, c.pod)
			if got, known := UserOf(pod, "kube-apiserver"); got.String() != c.want || known {
				t.Errorf("got %s, known %v, want %s", got, known, c.want)
			}
			if _, known := configuredUser(&pod.Spec, &pod.Spec.Containers[0]); known == c.ofImage {
				t.Errorf("a sidecar's user is known: %v", known)
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
		own       bool
	}{
		"kubeadm's":            {nil, nil, false},
		"RKE2's":               {dropping(), &corev1.PodSecurityContext{SELinuxOptions: typed("rke2_service_t")}, true},
		"privileged":           {privileged(dropping()), nil, true},
		"spc_t":                {&corev1.SecurityContext{SELinuxOptions: typed("spc_t")}, nil, true},
		"the default, by name": {nil, &corev1.PodSecurityContext{SELinuxOptions: typed("container_t")}, false},
		"the container's counts": {&corev1.SecurityContext{SELinuxOptions: typed("container_t")},
			&corev1.PodSecurityContext{SELinuxOptions: typed("rke2_service_t")}, false},
		"a level alone": {nil, &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}, false},
	} {
		if user, _ := UserOf(podWith(c.container, c.pod), "kube-apiserver"); user.OwnSELinuxType != c.own {
			t.Errorf("%s: %t", name, user.OwnSELinuxType)
		}
	}
	for _, own := range []bool{true, false} {
		in, user := sidecarInput(), contract.User{OwnSELinuxType: own}
		in.Target.Mode = v1alpha1.ModeDaemonSet
		if got := marshal(t, in.DaemonSet(nil, user, nil).Object); strings.Contains(got, "type: spc_t") != own {
			t.Errorf("the agent beside one with a type of its own (%t):\n%s", own, got)
		}
		in.Target.Mode = v1alpha1.ModeCompanionPod
		if got := marshal(t, in.CompanionPod(APIServerPod{User: user}, nil).Object); !strings.Contains(got, "type: spc_t") {
			t.Errorf("the companion:\n%s", got)
		}
	}
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

func asSeven(s *corev1.SecurityContext) *corev1.SecurityContext {
	s.RunAsUser = new(int64(7))
	return s
}

func TestUserThatTheNodeReportsCountsFirst(t *testing.T) {
	linux := &corev1.LinuxContainerUser{UID: 65534, GID: 65534, SupplementalGroups: []int64{65534, 1000}}
	reported := &corev1.ContainerUser{Linux: linux}
	root, seven := &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{}}, asSeven(&corev1.SecurityContext{})
	const ofPod, ofNode, api = "7:0 groups 0", "65534:65534 groups 65534 1000", "kube-apiserver"
	for name, c := range map[string]struct {
		container *corev1.SecurityContext
		of, id    string // the status
		user      *corev1.ContainerUser
		want      string
		known     bool
	}{
		"no container yet":           {seven, api, "", nil, ofPod, false},
		"a node that reports none":   {seven, api, "cri-o://1", nil, ofPod, true},
		"the user of another system": {seven, api, "a", &corev1.ContainerUser{}, ofPod, true},
		"the node's":                 {seven, api, "a", reported, ofNode, true},
		"the node's, and no other":   {nil, api, "", reported, ofNode, true},
		"of another container":       {seven, "kms-plugin", "a", reported, ofPod, false},
		"root, without capabilities": {dropping("ALL"), api, "", root, "0:0 groups 0", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(c.container, nil)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: c.of, ContainerID: c.id, User: c.user}}
			if got, known := UserOf(pod, api); got.String() != c.want || known != c.known {
				t.Errorf("got %s, %v, want %s, %v", got, known, c.want, c.known)
			}
		})
	}
}

// The files in a static pod's folder belong to root.
func TestSidecarHasTheUserOfTheAPIServerOrIsRootInAStaticPod(t *testing.T) {
	const root, rootWithout = "0:0 groups 0 DAC_OVERRIDE", "0:0 groups 0"
	ofImage := &corev1.SecurityContext{RunAsNonRoot: new(true)}
	for name, c := range map[string]struct {
		container *corev1.SecurityContext
		host      string
		is, env   string
	}{
		"root":                                  {nil, "", root, root},
		"another user":                          {asSeven(&corev1.SecurityContext{}), "", "7:0 groups 0", "7:0 groups 0"},
		"of the image":                          {ofImage, "", "", ""},
		"in a static pod, as the API server":    {nil, "/etc/kms", root, root},
		"in a static pod, without DAC_OVERRIDE": {dropping("ALL"), "/etc/kms", rootWithout, rootWithout},
		"in a static pod, not as it":            {asSeven(&corev1.SecurityContext{}), "/etc/kms", rootWithout, "7:0 groups 0"},
		"in a static pod, as one of its image":  {ofImage, "/etc/kms", rootWithout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.HostFolder = c.host
			spec, err := added(in, &podWith(c.container, nil).Spec, sidecarPlugins)
			must.Succeed(t, err)
			is, env, s := "", "", spec.Containers[0].SecurityContext
			if s.RunAsUser != nil && *s.RunAsNonRoot == (*s.RunAsUser != 0) {
				is = contract.User{UID: *s.RunAsUser, GID: *s.RunAsGroup, DACOverride: len(s.Capabilities.Add) == 1}.String()
			}
			for _, v := range spec.Containers[0].Env {
				if v.Name == contract.APIServerUserVariable {
					env = v.Value
				}
			}
			if is != c.is || env != c.env {
				t.Errorf("runs as %q, env %q, want %q and %q", is, env, c.is, c.env)
			}
		})
	}
}
