//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/must"
)

// path returns a path in the companion's container.
func path(more ...any) []any { return append([]any{"spec", "containers", 0}, more...) }

func (a *attempts) pods() {
	pod := a.pod
	volume := hostPath(pod)
	mount := slices.IndexFunc(pod["spec"].(fields)["containers"].([]any)[0].(fields)["volumeMounts"].([]any), func(m any) bool { return m.(fields)["name"] == "sockets-0" })
	for kind, want := range map[string]string{"": podsPolicy, "Directory": allowed, "Socket": allowed,
		"DirectoryOrCreate": podsPolicy, "FileOrCreate": podsPolicy, "File": podsPolicy, "CharDevice": podsPolicy, "BlockDevice": podsPolicy} {
		a.add("hostPath of type "+kind, with(pod, kind, "spec", "volumes", volume, "hostPath", "type"), want)
	}
	a.add("a folder that a name of the environment makes", with(pod, "$(A)", path("volumeMounts", mount, "subPathExpr")...), podsPolicy)
	mirror := with(with(pod, nil, "spec", "serviceAccountName"), "hash", "metadata", "annotations", "kubernetes.io/config.mirror")
	a.add("a runtime class", with(pod, "other", "spec", "runtimeClassName"), plugin)
	a.add("a mirror pod", with(mirror, []any{}, path("volumeMounts")...), plugin)
	a.add("a mirror pod without a token", with(with(mirror, []any{}, path("volumeMounts")...), []any{}, "spec", "volumes"), podsPolicy)
	a.add("a device by a claim", with(pod, []any{fields{"name": "gpu", "resourceClaimName": "gpu"}}, "spec", "resourceClaims"), podsPolicy)
	for _, resource := range []string{"example.com/device", "hugepages-2Mi"} {
		o := with(pod, "2Mi", path("resources", "limits", resource)...)
		if resource == "example.com/device" {
			o = with(pod, "1", path("resources", "limits", resource)...)
		}
		a.add("the resource "+resource, o, podsPolicy)
	}
	for _, annotation := range []string{"io.kubernetes.cri-o.Devices", "devices.crio.io", "devices.crio.io/kms-health", "io.containers.trace-syscall",
		"seccomp-profile.kubernetes.cri-o.io/POD"} {
		a.add("CRI-O's annotation "+annotation, with(pod, "/dev/fuse", "metadata", "annotations", annotation), podsPolicy)
	}
	port := []any{fields{"containerPort": int64(6443), "hostPort": int64(6443), "protocol": "TCP"}}
	a.add("a port of the node", with(with(pod, port, path("ports")...), false, "spec", "hostNetwork"), podsPolicy)
	a.add("a port on the node's network", with(with(pod, port, path("ports")...), true, "spec", "hostNetwork"), allowed)
	a.add("resources of the pod", with(pod, "64Mi", "spec", "resources", "limits", "hugepages-2Mi"), podsPolicy)
	a.add("OpenShift's resource of management", with(pod, "5", path("resources", "limits", "management.workload.openshift.io/cores")...), allowed)
	a.add("the node's PIDs", with(pod, true, "spec", "hostPID"), podsPolicy+": processes of its node")
	a.add("an ephemeral volume", with(pod, fields{"name": "e", "ephemeral": fields{"volumeClaimTemplate": fields{"spec": fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}}}}}, "spec", "volumes"), podsPolicy)
	a.add("a volume of an image", with(pod, fields{"name": "e", "image": fields{"reference": "any"}}, "spec", "volumes"), podsPolicy)
}

// hostPath returns the index of the first volume with a folder of the node.
func hostPath(pod fields) int {
	return slices.IndexFunc(pod["spec"].(fields)["volumes"].([]any), func(v any) bool { return v.(fields)["hostPath"] != nil })
}

// folders tries folders of the node, and the other pods of the namespace.
func (a *attempts) folders() {
	const pods, emptyDir, uid = "/var/lib/kubelet/pods/", "/volumes/kubernetes.io~empty-dir/", "4fd0b0c6-4a8c-4b0e-9a3c-2f2f6a7b8c9d"
	for folder, want := range map[string]string{
		pods + uid + emptyDir + "kms-sockets": allowed, pods + "0123456789abcdef0123456789abcdef" + emptyDir + "kms-sockets": allowed,
		"/var/run/kmsplugin": allowed, "/run/kmsplugin/vault": allowed, "/var/run/kmsplugin-other": podsPolicy,
		"/": podsPolicy, "/var/lib/etcd": podsPolicy, "/etc/kubernetes/manifests": podsPolicy, "/var/lib/kubelet": podsPolicy,
		"/var/lib/kubelet/pods": podsPolicy, pods + "0a1b/volumes/kubernetes.io~secret/encryption-config": podsPolicy,
		pods + "0a1b/volumes/kubernetes.io~projected/kube-api-access": podsPolicy, pods + "0a1b" + emptyDir + "x/y": podsPolicy,
		pods + "0a1b" + emptyDir + "../kubernetes.io~secret": validation, "/var/run/kmsplugin/../../etc": validation,
	} {
		if want == podsPolicy { // the message must name the folder
			want += ": a pod of this namespace may not mount or create " + folder + ":"
		}
		a.add("folder "+folder, with(a.pod, folder, "spec", "volumes", hostPath(a.pod), "hostPath", "path"), want)
	}
	// The folders that the operator finds, wherever in an emptyDir the sockets are.
	for _, mount := range []corev1.VolumeMount{
		{MountPath: "/var/run/kmsplugin"}, {MountPath: "/var/run/kmsplugin", SubPath: "vault/sockets"},
		{MountPath: "/var/run"}, {MountPath: "/var/run/", SubPath: "run"},
	} {
		mount.Name = "sockets"
		server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "api", VolumeMounts: []corev1.VolumeMount{mount}}},
			Volumes:    []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		}}
		found, err := objects.FindFolders(server, "api", plugins[0])
		must.Succeed(a.t, err)
		a.add(fmt.Sprintf("folders %+v", found), with(a.companion(found...), "another", "metadata", "name"), allowed)
	}
	for what, workload := range map[string]fields{
		"an agent":     a.input(target, v1alpha1.ModeDaemonSet).DaemonSet([]objects.Folder{socketFolder}, contract.Root, plugins).Object,
		"the operator": a.admin.do(a.t, request{method: http.MethodGet, path: expand(paths["Deployment"], a.home) + operatorAccount}).object,
	} {
		spec := workload["spec"].(fields)["template"].(fields)["spec"]
		a.add(what, with(with(a.pod, nil, "spec"), spec, "spec"), allowed)
	}
}

// profiles tries settings that confine a container.
func (a *attempts) profiles() {
	pod := a.pod
	security, ofPod := func(value any, more ...any) fields {
		return with(pod, value, path(append([]any{"securityContext"}, more...)...)...)
	},
		func(value any, more ...any) fields {
			return with(pod, value, append([]any{"spec", "securityContext"}, more...)...)
		}
	noProfile := security(nil, "seccompProfile")
	a.add("another user and groups", with(with(security(int64(65534), "runAsUser"), int64(65534), path("securityContext", "runAsGroup")...), []any{int64(7)}, "spec", "securityContext", "supplementalGroups"), allowed)
	a.add("seccomp of the pod", with(noProfile, fields{"type": "RuntimeDefault"}, "spec", "securityContext", "seccompProfile"), allowed)
	a.add("seccomp not set", noProfile, podsPolicy)
	a.add("seccomp Unconfined", security(fields{"type": "Unconfined"}, "seccompProfile"), podsPolicy)
	a.add("seccomp Localhost", security(fields{"type": "Localhost", "localhostProfile": "any.json"}, "seccompProfile"), podsPolicy)
	a.add("seccomp of the pod Unconfined", ofPod(fields{"type": "Unconfined"}, "seccompProfile"), podsPolicy)
	a.add("AppArmor", security(fields{"type": "RuntimeDefault"}, "appArmorProfile"), allowed)
	a.add("AppArmor Unconfined", security(fields{"type": "Unconfined"}, "appArmorProfile"), podsPolicy)
	a.add("AppArmor Localhost", security(fields{"type": "Localhost", "localhostProfile": "any"}, "appArmorProfile"), podsPolicy)
	a.add("AppArmor of the pod Unconfined", ofPod(fields{"type": "Unconfined"}, "appArmorProfile"), podsPolicy)
	a.add("AppArmor Unconfined, by an annotation", with(pod, "unconfined", "metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/kms-health"), podsPolicy)
	for _, kind := range []string{"spc_t", "container_t"} {
		a.add("SELinux "+kind, security(fields{"type": kind}, "seLinuxOptions"), map[bool]string{true: allowed, false: podsPolicy}[kind == "spc_t"])
	}
	a.add("SELinux level of the pod", ofPod(fields{"level": "s0:c26,c5"}, "seLinuxOptions"), allowed)
	for key, value := range map[string]string{"type": "unconfined_t", "user": "unconfined_u", "role": "unconfined_r"} {
		a.add("SELinux "+key, security(fields{key: value}, "seLinuxOptions"), podsPolicy)
		a.add("SELinux "+key+" of the pod", ofPod(fields{key: value}, "seLinuxOptions"), podsPolicy)
	}
	a.add("/proc unmasked", with(security("Unmasked", "procMount"), false, "spec", "hostUsers"), podsPolicy)
	a.add("privileged", security(true, "privileged"), validation)
	a.add("privileged, and no more", with(pod, fields{"privileged": true}, path("securityContext")...), podsPolicy+": is not privileged")
	a.add("no security context", with(pod, nil, path("securityContext")...), podsPolicy+": is not privileged")
	a.add("a writable root", security(false, "readOnlyRootFilesystem"), podsPolicy+": is not privileged")
	a.add("escalation not set", security(nil, "allowPrivilegeEscalation"), podsPolicy+": is not privileged")
	a.add("an init container", with(pod, []any{fields{"name": "i", "image": "i"}}, "spec", "initContainers"), podsPolicy+": is not privileged")
	a.add("a second container", with(pod, fields{"name": "i", "image": "i"}, "spec", "containers"), podsPolicy+": is not privileged")
	a.add("the node's IPC", with(pod, true, "spec", "hostIPC"), podsPolicy+": processes of its node")
	for what, o := range map[string]fields{"a pod": ofPod(fields{"hostProcess": true}, "windowsOptions"), "a container": security(fields{"hostProcess": true}, "windowsOptions")} {
		a.add(what+" as a process of a Windows node", with(o, true, "spec", "hostNetwork"), podsPolicy+": processes of its node")
	}
	a.add("escalation", security(true, "allowPrivilegeEscalation"), podsPolicy)
	a.add("a sysctl", with(ofPod([]any{fields{"name": "kernel.shm_rmid_forced", "value": "1"}}, "sysctls"), false, "spec", "hostNetwork"), podsPolicy)
}

// linuxCapabilities are all capabilities, in the order of their numbers.
var linuxCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// capabilities tries each capability in a pod in the operator's namespace, and in a sidecar.
func (a *attempts) capabilities() {
	if len(linuxCapabilities) != unix.CAP_LAST_CAP+1 {
		a.t.Errorf("%d capabilities, want %d", len(linuxCapabilities), unix.CAP_LAST_CAP+1)
	}
	pod, sidecar := a.pod, a.sidecar
	add := func(what string, list []any, want bool) {
		for policy, o := range map[string]fields{
			podsPolicy: with(pod, list, path("securityContext", "capabilities", "add")...), sidecarPolicy: with(sidecar, list, ofSidecar("securityContext", "capabilities", "add")...),
		} {
			refusedBy := policy
			if strings.Contains(what, "CAP_SYS_ADMIN") { // kube-apiserver refuses it with allowPrivilegeEscalation false
				refusedBy = validation
			}
			a.add(what, o, map[bool]string{true: allowed, false: refusedBy}[want])
		}
	}
	for _, name := range append(linuxCapabilities, "ALL") {
		for _, prefix := range []string{"", "CAP_"} {
			add(prefix+name, []any{prefix + name}, prefix+name == "DAC_OVERRIDE")
			add("DAC_OVERRIDE and "+prefix+name, []any{"DAC_OVERRIDE", prefix + name}, prefix+name == "DAC_OVERRIDE")
		}
	}
	for _, name := range []string{"dac_override", "all", "sys_admin", "cap_sys_admin", ""} {
		add(fmt.Sprintf("%q", name), []any{name}, false)
	}
	for _, drop := range [][]any{{}, {"SYS_ADMIN"}, {"all"}} {
		a.add(fmt.Sprintf("dropped %v", drop), with(pod, drop, path("securityContext", "capabilities", "drop")...), podsPolicy)
		a.add(fmt.Sprintf("dropped %v", drop), with(sidecar, drop, ofSidecar("securityContext", "capabilities", "drop")...), sidecarPolicy)
	}
}

// mounts tries writable mounts and emptyDirs, in a companion and in a sidecar.
func (a *attempts) mounts() {
	pod, sidecar := a.pod, a.sidecar
	for policy, of := range map[string]struct {
		o  fields
		at []any // the path of the PodSpec
	}{podsPolicy: {pod, []any{"spec"}}, sidecarPolicy: {sidecar, []any{"spec", "template", "spec"}}} {
		in := func(more ...any) []any { return append(slices.Clone(of.at), more...) }
		spec := of.o
		for _, step := range of.at {
			spec = spec[step.(string)].(fields)
		}
		a.add("as it is", of.o, allowed)
		for i, m := range spec["containers"].([]any)[0].(fields)["volumeMounts"].([]any) {
			name, at := m.(fields)["name"].(string), in("containers", 0, "volumeMounts", i)
			change := func(what string, value any, key string, want string) {
				a.add(name+" "+what, with(of.o, value, append(slices.Clone(at), key)...), want)
			}
			if name != contract.StateVolume {
				change("writable", nil, "readOnly", policy+": read-only")
				continue
			}
			change("read-only", true, "readOnly", allowed)
			change("mounted elsewhere", "/etc/kms-health", "mountPath", policy)
			change("mounted over the token", "/var/run/secrets/kubernetes.io/serviceaccount/x", "mountPath", policy)
			change("a part of it", "x", "subPath", policy)
		}
		for i, v := range spec["volumes"].([]any) {
			if v.(fields)["name"] != contract.StateVolume {
				continue
			}
			for what, source := range map[string]fields{
				"in memory": {"emptyDir": fields{"sizeLimit": "8Mi", "medium": "Memory"}}, "of huge pages": {"emptyDir": fields{"sizeLimit": "8Mi", "medium": "HugePages"}},
				"without a limit": {"emptyDir": fields{}}, "of 9 MiB": {"emptyDir": fields{"sizeLimit": "9Mi"}}, "of 0": {"emptyDir": fields{"sizeLimit": "0"}},
				"a folder of the node": {"hostPath": fields{"path": "/var/run/kmsplugin"}}, "a Secret": {"secret": fields{"secretName": "any"}},
				"a projection": {"projected": fields{"sources": []any{fields{"configMap": fields{"name": "any"}}}}}, "a ConfigMap": {"configMap": fields{"name": "any"}},
			} {
				source["name"] = contract.StateVolume
				a.add("kms-health-state "+what, with(of.o, source, in("volumes", i)...), policy)
			}
		}
		scratch := with(of.o, fields{"name": "scratch", "emptyDir": fields{"sizeLimit": "8Mi"}}, in("volumes")...)
		a.add("another emptyDir", with(scratch, fields{"name": "scratch", "mountPath": "/tmp"}, in("containers", 0, "volumeMounts")...), policy)
		a.add("another emptyDir, read-only", with(scratch, fields{"name": "scratch", "mountPath": "/tmp", "readOnly": true}, in("containers", 0, "volumeMounts")...), policy)
	}
}
