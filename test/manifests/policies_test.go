//go:build integration

package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// put applies an object as a user, or tries it as a dry run.
func put(t *testing.T, config *rest.Config, o *unstructured.Unstructured, dry bool) error {
	t.Helper()
	client := dynamic.NewForConfigOrDie(config)
	raw, err := json.Marshal(o)
	must.Succeed(t, err)
	force := true
	options := metav1.PatchOptions{FieldManager: "kms-health-operator", Force: &force}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = client.Resource(resourceOf(o)).Namespace(o.GetNamespace()).Patch(t.Context(), o.GetName(), types.ApplyPatchType, raw, options)
	return err
}

// refused waits until an object is refused with this message: a new policy becomes active only after a moment. An empty
// message means any refusal.
func refused(t *testing.T, config *rest.Config, o *unstructured.Unstructured, message string) {
	t.Helper()
	eventually(t, "it is refused", func() error {
		err := put(t, config, o, true)
		if err == nil {
			return fmt.Errorf("%s was accepted", id(o))
		}
		if !strings.Contains(err.Error(), message) {
			return fmt.Errorf("refused, but not for %q: %w", message, err)
		}
		return nil
	})
}

func object(apiVersion, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	content := map[string]any{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace},
	}
	if m, ok := rest["metadata"].(map[string]any); ok {
		maps.Copy(content["metadata"].(map[string]any), m)
	}
	for k, v := range rest {
		if k != "metadata" {
			content[k] = v
		}
	}
	return &unstructured.Unstructured{Object: content}
}

func list(values ...string) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}

func secretRole(rules ...any) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "Role", kas, "kms-health-operator-kube-apiserver", map[string]any{"rules": rules})
}

func rule(group, resource string, names, verbs []any) map[string]any {
	r := map[string]any{"apiGroups": list(group), "resources": list(resource), "verbs": verbs}
	if names != nil {
		r["resourceNames"] = names
	}
	return r
}

func TestOperatorsOwnRoleHoldsNamedEncryptionConfigsAndNothingElse(t *testing.T) {
	operator := openshift.as(t)
	good := rule("", "secrets", list("encryption-config"), list("get", "list", "watch"))
	const about, reads, names = "is about Secrets", "lets read", "names the Secrets"

	in := objects.Input{Config: &v1alpha1.OperatorConfiguration{Image: "i"}, Target: &v1alpha1.APIServer{
		Name: "kube-apiserver", Namespace: kas, EncryptionConfig: v1alpha1.EncryptionConfig{Secret: "encryption-config"},
	}}
	for _, revisions := range [][]string{nil, {"7"}, {"7", "8", "123"}} {
		if err := put(t, operator, in.SecretRole(revisions), false); err != nil {
			t.Errorf("revisions %v: %v", revisions, err)
		}
	}
	t.Cleanup(func() {
		role := secretRole()
		_ = openshift.client.Resource(resourceOf(role)).Namespace(kas).Delete(soon(t), role.GetName(), metav1.DeleteOptions{})
	})
	// The Role permits to read these Secrets, and nothing more.
	openshift.expect(t, question{"get list watch", "secrets", kas, "encryption-config"}, true)
	openshift.expect(t, question{"get", "secrets", kas, "encryption-config-123"}, true)
	openshift.expect(t, question{"list watch", "secrets", kas, ""}, false)
	openshift.expect(t, question{"get", "secrets", kas, "encryption-config-9"}, false)
	openshift.expect(t, question{"get", "secrets", oas, "encryption-config"}, false)
	openshift.expect(t, question{"update patch delete", "secrets", kas, "encryption-config"}, false)

	for name, c := range map[string]struct {
		rules []any
		why   string
	}{
		"everything":           {[]any{rule("*", "*", nil, list("*"))}, about},
		"everything, named":    {[]any{rule("*", "*", list("encryption-config"), list("*"))}, about},
		"all Secrets":          {[]any{rule("", "secrets", nil, list("get"))}, names},
		"no names":             {[]any{rule("", "secrets", list(), list("get"))}, names},
		"an empty name":        {[]any{rule("", "secrets", list(""), list("get"))}, names},
		"another Secret":       {[]any{rule("", "secrets", list("installer-sa-token"), list("get"))}, names},
		"one among good ones":  {[]any{rule("", "secrets", list("encryption-config", "etcd-client"), list("get"))}, names},
		"a good prefix":        {[]any{rule("", "secrets", list("encryption-config-7x"), list("get"))}, names},
		"a good suffix":        {[]any{rule("", "secrets", list("my-encryption-config"), list("get"))}, names},
		"lines":                {[]any{rule("", "secrets", list("encryption-config\netcd"), list("get"))}, ""},
		"all resources":        {[]any{rule("", "*", list("encryption-config"), list("get"))}, about},
		"ConfigMaps":           {[]any{rule("", "configmaps", list("encryption-config"), list("get"))}, about},
		"a subresource":        {[]any{rule("", "secrets/status", list("encryption-config"), list("get"))}, about},
		"two resources":        {[]any{map[string]any{"apiGroups": list(""), "resources": list("secrets", "pods"), "resourceNames": list("encryption-config"), "verbs": list("get")}}, about},
		"two groups":           {[]any{map[string]any{"apiGroups": list("", "apps"), "resources": list("secrets"), "resourceNames": list("encryption-config"), "verbs": list("get")}}, about},
		"another group":        {[]any{rule("apps", "secrets", list("encryption-config"), list("get"))}, about},
		"all groups":           {[]any{rule("*", "secrets", list("encryption-config"), list("get"))}, about},
		"writing":              {[]any{rule("", "secrets", list("encryption-config"), list("get", "patch"))}, reads},
		"deleting":             {[]any{rule("", "secrets", list("encryption-config"), list("delete"))}, reads},
		"all verbs":            {[]any{rule("", "secrets", list("encryption-config"), list("*"))}, reads},
		"a good and a bad one": {[]any{good, rule("", "pods", nil, list("create"))}, about},
		"pods/exec":            {[]any{good, rule("", "pods/exec", nil, list("create"))}, about},
		"roles":                {[]any{rule("rbac.authorization.k8s.io", "roles", list("encryption-config"), list("escalate"))}, about},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, operator, secretRole(c.rules...), c.why)
			// The policy also applies to administrators.
			refused(t, openshift.config, secretRole(c.rules...), c.why)
		})
	}
	// The operator cannot write such Roles where it has no right "escalate".
	for namespace, name := range map[string]string{kas: "other", "kube-system": "kms-health-operator-kube-apiserver", home: "kms-health-operator"} {
		role := object("rbac.authorization.k8s.io/v1", "Role", namespace, name, map[string]any{"rules": []any{good}})
		refused(t, operator, role, "forbidden")
	}
	// The policy does not apply to other Roles.
	other := object("rbac.authorization.k8s.io/v1", "Role", kas, "third-party", map[string]any{"rules": []any{rule("", "pods", nil, list("create"))}})
	if err := put(t, openshift.config, other, true); err != nil {
		t.Error(err)
	}
}

// bindingTo binds a subject to the reporters' role.
func bindingTo(kind, name string) *unstructured.Unstructured {
	if kind == "ServiceAccount" {
		return bindingIn(home, name)
	}
	return binding(map[string]any{"kind": kind, "name": name})
}

func bindingIn(namespace, name string) *unstructured.Unstructured {
	return binding(map[string]any{"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

func binding(subject map[string]any) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", reporter, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": reporter},
		"subjects": []any{subject},
	})
}

func TestReportersRoleCannotHoldWhatTheOperatorDoesNot(t *testing.T) {
	operator := openshift.as(t)
	role := func(rules ...any) *unstructured.Unstructured {
		return object("rbac.authorization.k8s.io/v1", "ClusterRole", "", reporter, map[string]any{"rules": rules})
	}
	for name, c := range map[string]*unstructured.Unstructured{
		"Secrets":          role(rule("", "secrets", nil, list("get"))),
		"everything":       role(rule("*", "*", nil, list("*"))),
		"another SCC":      role(rule("security.openshift.io", "securitycontextconstraints", list("privileged"), list("use"))),
		"the whole object": role(rule("operator.openshift.io", "kubeapiservers", list("cluster"), list("patch"))),
	} {
		t.Run(name, func(t *testing.T) { refused(t, operator, c, "attempting to grant RBAC permissions not currently held") })
	}
	binding := object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", reporter, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "kms-health-operator", "namespace": home}},
	})
	refused(t, operator, binding, "attempting to grant RBAC permissions not currently held")
	// The shipped objects are accepted.
	in := reportersInput(v1alpha1.ModeCompanionPod)
	for _, o := range in.Identity() {
		if err := put(t, operator, o, false); err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			_ = openshift.client.Resource(resourceOf(o)).Namespace(o.GetNamespace()).Delete(soon(t), o.GetName(), metav1.DeleteOptions{})
		})
	}
	// Rights that only the operator needs are refused, and subjects to which the policies do not apply.
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		why    string
	}{
		"writing of bindings": {role(rule("rbac.authorization.k8s.io", "clusterrolebindings", list(reporter), list("patch"))), "and nothing else"},
		"token reviews":       {role(rule("authentication.k8s.io", "tokenreviews", nil, list("create"))), "and nothing else"},
		"reading of a status": {role(rule("operator.openshift.io", "kubeapiservers", list("cluster"), list("list"))), "and nothing else"},
		"a ServiceAccount":    {bindingTo("ServiceAccount", "default"), "has as subjects"},
		"the operator":        {bindingTo("ServiceAccount", install.ServiceAccount), "has as subjects"},
		"a user":              {bindingTo("User", "third-party"), "has as subjects"},
		"another reporter in an API server's namespace": {bindingIn(kas, reporter+"-x"), "has as subjects"},
		"a group": {bindingTo("Group", "system:authenticated"), "has as subjects"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, operator, c.object, c.why)
		})
	}
}

func reportersInput(d v1alpha1.Mode) *objects.Input {
	c, err := v1alpha1.DecodeOperator(v1alpha1.OperatorOpenShift)
	if err != nil {
		panic(err) // the file is a constant
	}
	c.Image = "reporter:1"
	t := c.APIServers[0]
	t.Mode = d
	settings, err := tlsprofile.Of(nil)
	if err != nil {
		panic(err)
	}
	return &objects.Input{Config: c, Namespace: home, Target: &t, OpenShift: true, TLS: settings, CA: []byte("CA")}
}

func TestPodsOfTheNamespaceAreReportersAndNothingElse(t *testing.T) {
	operator := openshift.as(t)
	// Admission requires the ServiceAccount.
	in := reportersInput(v1alpha1.ModeCompanionPod)
	account := object("v1", "ServiceAccount", home, reporter, nil)
	must.Succeed(t, put(t, operator, account, false))
	t.Cleanup(func() {
		_ = openshift.client.Resource(resourceOf(account)).Namespace(home).Delete(soon(t), reporter, metav1.DeleteOptions{})
	})
	plugins := []v1alpha1.Plugin{{KeyID: "1", Endpoint: "unix:///var/run/kmsplugin/kms-1.sock", Role: "Write"}}
	companion := func(host string) *unstructured.Unstructured {
		return in.CompanionPod(objects.APIServerPod{Node: "master-0", UID: "0a1b2c3d", Folders: []objects.Folder{{MountPath: "/var/run/kmsplugin", HostPath: host}}}, plugins)
	}
	const pods = "/var/lib/kubelet/pods/"
	daemonSet := reportersInput(v1alpha1.ModeDaemonSet).DaemonSet([]objects.Folder{{MountPath: "/var/run/kmsplugin", HostPath: "/var/run/kmsplugin"}}, contract.Root, plugins)
	ofDaemonSet, _, err := unstructured.NestedMap(daemonSet.Object, "spec", "template", "spec")
	must.Succeed(t, err)
	var own map[string]any
	for _, o := range openshift.base {
		if o.GetKind() == "Deployment" {
			own = specOf(o.DeepCopy())
		}
	}
	for name, pod := range map[string]*unstructured.Unstructured{
		"a companion":                     companion(pods + "4fd0b0c6-4a8c-4b0e-9a3c-2f2f6a7b8c9d/volumes/kubernetes.io~empty-dir/kms-sockets"),
		"a companion of a static pod":     companion(pods + "0123456789abcdef0123456789abcdef/volumes/kubernetes.io~empty-dir/kms-sockets"),
		"a companion with a host folder":  companion("/var/run/kmsplugin"),
		"a companion with one below that": companion("/run/kmsplugin/vault"),
		"a DaemonSet's":                   object("v1", "Pod", home, "agent", map[string]any{"spec": ofDaemonSet}),
		"the operator":                    object("v1", "Pod", home, "operator", map[string]any{"spec": own}),
	} {
		if err := put(t, operator, pod, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The folders that the operator finds are accepted, wherever in an emptyDir the sockets are.
	for _, mount := range []corev1.VolumeMount{
		{MountPath: "/var/run/kmsplugin"}, {MountPath: "/var/run/kmsplugin", SubPath: "vault/sockets"},
		{MountPath: "/var/run"}, {MountPath: "/var/run/", SubPath: "run"},
	} {
		mount.Name = "kms-sockets"
		server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "4fd0b0c6-4a8c-4b0e-9a3c-2f2f6a7b8c9d"}}
		server.Spec.Volumes = []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		server.Spec.Containers = []corev1.Container{{Name: "api", VolumeMounts: []corev1.VolumeMount{mount}}}
		found, err := objects.FindFolders(server, "api", "", plugins[0])
		must.Succeed(t, err)
		pod := in.CompanionPod(objects.APIServerPod{Node: "master-0", UID: string(server.UID), Folders: found}, plugins)
		if err := put(t, operator, pod, true); err != nil {
			t.Errorf("%+v: %v", mount, err)
		}
	}

	const folders, context = "a pod of this namespace may not mount or create ", "is not privileged"
	for name, c := range map[string]struct {
		host   string
		change func(spec, container map[string]any)
		why    string
	}{
		"the root":                {"/", nil, folders},
		"etcd":                    {"/var/lib/etcd", nil, folders},
		"static pods":             {"/etc/kubernetes/manifests", nil, folders},
		"all of the kubelet's":    {"/var/lib/kubelet", nil, folders},
		"all pods'":               {"/var/lib/kubelet/pods", nil, folders},
		"a pod's Secret":          {pods + "0a1b/volumes/kubernetes.io~secret/encryption-config", nil, folders},
		"a pod's token":           {pods + "0a1b/volumes/kubernetes.io~projected/kube-api-access", nil, folders},
		"a folder of an emptyDir": {pods + "0a1b/volumes/kubernetes.io~empty-dir/x/y", nil, folders},
		"a way out":               {pods + "0a1b/volumes/kubernetes.io~empty-dir/../kubernetes.io~secret", nil, ""},
		"a way out of sockets":    {"/var/run/kmsplugin/../../etc", nil, ""},
		"a name that begins so":   {"/var/run/kmsplugin-other", nil, folders},
		"writable": {"/var/run/kmsplugin", func(_, c map[string]any) {
			for _, m := range c["volumeMounts"].([]any) {
				delete(m.(map[string]any), "readOnly")
			}
		}, "read-only"},
		"privileged":          {"", func(_, c map[string]any) { c["securityContext"] = map[string]any{"privileged": true} }, context},
		"no security context": {"", func(_, c map[string]any) { delete(c, "securityContext") }, context},
		"a capability": {"", func(_, c map[string]any) {
			c["securityContext"].(map[string]any)["capabilities"].(map[string]any)["add"] = list("SYS_ADMIN")
		}, context},
		"escalation":      {"", func(_, c map[string]any) { delete(c["securityContext"].(map[string]any), "allowPrivilegeEscalation") }, context},
		"a writable root": {"", func(_, c map[string]any) { c["securityContext"].(map[string]any)["readOnlyRootFilesystem"] = false }, context},
		"the node's PIDs": {"", func(s, _ map[string]any) { s["hostPID"] = true }, "processes of its node"},
		"the node's IPC":  {"", func(s, _ map[string]any) { s["hostIPC"] = true }, "processes of its node"},
		"a process of a Windows node": {"", func(s, _ map[string]any) {
			s["securityContext"] = map[string]any{"windowsOptions": map[string]any{"hostProcess": true}}
		}, "processes of its node"},
		"a container as a process of a Windows node": {"", func(_, c map[string]any) {
			c["securityContext"].(map[string]any)["windowsOptions"] = map[string]any{"hostProcess": true}
		}, "processes of its node"},
		"an init container":  {"", func(s, _ map[string]any) { s["initContainers"] = []any{map[string]any{"name": "i", "image": "i"}} }, context},
		"a second container": {"", func(s, c map[string]any) { s["containers"] = []any{c, map[string]any{"name": "i", "image": "i"}} }, context},
	} {
		t.Run(name, func(t *testing.T) {
			host := c.host
			if host == "" {
				host = "/var/run/kmsplugin"
			}
			pod := companion(host)
			if c.change != nil {
				spec := pod.Object["spec"].(map[string]any)
				c.change(spec, spec["containers"].([]any)[0].(map[string]any))
			}
			if c.why == folders {
				c.why += host + ":" // the message must name the folder
			}
			refused(t, operator, pod, c.why)
		})
	}
	// The policy does not apply to other namespaces.
	elsewhere := companion("/")
	elsewhere.SetNamespace(kas)
	elsewhere.Object["spec"].(map[string]any)["serviceAccountName"] = "default"
	eventually(t, "an administrator runs anything elsewhere", func() error { return put(t, openshift.config, elsewhere, true) })
}

func TestOperatorWritesReportersConfigMapsAndSecretsAndNoOthers(t *testing.T) {
	openshift.with(t, "deployment")
	operator := openshift.as(t)
	openshift.expect(t, question{"patch", "secrets", kas, reporter + "-token"}, true)
	openshift.expect(t, question{"patch", "configmaps", kas, "config"}, true)

	secret := func(name, kind, account string) *unstructured.Unstructured {
		content := map[string]any{"type": kind}
		if account != "" {
			content["metadata"] = map[string]any{"annotations": map[string]any{"kubernetes.io/service-account.name": account}}
		}
		return object("v1", "Secret", kas, name, content)
	}
	const token = "kubernetes.io/service-account-token"
	for _, name := range []string{"config", "kube-apiserver-pod", "kms-health-operator-config", "kms-health-reporter"} {
		for _, namespace := range []string{kas, home} {
			refused(t, operator, object("v1", "ConfigMap", namespace, name, map[string]any{"data": map[string]any{"a": "b"}}), "and no others")
		}
	}
	for _, account := range []string{"installer-sa", "default", "x-kms-health-reporter-kube-apiserver", reporter} {
		refused(t, operator, secret(reporter+"-token", token, account), "are Opaque")
	}
	for _, o := range []*unstructured.Unstructured{
		object("v1", "ConfigMap", kas, reporter+"-0123456789", map[string]any{"data": map[string]any{"a": "b"}}),
		secret(reporter+"-token", "Opaque", ""),
	} {
		if err := put(t, operator, o, true); err != nil {
			t.Error(err)
		}
		// A label of another client stays, and does not block later writes. If a webhook adds a label to a write of the
		// operator, the message names it.
		labels := []byte(`{"metadata": {"labels": {"velero.io/restore-name": "monday"}}}`)
		err := put(t, openshift.config, o, false)
		if err == nil {
			_, err = openshift.client.Resource(resourceOf(o)).Namespace(kas).Patch(t.Context(), o.GetName(), types.MergePatchType,
				labels, metav1.PatchOptions{FieldManager: "velero"})
		}
		must.Succeed(t, err)
		t.Cleanup(func() {
			_ = openshift.client.Resource(resourceOf(o)).Namespace(kas).Delete(soon(t), o.GetName(), metav1.DeleteOptions{})
		})
		changed := o.DeepCopy()
		changed.SetAnnotations(map[string]string{"changed": "1"})
		if err := put(t, operator, changed, true); err != nil {
			t.Error(err)
		}
		changed.SetLabels(map[string]string{"velero.io/restore-name": "tuesday", "team": "a"})
		refused(t, operator, changed, "from what adds team")
	}
	// A deletion has no object that the policy could check, only the old one.
	mine := object("v1", "ConfigMap", kas, "config", map[string]any{"data": map[string]any{"a": "b"}})
	must.Succeed(t, put(t, openshift.config, mine, false))
	t.Cleanup(func() {
		_ = openshift.client.Resource(resourceOf(mine)).Namespace(kas).Delete(soon(t), "config", metav1.DeleteOptions{})
	})
	client := dynamic.NewForConfigOrDie(operator)
	err := client.Resource(resourceOf(mine)).Namespace(kas).Delete(t.Context(), "config", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "and no others") {
		t.Errorf("deleting a third-party ConfigMap: %v", err)
	}
}

// specOf returns the PodSpec of a Deployment.
func specOf(o *unstructured.Unstructured) map[string]any {
	return o.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
}

// kube-apiserver has no admission by SCCs, so the test only compares the fields, with the defaults of the CRD.
func TestTheSCCAllowsWhatReportersNeedAndNothingElse(t *testing.T) {
	for _, o := range openshift.base {
		if o.GetKind() != "SecurityContextConstraints" {
			continue
		}
		got, anybody := map[string]any{}, map[string]any{"type": "RunAsAny"}
		for key, value := range o.Object {
			if key != "metadata" && key != "kind" && key != "apiVersion" {
				got[key] = value
			}
		}
		if diff := cmp.Diff(got, map[string]any{
			"allowHostDirVolumePlugin": true, "allowHostNetwork": true, "allowHostPorts": false, "allowHostPID": false,
			"allowHostIPC": false, "allowPrivilegedContainer": false, "allowPrivilegeEscalation": false,
			"defaultAllowPrivilegeEscalation": false, "allowedCapabilities": list("DAC_OVERRIDE"),
			"defaultAddCapabilities": []any{}, "requiredDropCapabilities": list("ALL"), "readOnlyRootFilesystem": true,
			"runAsUser": anybody, "seLinuxContext": anybody, "fsGroup": anybody, "supplementalGroups": anybody,
			"seccompProfiles": list("runtime/default"), "priority": float64(0), "users": []any{}, "groups": []any{},
			"volumes": list("configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"),
		}); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Error("there is no SCC")
}
