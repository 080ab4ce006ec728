//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

func ofSidecar(more ...any) []any {
	return append([]any{"spec", "template", "spec", "containers", 0}, more...)
}

// template returns the sidecar with a value in the pod template, and ours with a value in our container.
func (a *attempts) template(value any, more ...any) fields {
	return with(a.sidecar, value, append([]any{"spec", "template"}, more...)...)
}

func (a *attempts) ours(value any, more ...any) fields {
	return with(a.sidecar, value, ofSidecar(more...)...)
}

func (a *attempts) deployments() {
	sidecar := a.sidecar
	template, ours := a.template, a.ours
	a.add("as it is", sidecar, allowed)
	bare := with(sidecar, nil, "spec")
	a.add("removed", bare, allowed)
	for _, manager := range []string{"theirs", "cluster-openshift-apiserver-operator", "kubectl", "kms-health-operator-ca"} {
		a.try("as manager "+manager, a.operator, a.write(a.t, sidecar, manager, true), sidecarPolicy)
	}
	restarts := []any{fields{"action": "RestartAllContainers", "exitCodes": fields{"operator": "In", "values": []any{int64(1)}}}}
	a.add("an end that restarts the API server", with(ours("Always", "restartPolicy"), restarts, ofSidecar("restartPolicyRules")...),
		sidecarPolicy)
	a.add("a disk as a device", ours([]any{fields{"name": "disk", "devicePath": "/dev/x"}}, "volumeDevices"), sidecarPolicy)
	for resource, amount := range map[string]string{"example.com/device": "1", "hugepages-2Mi": "2Mi"} {
		a.add("the resource "+resource, with(ours(amount, "resources", "limits", resource), "64Mi", ofSidecar("resources", "limits", "memory")...), sidecarPolicy)
	}
	theirs := fields{"name": "api", "image": "api:1"}
	a.add("their container's image co-owned", template(theirs, "spec", "containers"), sidecarPolicy)
	a.add("their container co-owned", template(fields{"name": "api"}, "spec", "containers"), sidecarPolicy)
	a.add("their volume co-owned", template(fields{"name": "sockets", "emptyDir": fields{}}, "spec", "volumes"), sidecarPolicy)
	a.add("their annotation co-owned", template("1", "metadata", "annotations", "theirs"), sidecarPolicy)
	a.add("their label co-owned", template("true", "metadata", "labels", "apiserver"), sidecarPolicy)
	a.add("the replicas co-owned", with(sidecar, int64(0), "spec", "replicas"), sidecarPolicy)
	a.add("a label co-owned", with(sidecar, "true", "metadata", "labels", "apiserver"), sidecarPolicy)
	probe := fields{"httpGet": fields{"path": "/", "port": int64(80), "host": "169.254.169.254"}}
	for key, value := range map[string]any{
		"livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe, "lifecycle": fields{"postStart": fields{"exec": fields{"command": []any{"x"}}}},
		"ports": []any{fields{"containerPort": int64(80), "hostPort": int64(80), "protocol": "TCP"}}, "envFrom": []any{fields{"secretRef": fields{"name": "etcd-client"}}},
	} {
		a.add("the field "+key, ours(value, key), sidecarPolicy)
	}
	for key, value := range map[string]any{
		"seccompProfile": fields{"type": "Unconfined"}, "appArmorProfile": fields{"type": "Unconfined"}, "procMount": "Unmasked", "privileged": true,
		"allowPrivilegeEscalation": true, "readOnlyRootFilesystem": false, "seLinuxOptions": fields{"type": "spc_t"}, "windowsOptions": fields{"hostProcess": true},
	} {
		want := sidecarPolicy
		if key == "privileged" || key == "procMount" || key == "windowsOptions" {
			want = validation
		}
		a.add("the security context's "+key, ours(value, "securityContext", key), want)
	}
	a.add("no seccomp profile", ours(nil, "securityContext", "seccompProfile"), sidecarPolicy)
	a.add("another user", with(ours(int64(65534), "securityContext", "runAsUser"), true, ofSidecar("securityContext", "runAsNonRoot")...), allowed)
	a.add("the network of the node", template(true, "spec", "hostNetwork"), sidecarPolicy)
}

// deploymentParts tries the other parts of a Deployment, with the validation that refuses each.
func (a *attempts) deploymentParts() {
	sidecar, template, ours := a.sidecar, a.template, a.ours
	spec := sidecar["spec"].(fields)["template"].(fields)["spec"].(fields)
	const ofPod, mounted = sidecarPolicy + ": the container kms-health", sidecarPolicy + ": all read-only"
	const ownVolumes, confined = sidecarPolicy + ": own file and credentials", sidecarPolicy + ": not privileged"
	a.add("a label of the Deployment", with(sidecar, "b", "metadata", "labels", "a"), sidecarPolicy+": no metadata")
	a.add("a finalizer", with(sidecar, []any{"a/b"}, "metadata", "finalizers"), sidecarPolicy+": no metadata")
	a.add("replicas", with(sidecar, int64(5), "spec", "replicas"), sidecarPolicy+": the pod template")
	a.add("paused", with(sidecar, true, "spec", "paused"), sidecarPolicy+": the pod template")
	a.add("their annotation", template("2", "metadata", "annotations", "theirs"), sidecarPolicy+": config-hash")
	a.add("a label of the pods", template("b", "metadata", "labels", "a"), sidecarPolicy+": config-hash")
	a.add("another hash", template("2", "metadata", "annotations", contract.ConfigHashAnnotation), allowed)
	a.add("the ServiceAccount", template("other", "spec", "serviceAccountName"), ofPod)
	a.add("the API server's image", template(fields{"name": "api", "image": "evil:1"}, "spec", "containers"), ofPod)
	a.add("another container", template(fields{"name": "other", "image": "evil:1"}, "spec", "containers"), ofPod)
	a.add("an init container", template([]any{fields{"name": "kms-health-init", "image": "evil:1"}}, "spec", "initContainers"), ofPod)
	a.add("another volume", template(fields{"name": "other", "hostPath": fields{"path": "/"}}, "spec", "volumes"), ofPod)
	for i, v := range spec["volumes"].([]any) {
		switch v := v.(fields); {
		case v["secret"] != nil:
			a.add("a third-party Secret", template("etcd-client", "spec", "volumes", i, "secret", "secretName"), ownVolumes)
		case v["configMap"] != nil:
			a.add("a third-party ConfigMap", template("config", "spec", "volumes", i, "configMap", "name"), ownVolumes)
		default:
			a.add(fmt.Sprint(v["name"], " as a folder of the node"), template(fields{"name": v["name"], "hostPath": fields{"path": "/"}}, "spec", "volumes", i), ownVolumes)
		}
	}
	a.add("privileged, and no more", ours(fields{"privileged": true}, "securityContext"), confined)
	secret := fields{"secretKeyRef": fields{"name": "etcd-client", "key": "tls.key"}}
	a.add("a Secret as a variable", ours(fields{"name": "A", "valueFrom": secret}, "env"), confined)
	for _, volume := range []string{"etcd-client", "audit"} {
		a.add("the volume "+volume, ours(fields{"name": volume, "mountPath": "/x", "readOnly": true}, "volumeMounts"), mounted)
	}
	a.add("writable sockets", ours(fields{"name": "sockets", "mountPath": "/x"}, "volumeMounts"), mounted)
	mounts := slices.Clone(spec["containers"].([]any)[0].(fields)["volumeMounts"].([]any))
	a.add("the token", ours(slices.DeleteFunc(mounts, func(m any) bool { return m.(fields)["name"] == objects.NoTokenVolume }), "volumeMounts"), mounted)
	metadata := sidecar["metadata"].(fields)
	patch := request{http.MethodPatch, expand(paths["Deployment"], a.servers) + metadata["name"].(string) + "?dryRun=All", strategicType,
		`{"spec":{"template":{"spec":{"containers":[{"name":"api","image":"evil:1"}]}}}}`}
	a.try("another kind of patch", a.operator, patch, ofPod)
	a.try("an administrator's change", a.admin, a.write(a.t, template(true, "spec", "hostNetwork"), "x", true), allowed)
}

// injected writes the sidecar, and tries the same again.
func (a *attempts) injected() {
	a.must(a.t, a.operator, a.write(a.t, a.sidecar, operatorManager, false))
	a.deployments()
	a.deploymentParts()
}

// ownDeployment tries patches of the operator's Deployment, in which it keeps a CA.
func (a *attempts) ownDeployment() {
	const template, annotated = `{"spec": {"template": %s}}`, `{"metadata": {"annotations": {%s}}}`
	annotations := func(content string) string { return fmt.Sprintf(template, fmt.Sprintf(annotated, content)) }
	own := annotations(`"kmshealth.openshift.io/ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"`)
	deployments := expand(paths["Deployment"], a.home)
	patch := func(what, name, manager, how, body, want string) {
		path := deployments + name + "?dryRun=All&fieldManager=" + manager
		if how == applyType {
			path, body = path+"&force=true", `{"apiVersion": "apps/v1", "kind": "Deployment", `+body[1:]
		}
		a.try(what, a.operator, request{http.MethodPatch, path, how, body}, want)
	}
	patch("a CA", operatorAccount, contract.CAManager, applyType, own, allowed)
	patch("another manager", operatorAccount, operatorManager, applyType, own, caPolicy)
	patch("no Server-Side Apply", operatorAccount, contract.CAManager, mergeType, own, caPolicy)
	const image = `{"spec": {"containers": [{"name": "operator", "image": "other"}]}}`
	patch("the image, as strategic merge", operatorAccount, contract.CAManager, strategicType, fmt.Sprintf(template, image), caPolicy)
	for what, body := range map[string]string{
		"empty": annotations(`"kmshealth.openshift.io/ca": ""`), "no PEM": annotations(`"kmshealth.openshift.io/ca": "x"`),
		"another annotation":           annotations(`"kmshealth.openshift.io/config": "x"`),
		"own and another annotation":   strings.Replace(own, `"kmshealth.openshift.io/ca"`, `"x": "y", "kmshealth.openshift.io/ca"`, 1),
		"a label of the pod":           fmt.Sprintf(template, `{"metadata": {"labels": {"x": "y"}}}`),
		"the image":                    fmt.Sprintf(template, image),
		"the ServiceAccount":           fmt.Sprintf(template, `{"spec": {"serviceAccountName": "other"}}`),
		"replicas":                     `{"spec": {"replicas": 0}}`,
		"replicas, co-owned":           `{"spec": {"replicas": 2, ` + own[len(`{"spec": {`):],
		"paused":                       `{"spec": {"paused": true}}`,
		"annotation of the Deployment": fmt.Sprintf(annotated, `"kmshealth.openshift.io/ca": "x"`),
	} {
		patch(what, operatorAccount, contract.CAManager, applyType, body, caPolicy)
	}
	for what, body := range map[string]string{
		"removed": annotations(`"kmshealth.openshift.io/ca": null`), "all annotations removed": fmt.Sprintf(template, `{"metadata": {"annotations": null}}`),
		"strategy": `{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}`,
		"owner":    `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]}}`,
	} {
		patch(what, operatorAccount, contract.CAManager, mergeType, body, caPolicy)
	}
	patch("another Deployment", "other", contract.CAManager, applyType, own, byRights)
	patch("scale", operatorAccount+"/scale", contract.CAManager, mergeType, `{"spec": {"replicas": 0}}`, byRights)
	patch("status", operatorAccount+"/status", contract.CAManager, mergeType, `{"status": {"replicas": 9}}`, byRights)
	a.try("update", a.operator, request{method: http.MethodPut, path: deployments + operatorAccount, body: "{}"}, byRights)
	a.try("delete", a.operator, request{method: http.MethodDelete, path: deployments + operatorAccount + "?dryRun=All"}, byRights)
}

// others tries requests of other users, with other names and subresources. Mostly another layer than a policy refuses
// them.
func (a *attempts) others() {
	s, pod := a.operatorResource(), a.pod
	call := func(method, path, body string) request {
		r := request{method, expand(path, a.home) + "?dryRun=All&fieldManager=" + operatorManager, "", body}
		if method == http.MethodPatch {
			r.contentType = mergeType
		}
		return r
	}
	privileged := with(pod, true, "spec", "hostPID")
	a.try("a pod of an administrator's", a.admin, a.write(a.t, privileged, "x", true), podsPolicy)
	a.add("a pod of a generated name", with(with(privileged, nil, "metadata", "name"), "x-", "metadata", "generateName"), podsPolicy)
	a.add("a pod elsewhere", with(pod, "default", "metadata", "namespace"), byRights)
	serviceAccount := fields{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": fields{"name": "default", "namespace": "default"}}
	a.must(a.t, a.admin, a.write(a.t, serviceAccount, "x", false))
	elsewhere := with(with(privileged, "default", "metadata", "namespace"), "default", "spec", "serviceAccountName")
	a.try("an administrator's pod elsewhere", a.admin, a.write(a.t, elsewhere, "x", true), allowed)
	a.add("a restarted init container", with(pod, []any{fields{"name": "i", "image": "i", "restartPolicy": "Always"}}, "spec", "initContainers"), podsPolicy)
	running := "/api/v1/namespaces/%s/pods/" + a.companion()["metadata"].(fields)["name"].(string)
	annotation := func(key string) string { return text(a.t, fields{"metadata": fields{"annotations": fields{key: "x"}}}) }
	a.try("a running pod made a mirror", a.operator, call(http.MethodPatch, running, annotation("kubernetes.io/config.mirror")), validation)
	a.try("a running pod's AppArmor", a.operator, call(http.MethodPatch, running, annotation("container.apparmor.security.beta.kubernetes.io/kms-health")), validation)
	a.try("a running pod's capabilities", a.operator, request{http.MethodPatch, expand(running, a.home) + "?dryRun=All", strategicType,
		text(a.t, fields{"spec": fields{"containers": []any{fields{"name": "kms-health", "securityContext": fields{"capabilities": fields{"add": []any{"SYS_ADMIN"}}}}}}})}, validation)
	for _, subresource := range []string{"ephemeralcontainers", "resize", "status"} {
		a.try("a running pod's "+subresource, a.operator, call(http.MethodPatch, running+"/"+subresource, "{}"), byRights)
	}
	for _, subresource := range []string{"exec", "attach", "portforward", "binding", "eviction"} {
		a.try("a running pod's "+subresource, a.operator, call(http.MethodPost, running+"/"+subresource, "{}"), byRights)
	}
	a.try("the namespace's label", a.operator, call(http.MethodPatch, "/api/v1/namespaces/"+a.home, text(a.t, fields{"metadata": fields{"labels": fields{"kmshealth.openshift.io/pods": nil}}})), byRights)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, name := range []string{"kms-health-reporter", "kms-health-reporter-rights", "kms-health-pods"} {
			a.try(kind+" "+name+" deleted", a.operator, call(http.MethodDelete, paths[kind]+name, ""), byRights)
			a.try(kind+" "+name+" changed", a.operator, call(http.MethodPatch, paths[kind]+name, `{"spec":{}}`), byRights)
		}
	}
	role := a.identity()["ClusterRole"]
	a.add("a ClusterRole of another name", with(role, "other", "metadata", "name"), byRights)
	a.add("a right to all statuses", with(role, []any{}, "rules", 0, "resourceNames"), escalation)
	for _, account := range []string{operatorAccount, "default", account} {
		a.try("a token of "+account, a.operator, call(http.MethodPost, "/api/v1/namespaces/%s/serviceaccounts/"+account+"/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`),
			byRights)
	}
	for _, who := range []*caller{a.operator, a.bound, a.minted} {
		a.try("Secrets", who, call(http.MethodGet, "/api/v1/namespaces/%s/secrets", ""), byRights)
		a.try("Secrets of API servers", who, call(http.MethodGet, "/api/v1/namespaces/"+a.servers+"/secrets", ""), byRights)
		a.try("the status by PUT", who, request{method: http.MethodPut, path: s.status(), body: s.object(a.t, fields{})}, byRights)
		a.try("the status of another object", who, s.merge(a.t, strings.Replace(s.status(), s.of().Name+"/status", "other/status", 1), fields{}), byRights)
		a.try("a manager of 129 bytes", who, s.apply(a.t, "kms-health-reporter-"+strings.Repeat("a", 109), fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[]")}}), validation)
		a.try("all pods deleted", who, call(http.MethodDelete, "/api/v1/namespaces/%s/pods", ""), byRights)
	}
}
