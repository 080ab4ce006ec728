//go:build integration

package identity

import (
	"net/http"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// identity returns the reporters' RBAC objects, by kind.
func (a *attempts) identity() map[string]fields {
	all := map[string]fields{}
	for _, o := range a.input(target, "CompanionPod").Identity() {
		all[o.GetKind()] = o.Object
	}
	return all
}

// ownRole tries rules of the Role with which the operator reads encryption configs.
func (a *attempts) ownRole() {
	if !a.openShift() {
		return // the operator has no such Role
	}
	in := a.input(a.server, v1alpha1.ModeSidecar)
	in.Target.EncryptionConfig = v1alpha1.EncryptionConfig{Secret: "encryption-config"}
	role := in.SecretRole([]string{"7", "8", "123"}).Object
	a.add("without a revision", in.SecretRole(nil).Object, allowed)
	a.must(a.t, a.operator, a.write(a.t, role, operatorManager, false))
	secrets := expand(paths["Secret"], a.servers)
	a.must(a.t, a.operator, request{method: http.MethodGet, path: secrets + "?fieldSelector=metadata.name%3Dencryption-config"})
	for path, want := range map[string]string{
		secrets + "encryption-config-123": "404", secrets: byRights, secrets + "encryption-config-9": byRights,
		expand(paths["Secret"], "openshift-kube-apiserver") + "encryption-config": byRights,
	} {
		a.try("GET "+path, a.operator, request{method: http.MethodGet, path: path}, want)
	}
	a.try("PATCH", a.operator, request{http.MethodPatch, secrets + "encryption-config", mergeType, "{}"}, byRights)
	a.try("DELETE", a.operator, request{method: http.MethodDelete, path: secrets + "encryption-config"}, byRights)
	const about, reads, names = rolesPolicy + ": is about Secrets", rolesPolicy + ": lets read", rolesPolicy + ": names the Secrets"
	named := []any{"encryption-config"}
	good := rule("", "secrets", named, "get", "list", "watch")
	for want, bad := range map[string]map[string][]any{
		about: {
			"everything": {rule("*", "*", nil, "*")}, "everything, named": {rule("*", "*", named, "*")},
			"all resources": {rule("", "*", named, "get")}, "ConfigMaps": {rule("", "configmaps", named, "get")},
			"a subresource": {rule("", "secrets/status", named, "get")},
			"two resources": {with(good, "pods", "resources")}, "two groups": {with(good, "apps", "apiGroups")},
			"another group": {rule("apps", "secrets", named, "get")}, "all groups": {rule("*", "secrets", named, "get")},
			"a good and a bad one": {good, rule("", "pods", nil, "create")}, "pods/exec": {good, rule("", "pods/exec", nil, "create")},
			"roles": {rule("rbac.authorization.k8s.io", "roles", named, "escalate")},
		},
		names: {
			"all Secrets": {rule("", "secrets", nil, "get")}, "no names": {rule("", "secrets", []any{}, "get")},
			"an empty name": {rule("", "secrets", []any{""}, "get")}, "another Secret": {rule("", "secrets", []any{"installer-sa-token"}, "get")},
			"one among good ones": {with(good, "etcd-client", "resourceNames")},
			"a good prefix":       {rule("", "secrets", []any{"encryption-config-7x"}, "get")},
			"a good suffix":       {rule("", "secrets", []any{"my-encryption-config"}, "get")},
			"lines":               {rule("", "secrets", []any{"encryption-config\netcd"}, "get")},
		},
		reads: {
			"writing":  {rule("", "secrets", named, "get", "patch")},
			"deleting": {rule("", "secrets", named, "delete")}, "all verbs": {rule("", "secrets", named, "*")},
		},
	} {
		for what, rules := range bad {
			for _, who := range []*caller{a.operator, a.admin} { // the policy also applies to administrators
				a.try(what, who, a.write(a.t, with(role, rules, "rules"), operatorManager, true), want)
			}
		}
	}
	other := with(role, "other", "metadata", "name")
	for what, o := range map[string]fields{
		"a Role of another name": other, "a Role elsewhere": with(role, "kube-system", "metadata", "namespace"),
		"its Role in its namespace": with(with(role, operatorAccount, "metadata", "name"), a.home, "metadata", "namespace"),
	} {
		a.add(what, o, byRights) // no right to escalate there
	}
	a.try("another Role", a.admin, a.write(a.t, with(other, []any{rule("", "pods", nil, "create")}, "rules"), "x", true), allowed)
}

// file returns a ConfigMap.
func (a *attempts) file(namespace, name string) fields {
	return fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": name, "namespace": namespace}, "data": fields{"config.yaml": "x"}}
}

// token returns the Secret with the token of the reporters of an API server.
func (a *attempts) token(kind string) fields {
	return fields{"apiVersion": "v1", "kind": "Secret", "type": kind,
		"metadata": fields{"name": contract.ReporterName(a.server) + "-token", "namespace": a.servers}}
}

// files tries ConfigMaps and Secrets of others.
func (a *attempts) files() {
	for _, name := range []string{"config", "kube-apiserver-pod", "kms-health-operator-config", "kms-health-reporter"} {
		for _, namespace := range []string{a.servers, a.home} {
			a.add("ConfigMap "+namespace+"/"+name, a.file(namespace, name), configMapPolicy+": and no others")
		}
	}
	for _, of := range []string{"installer-sa", "default", "x-" + account, account} { // a controller would put its token there
		o := with(a.token("kubernetes.io/service-account-token"), of, "metadata", "annotations", "kubernetes.io/service-account.name")
		a.add("a token of "+of, o, secretPolicy+": are Opaque")
	}
	// A label of another client stays, and does not block later writes. If a webhook adds a label to a write of the
	// operator, the message names it.
	for policy, o := range map[string]fields{configMapPolicy: a.file(a.servers, contract.ReporterName(a.server)+"-0123456789"), secretPolicy: a.token("Opaque")} {
		labelled := with(o, "monday", "metadata", "labels", "velero.io/restore-name")
		a.try("a label of another client", a.admin, a.write(a.t, labelled, "velero", false), allowed)
		a.add("an object with another client's label", with(o, "1", "metadata", "annotations", "changed"), allowed)
		labels := fields{"velero.io/restore-name": "tuesday", "team": "a"}
		a.add("labels changed", with(o, labels, "metadata", "labels"), policy+": from what adds team")
	}
	// A deletion has no object that the policy could check, only the old one.
	a.try("a third-party ConfigMap", a.admin, a.write(a.t, a.file(a.servers, "config"), "x", false), allowed)
	path := expand(paths["ConfigMap"], a.servers) + "config"
	a.try("a third-party ConfigMap deleted", a.operator, request{method: http.MethodDelete, path: path}, configMapPolicy+": and no others")
}
