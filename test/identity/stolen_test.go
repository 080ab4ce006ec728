//go:build integration

package identity

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/pkg/contract"
	manifests "github.com/kms-health/kms-health/test/manifests/install"
)

// The results of answer.layer.
const (
	allowed         = "allowed"
	reportsPolicy   = "policy kms-health-reporter"
	statusPolicy    = "policy kms-health-operator-status"
	rightsPolicy    = "policy kms-health-reporter-rights"
	podsPolicy      = "policy kms-health-pods"
	sidecarPolicy   = "policy kms-health-operator-deployments"
	configMapPolicy = "policy kms-health-operator-configmaps"
	secretPolicy    = "policy kms-health-operator-tokens"
	validation      = "validation" // by kube-apiserver or by the CRD
	byRights        = "RBAC"
	escalation      = "RBAC, escalation"
	plugin          = "admission plugin"
)

// attempt is a request with a stolen token, and the layer that must refuse it.
type attempt struct {
	what string
	who  *caller
	try  request
	want string
}

// Each attempt is an allowed request with one change.
func TestStolenTokensMayWriteNoMoreThanTheThreatModelNames(t *testing.T) {
	for _, overlay := range []string{manifests.OpenShift, manifests.Kubernetes} {
		t.Run(overlay, func(t *testing.T) {
			c := newInstalled(t, overlay)
			by := map[string]int{}
			for _, group := range []struct {
				name     string
				attempts func(*testing.T) []attempt
			}{
				{"a and b: times and lengths of conditions", c.conditions},
				{"c: labels", c.labels},
				{"d: field managers", c.managers},
				{"e: subjects of bindings", c.subjects},
				{"f and others: pods", c.pods},
				{"profiles of pods", c.profiles},
				{"capabilities", c.capabilities},
				{"writable mounts", c.mounts},
				{"h: a Deployment", c.deployments},
				{"other users, names and subresources", c.others},
				{"g: KMSHealth", c.kmsHealths}, // last, since it deletes the object
			} {
				t.Run(group.name, func(t *testing.T) {
					for _, a := range group.attempts(t) {
						got := a.who.do(t, a.try)
						layer := got.layer()
						if by[layer]++; layer != a.want {
							t.Errorf("%s, %s: %s, want %s: %.200s", a.what, a.who.name, layer, a.want, got.message)
						}
					}
				})
			}
			t.Logf("requests refused by each layer, and allowed ones: %s", counts(by))
		})
	}
}

// times has the expected layer of each lastTransitionTime. Empty: a policy must refuse it, since kube-apiserver's
// format date-time admits it.
var times = map[string]string{
	"2026-01-01T00:00:00Z": allowed, "1970-01-01T00:00:09Z": allowed, "9999-12-31T23:59:59Z": allowed,
	"2026-01-01T00:00:00." + strings.Repeat("0", 1000000) + "Z": "", "2026-01-01T00:00:00.5Z": "", "2026-01-01t00:00:00Z": "",
	"2026-01-01T00:00:00z": "", "2026-01-01T00:00:00,5Z": "", "2026-01-01T00:00:00x5Z": "", "2026-01-01T00:00:00+00:00": "",
	"2026-01-01T00:00:00-23:59": "", "0001-01-01T00:00:00Z": "", "0000-01-01T00:00:00Z": "",
	"2026-01-01T00:00:60Z": validation, "2026-02-30T00:00:00Z": validation, "2026-01-01": validation, "": validation,
}

// dry makes a request a dry run.
func dry(r request) request {
	r.path += "&dryRun=All"
	return r
}

func (c *installed) conditions(t *testing.T) (all []attempt) {
	s, own := c.operatorResource(), contract.ConditionManager("node-a")
	add := func(what string, who *caller, r request, want string) {
		all = append(all, attempt{what, who, dry(r), want})
	}
	for _, at := range slices.Sorted(maps.Keys(times)) {
		want := func(policy string) string {
			if times[at] == "" {
				return policy
			}
			return times[at]
		}
		what, of := fmt.Sprintf("lastTransitionTime %.25q of %d bytes", at, len(at)), func(kind string) fields { return with(condition(kind, "[]"), at, "lastTransitionTime") }
		for _, who := range []*caller{c.bound, c.minted} {
			add(what, who, s.apply(t, own, fields{"conditions": []any{of(contract.ConditionType("node-a"))}}), want(reportsPolicy))
		}
		add(what, c.operator, s.apply(t, operatorManager, fields{"conditions": []any{of(contract.PluginsDegraded)}}), want(statusPolicy))
		if c.openShift() {
			add(what+", of a ClusterOperator", c.operator, clusterOperator(t, of("Degraded")), want(statusPolicy))
		}
	}
	for key, lengths := range map[string][2]int{"message": {32768, 32769}, "reason": {1024, 1025}} {
		for i, want := range []string{allowed, statusPolicy} {
			long := with(condition(contract.PluginsDegraded, "[]"), strings.Repeat("x", lengths[i]), key)
			add(fmt.Sprintf("%s of %d bytes", key, lengths[i]), c.operator, s.apply(t, operatorManager, fields{"conditions": []any{long}}), want)
		}
	}
	long := contract.ConditionManager(strings.Repeat("a", 120)) // the beginning of the node's name, and a hash
	for n, want := range map[int]string{253: allowed, 254: reportsPolicy} {
		kind := contract.ConditionType(strings.Repeat("a", n))
		add(fmt.Sprintf("a node's name of %d bytes", n), c.minted, s.apply(t, long, fields{"conditions": []any{condition(kind, "[]")}}), want)
	}
	return all
}

// clusterOperator returns an apply of a condition of ClusterOperator/kms-health.
func clusterOperator(t *testing.T, condition fields) request {
	t.Helper()
	return request{http.MethodPatch, "/apis/config.openshift.io/v1/clusteroperators/kms-health/status?force=true&fieldManager=" + operatorManager, applyType,
		text(t, fields{"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": fields{"name": "kms-health"},
			"status": fields{"conditions": []any{condition}}})}
}

// identity returns the reporters' RBAC objects, by kind.
func (c *installed) identity() map[string]fields {
	all := map[string]fields{}
	for _, o := range c.input(target, "CompanionPod").Identity() {
		all[o.GetKind()] = o.Object
	}
	return all
}

// labels tries labels by which other controllers select objects.
func (c *installed) labels(t *testing.T) (all []attempt) {
	add := func(what string, o fields, want string) {
		all = append(all, attempt{what, c.operator, c.write(t, o, operatorManager, true), want})
	}
	role, binding := c.identity()["ClusterRole"], c.identity()["ClusterRoleBinding"]
	file := fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": account + "-0123456789", "namespace": c.home,
		"labels": role["metadata"].(fields)["labels"]}, "data": fields{"config.yaml": "x"}}
	token := fields{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": fields{"name": contract.ReporterName(c.server) + "-token",
		"namespace": c.servers, "labels": with(role, c.server, "metadata", "labels", contract.APIServerLabel)["metadata"].(fields)["labels"]}}
	for policy, objects := range map[string][]fields{rightsPolicy: {role, binding}, configMapPolicy: {file, c.identity()["ServiceAccount"]}, secretPolicy: {token}} {
		for _, o := range objects {
			kind := o["kind"].(string)
			add(kind+" as it is", o, allowed)
			add(kind+" without labels", with(o, nil, "metadata", "labels"), allowed)
			annotated := map[bool]string{true: policy, false: allowed}[kind == "ServiceAccount"] // as OpenShift's OAuth clients are
			add(kind+" with its annotation", with(o, "{}", "metadata", "annotations", contract.StateAnnotation), annotated)
			for _, label := range []string{
				"rbac.authorization.k8s.io/aggregate-to-view", "rbac.authorization.k8s.io/aggregate-to-admin", "authorization.openshift.io/aggregate-to-basic-user",
				"grafana_dashboard", "olm.opgroup.permissions/aggregate-to-admin", "app.kubernetes.io/component", "kmshealth.openshift.io/mode",
			} {
				add(kind+" with label "+label, with(o, "true", "metadata", "labels", label), policy)
			}
			for _, label := range []string{"app.kubernetes.io/name", contract.ManagedByLabel} {
				add(kind+" with another "+label, with(o, "other", "metadata", "labels", label), policy)
			}
		}
	}
	add("ClusterRole that aggregates others", with(role, []any{fields{"matchLabels": fields{"a": "b"}}}, "aggregationRule", "clusterRoleSelectors"), escalation)
	return all
}

func (c *installed) managers(t *testing.T) (all []attempt) {
	s := c.operatorResource()
	add := func(what string, who *caller, r request, want string) {
		all = append(all, attempt{what, who, dry(r), want})
	}
	for _, who := range []*caller{c.bound, c.minted} {
		add("nothing owned, as that of node-x", who, s.apply(t, contract.ConditionManager("node-x"), fields{}), reportsPolicy)
		add("own condition", who, s.condition(t, "node-a"), allowed)
		add("own condition, as another manager of the node", who, s.apply(t, contract.ConditionManager("node-a")+"-0123", fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[]")}}), reportsPolicy)
	}
	// The names of two nodes begin with the same 91 bytes. A manager has only that many bytes of the name.
	long := strings.Repeat("a", 120)
	both := fields{"conditions": []any{condition(contract.ConditionType(long+"b"), "[]"), condition(contract.ConditionType(long+"c"), "[]")}}
	add("two nodes' conditions, as one manager", c.minted, s.apply(t, contract.ConditionManager(long), both), reportsPolicy)
	for _, manager := range []string{"x", "kube-controller-manager", contract.ConditionManager("node-a")} {
		add("own condition of the operator, as "+manager, c.operator, s.apply(t, manager, fields{"conditions": []any{condition(contract.PluginsDegraded, "")}}), statusPolicy)
	}
	return all
}

func (c *installed) subjects(t *testing.T) (all []attempt) {
	binding := c.identity()["ClusterRoleBinding"]
	in := map[string]string{c.home: allowed, c.servers: allowed, "default": rightsPolicy, "kube-public": rightsPolicy, "third-party": rightsPolicy, "": validation}
	if c.openShift() {
		// The role is the one for kube-apiserver, and each API server has one namespace.
		in["kms-health"], in["kube-system"], in["openshift-kube-apiserver"] = rightsPolicy, rightsPolicy, allowed
		in[c.servers], in["openshift-oauth-apiserver"] = rightsPolicy, rightsPolicy
	} else {
		in["openshift-kms-health"], in["openshift-apiserver"] = rightsPolicy, rightsPolicy
	}
	for _, namespace := range slices.Sorted(maps.Keys(in)) {
		o := with(binding, namespace, "subjects", 0, "namespace")
		all = append(all, attempt{"ServiceAccount of namespace " + namespace, c.operator, c.write(t, o, operatorManager, true), in[namespace]})
	}
	for _, name := range []string{"default", operatorAccount, "kms-health-reporter", "x-" + account} {
		o := with(binding, name, "subjects", 0, "name")
		all = append(all, attempt{"ServiceAccount " + name, c.operator, c.write(t, o, operatorManager, true), rightsPolicy})
	}
	return all
}

// path returns a path in the companion's container.
func path(more ...any) []any { return append([]any{"spec", "containers", 0}, more...) }

func (c *installed) pods(t *testing.T) (all []attempt) {
	pod := c.companion()
	volume := slices.IndexFunc(pod["spec"].(fields)["volumes"].([]any), func(v any) bool { return v.(fields)["hostPath"] != nil })
	mount := slices.IndexFunc(pod["spec"].(fields)["containers"].([]any)[0].(fields)["volumeMounts"].([]any), func(m any) bool { return m.(fields)["name"] == "sockets-0" })
	add := func(what string, o fields, want string) {
		all = append(all, attempt{what, c.operator, c.write(t, with(o, "another", "metadata", "name"), operatorManager, true), want})
	}
	for kind, want := range map[string]string{"": podsPolicy, "Directory": allowed, "Socket": allowed,
		"DirectoryOrCreate": podsPolicy, "FileOrCreate": podsPolicy, "File": podsPolicy, "CharDevice": podsPolicy, "BlockDevice": podsPolicy} {
		add("hostPath of type "+kind, with(pod, kind, "spec", "volumes", volume, "hostPath", "type"), want)
	}
	add("a folder that a name of the environment makes", with(pod, "$(A)", path("volumeMounts", mount, "subPathExpr")...), podsPolicy)
	mirror := with(with(pod, nil, "spec", "serviceAccountName"), "hash", "metadata", "annotations", "kubernetes.io/config.mirror")
	add("a runtime class", with(pod, "other", "spec", "runtimeClassName"), plugin)
	add("a mirror pod", with(mirror, []any{}, path("volumeMounts")...), plugin)
	add("a mirror pod without a token", with(with(mirror, []any{}, path("volumeMounts")...), []any{}, "spec", "volumes"), podsPolicy)
	add("a device by a claim", with(pod, []any{fields{"name": "gpu", "resourceClaimName": "gpu"}}, "spec", "resourceClaims"), podsPolicy)
	for _, resource := range []string{"example.com/device", "hugepages-2Mi"} {
		o := with(pod, "2Mi", path("resources", "limits", resource)...)
		if resource == "example.com/device" {
			o = with(pod, "1", path("resources", "limits", resource)...)
		}
		add("the resource "+resource, o, podsPolicy)
	}
	for _, annotation := range []string{"io.kubernetes.cri-o.Devices", "devices.crio.io", "devices.crio.io/kms-health", "io.containers.trace-syscall",
		"seccomp-profile.kubernetes.cri-o.io/POD"} {
		add("CRI-O's annotation "+annotation, with(pod, "/dev/fuse", "metadata", "annotations", annotation), podsPolicy)
	}
	port := []any{fields{"containerPort": int64(6443), "hostPort": int64(6443), "protocol": "TCP"}}
	add("a port of the node", with(with(pod, port, path("ports")...), false, "spec", "hostNetwork"), podsPolicy)
	add("a port on the node's network", with(with(pod, port, path("ports")...), true, "spec", "hostNetwork"), allowed)
	add("resources of the pod", with(pod, "64Mi", "spec", "resources", "limits", "hugepages-2Mi"), podsPolicy)
	add("OpenShift's resource of management", with(pod, "5", path("resources", "limits", "management.workload.openshift.io/cores")...), allowed)
	add("the node's PIDs", with(pod, true, "spec", "hostPID"), podsPolicy)
	add("an ephemeral volume", with(pod, fields{"name": "e", "ephemeral": fields{"volumeClaimTemplate": fields{"spec": fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}}}}}, "spec", "volumes"), podsPolicy)
	add("a volume of an image", with(pod, fields{"name": "e", "image": fields{"reference": "any"}}, "spec", "volumes"), podsPolicy)
	return all
}

// profiles tries settings that confine a container.
func (c *installed) profiles(t *testing.T) (all []attempt) {
	pod := with(c.companion(), "another", "metadata", "name")
	add := func(what string, o fields, want string) {
		all = append(all, attempt{what, c.operator, c.write(t, o, operatorManager, true), want})
	}
	security, ofPod := func(value any, more ...any) fields {
		return with(pod, value, path(append([]any{"securityContext"}, more...)...)...)
	},
		func(value any, more ...any) fields {
			return with(pod, value, append([]any{"spec", "securityContext"}, more...)...)
		}
	noProfile := security(nil, "seccompProfile")
	add("another user and groups", with(with(security(int64(65534), "runAsUser"), int64(65534), path("securityContext", "runAsGroup")...), []any{int64(7)}, "spec", "securityContext", "supplementalGroups"), allowed)
	add("seccomp of the pod", with(noProfile, fields{"type": "RuntimeDefault"}, "spec", "securityContext", "seccompProfile"), allowed)
	add("seccomp not set", noProfile, podsPolicy)
	add("seccomp Unconfined", security(fields{"type": "Unconfined"}, "seccompProfile"), podsPolicy)
	add("seccomp Localhost", security(fields{"type": "Localhost", "localhostProfile": "any.json"}, "seccompProfile"), podsPolicy)
	add("seccomp of the pod Unconfined", ofPod(fields{"type": "Unconfined"}, "seccompProfile"), podsPolicy)
	add("AppArmor", security(fields{"type": "RuntimeDefault"}, "appArmorProfile"), allowed)
	add("AppArmor Unconfined", security(fields{"type": "Unconfined"}, "appArmorProfile"), podsPolicy)
	add("AppArmor Localhost", security(fields{"type": "Localhost", "localhostProfile": "any"}, "appArmorProfile"), podsPolicy)
	add("AppArmor of the pod Unconfined", ofPod(fields{"type": "Unconfined"}, "appArmorProfile"), podsPolicy)
	add("AppArmor Unconfined, by an annotation", with(pod, "unconfined", "metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/kms-health"), podsPolicy)
	for _, kind := range []string{"spc_t", "container_t"} {
		add("SELinux "+kind, security(fields{"type": kind}, "seLinuxOptions"), map[bool]string{true: allowed, false: podsPolicy}[kind == "spc_t"])
	}
	add("SELinux level of the pod", ofPod(fields{"level": "s0:c26,c5"}, "seLinuxOptions"), allowed)
	for key, value := range map[string]string{"type": "unconfined_t", "user": "unconfined_u", "role": "unconfined_r"} {
		add("SELinux "+key, security(fields{key: value}, "seLinuxOptions"), podsPolicy)
		add("SELinux "+key+" of the pod", ofPod(fields{key: value}, "seLinuxOptions"), podsPolicy)
	}
	add("/proc unmasked", with(security("Unmasked", "procMount"), false, "spec", "hostUsers"), podsPolicy)
	add("privileged", security(true, "privileged"), validation)
	add("escalation", security(true, "allowPrivilegeEscalation"), podsPolicy)
	add("a sysctl", with(ofPod([]any{fields{"name": "kernel.shm_rmid_forced", "value": "1"}}, "sysctls"), false, "spec", "hostNetwork"), podsPolicy)
	return all
}

// linuxCapabilities are all capabilities, in the order of their numbers.
var linuxCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// capabilities tries each capability in a pod in the operator's namespace, and in a sidecar.
func (c *installed) capabilities(t *testing.T) (all []attempt) {
	if len(linuxCapabilities) != unix.CAP_LAST_CAP+1 {
		t.Errorf("%d capabilities, want %d", len(linuxCapabilities), unix.CAP_LAST_CAP+1)
	}
	pod, sidecar := with(c.companion(), "another", "metadata", "name"), c.sidecar(t)
	add := func(what string, list []any, want bool) {
		for policy, o := range map[string]fields{
			podsPolicy: with(pod, list, path("securityContext", "capabilities", "add")...), sidecarPolicy: with(sidecar, list, ofSidecar("securityContext", "capabilities", "add")...),
		} {
			refusedBy := policy
			if strings.Contains(what, "CAP_SYS_ADMIN") { // kube-apiserver refuses it with allowPrivilegeEscalation false
				refusedBy = validation
			}
			all = append(all, attempt{what, c.operator, c.write(t, o, operatorManager, true), map[bool]string{true: allowed, false: refusedBy}[want]})
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
		all = append(all, attempt{fmt.Sprintf("dropped %v", drop), c.operator, c.write(t, with(pod, drop, path("securityContext", "capabilities", "drop")...), operatorManager, true), podsPolicy},
			attempt{fmt.Sprintf("dropped %v", drop), c.operator, c.write(t, with(sidecar, drop, ofSidecar("securityContext", "capabilities", "drop")...), operatorManager, true), sidecarPolicy})
	}
	return all
}

// mounts tries writable mounts and emptyDirs, in a companion and in a sidecar.
func (c *installed) mounts(t *testing.T) (all []attempt) {
	pod, sidecar := with(c.companion(), "another", "metadata", "name"), c.sidecar(t)
	for policy, of := range map[string]struct {
		o  fields
		at []any // the path of the PodSpec
	}{podsPolicy: {pod, []any{"spec"}}, sidecarPolicy: {sidecar, []any{"spec", "template", "spec"}}} {
		in := func(more ...any) []any { return append(slices.Clone(of.at), more...) }
		spec := of.o
		for _, step := range of.at {
			spec = spec[step.(string)].(fields)
		}
		add := func(what string, o fields, want string) {
			all = append(all, attempt{what, c.operator, c.write(t, o, operatorManager, true), want})
		}
		add("as it is", of.o, allowed)
		for i, m := range spec["containers"].([]any)[0].(fields)["volumeMounts"].([]any) {
			name, at := m.(fields)["name"].(string), in("containers", 0, "volumeMounts", i)
			change := func(what string, value any, key string, want string) {
				add(name+" "+what, with(of.o, value, append(slices.Clone(at), key)...), want)
			}
			if name != contract.StateVolume {
				change("writable", nil, "readOnly", policy)
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
				add("kms-health-state "+what, with(of.o, source, in("volumes", i)...), policy)
			}
		}
		scratch := with(of.o, fields{"name": "scratch", "emptyDir": fields{"sizeLimit": "8Mi"}}, in("volumes")...)
		add("another emptyDir", with(scratch, fields{"name": "scratch", "mountPath": "/tmp"}, in("containers", 0, "volumeMounts")...), policy)
		add("another emptyDir, read-only", with(scratch, fields{"name": "scratch", "mountPath": "/tmp", "readOnly": true}, in("containers", 0, "volumeMounts")...), policy)
	}
	return all
}

func (c *installed) kmsHealths(t *testing.T) (all []attempt) {
	if c.openShift() {
		return nil
	}
	s := kmsHealth
	o := c.input(target, "CompanionPod").Destination().Object
	forged := func(manager string) []any {
		return []any{fields{"manager": manager, "operation": "Apply", "subresource": "status", "apiVersion": "kmshealth.openshift.io/v1alpha1",
			"time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields{"f:status": fields{"f:conditions": fields{`k:{"type":"KMSHealthReporter_node-a"}`: fields{".": fields{}}}}}}}
	}
	main := func(what string, metadata fields) {
		all = append(all, attempt{what, c.operator, dry(managedBy(operatorManager, s.merge(t, s.path(), fields{"metadata": metadata}))), statusPolicy})
	}
	all = append(all, attempt{"as it is", c.operator, c.write(t, o, operatorManager, true), allowed})
	main("managedFields cleared", fields{"managedFields": []any{fields{}}})
	for _, manager := range []string{"third-party", contract.ConditionManager("node-b"), operatorManager} {
		main("managedFields forged, of "+manager, fields{"managedFields": forged(manager)})
	}
	main("a label", fields{"labels": fields{"a": "b"}})
	main("a finalizer", fields{"finalizers": []any{"example.com/x"}})
	create := func(what string, o fields, want string) {
		r := c.write(t, o, operatorManager, true)
		if o["metadata"].(fields)["managedFields"] != nil { // an apply must not have managedFields
			r.method, r.contentType, r.path = http.MethodPost, "", collection(s)+"?dryRun=All&fieldManager="+operatorManager
		}
		all = append(all, attempt{"created " + what, c.operator, r, want})
	}
	all = append(all, attempt{"deleted", c.operator, request{method: http.MethodDelete, path: s.path()}, allowed})
	create("as it is", o, allowed)
	create("with a label", with(o, "x", "metadata", "labels", "other"), statusPolicy)
	create("with an annotation", with(o, "x", "metadata", "annotations", "other"), statusPolicy)
	create("with a finalizer", with(o, []any{"example.com/x"}, "metadata", "finalizers"), statusPolicy)
	create("with an owner", with(o, []any{fields{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}}, "metadata", "ownerReferences"), statusPolicy)
	create("with forged managedFields", with(o, forged("third-party"), "metadata", "managedFields"), byRights) // the right to create names its objects, and a POST has no name
	create("of another name", with(o, "other", "metadata", "name"), byRights)
	return all
}

// sidecar returns the object that the operator applies to an API server's Deployment. It is created once.
func (c *installed) sidecar(t *testing.T) fields {
	t.Helper()
	if c.injection == nil {
		c.injection = c.deployment(t)
	}
	return c.injection
}

func ofSidecar(more ...any) []any {
	return append([]any{"spec", "template", "spec", "containers", 0}, more...)
}

func (c *installed) deployments(t *testing.T) (all []attempt) {
	sidecar := c.sidecar(t)
	add := func(what, manager string, o fields, want string) {
		all = append(all, attempt{what, c.operator, c.write(t, o, manager, true), want})
	}
	template := func(value any, more ...any) fields {
		return with(sidecar, value, append([]any{"spec", "template"}, more...)...)
	}
	ours := func(value any, more ...any) fields { return with(sidecar, value, ofSidecar(more...)...) }
	add("as it is", operatorManager, sidecar, allowed)
	bare := with(sidecar, nil, "spec")
	add("removed", operatorManager, bare, allowed)
	for _, manager := range []string{"theirs", "cluster-openshift-apiserver-operator", "kubectl", "kms-health-operator-ca"} {
		add("as manager "+manager, manager, sidecar, sidecarPolicy)
	}
	restarts := []any{fields{"action": "RestartAllContainers", "exitCodes": fields{"operator": "In", "values": []any{int64(1)}}}}
	add("an end that restarts the API server", operatorManager, with(ours("Always", "restartPolicy"), restarts, ofSidecar("restartPolicyRules")...),
		sidecarPolicy)
	add("a disk as a device", operatorManager, ours([]any{fields{"name": "disk", "devicePath": "/dev/x"}}, "volumeDevices"), sidecarPolicy)
	for resource, amount := range map[string]string{"example.com/device": "1", "hugepages-2Mi": "2Mi"} {
		add("the resource "+resource, operatorManager, with(ours(amount, "resources", "limits", resource), "64Mi", ofSidecar("resources", "limits", "memory")...), sidecarPolicy)
	}
	theirs := fields{"name": "api", "image": "api:1"}
	add("their container's image co-owned", operatorManager, template(theirs, "spec", "containers"), sidecarPolicy)
	add("their container co-owned", operatorManager, template(fields{"name": "api"}, "spec", "containers"), sidecarPolicy)
	add("their volume co-owned", operatorManager, template(fields{"name": "sockets", "emptyDir": fields{}}, "spec", "volumes"), sidecarPolicy)
	add("their annotation co-owned", operatorManager, template("1", "metadata", "annotations", "theirs"), sidecarPolicy)
	add("their label co-owned", operatorManager, template("true", "metadata", "labels", "apiserver"), sidecarPolicy)
	add("the replicas co-owned", operatorManager, with(sidecar, int64(0), "spec", "replicas"), sidecarPolicy)
	add("a label co-owned", operatorManager, with(sidecar, "true", "metadata", "labels", "apiserver"), sidecarPolicy)
	probe := fields{"httpGet": fields{"path": "/", "port": int64(80), "host": "169.254.169.254"}}
	for key, value := range map[string]any{
		"livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe, "lifecycle": fields{"postStart": fields{"exec": fields{"command": []any{"x"}}}},
		"ports": []any{fields{"containerPort": int64(80), "hostPort": int64(80), "protocol": "TCP"}}, "envFrom": []any{fields{"secretRef": fields{"name": "etcd-client"}}},
	} {
		add("the field "+key, operatorManager, ours(value, key), sidecarPolicy)
	}
	for key, value := range map[string]any{
		"seccompProfile": fields{"type": "Unconfined"}, "appArmorProfile": fields{"type": "Unconfined"}, "procMount": "Unmasked", "privileged": true,
		"allowPrivilegeEscalation": true, "readOnlyRootFilesystem": false, "seLinuxOptions": fields{"type": "spc_t"}, "windowsOptions": fields{"hostProcess": true},
	} {
		want := sidecarPolicy
		if key == "privileged" || key == "procMount" || key == "windowsOptions" {
			want = validation
		}
		add("the security context's "+key, operatorManager, ours(value, "securityContext", key), want)
	}
	add("no seccomp profile", operatorManager, ours(nil, "securityContext", "seccompProfile"), sidecarPolicy)
	add("another user", operatorManager, with(ours(int64(65534), "securityContext", "runAsUser"), true, ofSidecar("securityContext", "runAsNonRoot")...), allowed)
	add("the network of the node", operatorManager, template(true, "spec", "hostNetwork"), sidecarPolicy)
	return all
}

// others tries requests of other users, with other names and subresources. Mostly another layer than a policy refuses
// them.
func (c *installed) others(t *testing.T) (all []attempt) {
	s, pod := c.operatorResource(), with(c.companion(), "another", "metadata", "name")
	add := func(what string, who *caller, r request, want string) { all = append(all, attempt{what, who, r, want}) }
	call := func(method, path, body string) request {
		r := request{method, expand(path, c.home) + "?dryRun=All&fieldManager=" + operatorManager, "", body}
		if method == http.MethodPatch {
			r.contentType = mergeType
		}
		return r
	}
	privileged := with(pod, true, "spec", "hostPID")
	add("a pod of an administrator's", c.admin, c.write(t, privileged, "x", true), podsPolicy)
	add("a pod of a generated name", c.operator, c.write(t, with(with(privileged, nil, "metadata", "name"), "x-", "metadata", "generateName"), operatorManager, true), podsPolicy)
	add("a pod elsewhere", c.operator, c.write(t, with(pod, "default", "metadata", "namespace"), operatorManager, true), byRights)
	add("a restarted init container", c.operator, c.write(t, with(pod, []any{fields{"name": "i", "image": "i", "restartPolicy": "Always"}}, "spec", "initContainers"), operatorManager, true), podsPolicy)
	running := "/api/v1/namespaces/%s/pods/" + c.companion()["metadata"].(fields)["name"].(string)
	annotation := func(key string) string { return text(t, fields{"metadata": fields{"annotations": fields{key: "x"}}}) }
	add("a running pod made a mirror", c.operator, call(http.MethodPatch, running, annotation("kubernetes.io/config.mirror")), validation)
	add("a running pod's AppArmor", c.operator, call(http.MethodPatch, running, annotation("container.apparmor.security.beta.kubernetes.io/kms-health")), validation)
	add("a running pod's capabilities", c.operator, request{http.MethodPatch, expand(running, c.home) + "?dryRun=All", "application/strategic-merge-patch+json",
		text(t, fields{"spec": fields{"containers": []any{fields{"name": "kms-health", "securityContext": fields{"capabilities": fields{"add": []any{"SYS_ADMIN"}}}}}}})}, validation)
	for _, subresource := range []string{"ephemeralcontainers", "resize", "status"} {
		add("a running pod's "+subresource, c.operator, call(http.MethodPatch, running+"/"+subresource, "{}"), byRights)
	}
	for _, subresource := range []string{"exec", "attach", "portforward", "binding", "eviction"} {
		add("a running pod's "+subresource, c.operator, call(http.MethodPost, running+"/"+subresource, "{}"), byRights)
	}
	add("the namespace's label", c.operator, call(http.MethodPatch, "/api/v1/namespaces/"+c.home, text(t, fields{"metadata": fields{"labels": fields{"kmshealth.openshift.io/pods": nil}}})), byRights)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, name := range []string{"kms-health-reporter", "kms-health-reporter-rights", "kms-health-pods"} {
			add(kind+" "+name+" deleted", c.operator, call(http.MethodDelete, paths[kind]+name, ""), byRights)
			add(kind+" "+name+" changed", c.operator, call(http.MethodPatch, paths[kind]+name, `{"spec":{}}`), byRights)
		}
	}
	role := c.identity()["ClusterRole"]
	add("a ClusterRole of another name", c.operator, c.write(t, with(role, "other", "metadata", "name"), operatorManager, true), byRights)
	add("a right to all statuses", c.operator, c.write(t, with(role, []any{}, "rules", 0, "resourceNames"), operatorManager, true), escalation)
	for _, account := range []string{operatorAccount, "default", account} {
		add("a token of "+account, c.operator, call(http.MethodPost, "/api/v1/namespaces/%s/serviceaccounts/"+account+"/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`),
			byRights)
	}
	for _, who := range []*caller{c.operator, c.bound, c.minted} {
		add("Secrets", who, call(http.MethodGet, "/api/v1/namespaces/%s/secrets", ""), byRights)
		add("Secrets of API servers", who, call(http.MethodGet, "/api/v1/namespaces/"+c.servers+"/secrets", ""), byRights)
		add("the status by PUT", who, request{method: http.MethodPut, path: s.status(), body: s.object(t, fields{})}, byRights)
		add("the status of another object", who, s.merge(t, strings.Replace(s.status(), s.of().Name+"/status", "other/status", 1), fields{}), byRights)
		add("a manager of 129 bytes", who, s.apply(t, "kms-health-reporter-"+strings.Repeat("a", 109), fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[]")}}), validation)
		add("all pods deleted", who, call(http.MethodDelete, "/api/v1/namespaces/%s/pods", ""), byRights)
	}
	return all
}
