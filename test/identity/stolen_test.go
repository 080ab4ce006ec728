//go:build integration

package identity

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

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
	rolesPolicy     = "policy kms-health-operator-roles"
	caPolicy        = "policy kms-health-operator-ca"
	validation      = "validation" // by kube-apiserver or by the CRD
	byRights        = "RBAC"
	escalation      = "RBAC, escalation"
	plugin          = "admission plugin"
)

// attempt is a request with a stolen token. want is the layer that must refuse it, and after ": " a part of its message.
type attempt struct {
	what string
	who  *caller
	try  request
	want string
}

// attempts collects attempts on an installation.
type attempts struct {
	*installed
	t            *testing.T
	pod, sidecar fields // objects that the operator may write
	all          []attempt
}

// try adds an attempt.
func (a *attempts) try(what string, who *caller, r request, want string) {
	a.all = append(a.all, attempt{what, who, r, want})
}

// add adds the operator's attempt to write an object.
func (a *attempts) add(what string, o fields, want string) {
	a.try(what, a.operator, a.write(a.t, o, operatorManager, true), want)
}

// Each attempt is an allowed request with one change.
func TestStolenTokensMayWriteNoMoreThanTheThreatModelNames(t *testing.T) {
	for _, overlay := range []string{manifests.OpenShift, manifests.Kubernetes} {
		t.Run(overlay, func(t *testing.T) {
			a := &attempts{installed: newInstalled(t, overlay)}
			a.pod, a.sidecar = with(a.companion(), "another", "metadata", "name"), a.deployment(t)
			by := map[string]int{}
			for _, group := range []struct {
				name    string
				collect func(*attempts)
			}{
				{"a and b: times and lengths of conditions", (*attempts).conditions},
				{"c: labels", (*attempts).labels},
				{"d: field managers", (*attempts).managers},
				{"e: reporters' rights", (*attempts).rights},
				{"the operator's own Role", (*attempts).ownRole},
				{"ConfigMaps and Secrets", (*attempts).files},
				{"f and others: pods", (*attempts).pods},
				{"folders of the node", (*attempts).folders},
				{"profiles of pods", (*attempts).profiles},
				{"capabilities", (*attempts).capabilities},
				{"writable mounts", (*attempts).mounts},
				{"h: a Deployment", (*attempts).deployments},
				{"parts of a Deployment", (*attempts).deploymentParts},
				{"h: a Deployment with the sidecar", (*attempts).injected},
				{"the operator's Deployment", (*attempts).ownDeployment},
				{"other users, names and subresources", (*attempts).others},
				{"g: KMSHealth", (*attempts).kmsHealths}, // last, since it deletes the object
			} {
				t.Run(group.name, func(t *testing.T) {
					a.t, a.all = t, nil
					group.collect(a)
					for _, one := range a.all {
						got := one.who.do(t, one.try)
						layer := got.layer()
						want, why, _ := strings.Cut(one.want, ": ")
						if by[layer]++; layer != want || !strings.Contains(got.message, why) {
							t.Errorf("%s, %s: %s, want %s: %.300s", one.what, one.who.name, layer, one.want, got.message)
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

// dry adds an attempt as a dry run.
func (a *attempts) dry(what string, who *caller, r request, want string) {
	a.try(what, who, r.dry(), want)
}

func (a *attempts) conditions() {
	s, own := a.operatorResource(), contract.ConditionManager("node-a")
	for _, at := range slices.Sorted(maps.Keys(times)) {
		want := func(policy string) string {
			if times[at] == "" {
				return policy
			}
			return times[at]
		}
		what, of := fmt.Sprintf("lastTransitionTime %.25q of %d bytes", at, len(at)), func(kind string) fields { return with(condition(kind, "[]"), at, "lastTransitionTime") }
		for _, who := range []*caller{a.bound, a.minted} {
			a.dry(what, who, s.apply(a.t, own, fields{"conditions": []any{of(contract.ConditionType("node-a"))}}), want(reportsPolicy))
		}
		a.dry(what, a.operator, s.apply(a.t, operatorManager, fields{"conditions": []any{of(contract.PluginsDegraded)}}), want(statusPolicy))
		if a.openShift() {
			a.dry(what+", of a ClusterOperator", a.operator, clusterOperator(a.t, of("Degraded")), want(statusPolicy))
		}
	}
	for key, lengths := range map[string][2]int{"message": {32768, 32769}, "reason": {1024, 1025}} {
		for i, want := range []string{allowed, statusPolicy} {
			long := with(condition(contract.PluginsDegraded, "[]"), strings.Repeat("x", lengths[i]), key)
			a.dry(fmt.Sprintf("%s of %d bytes", key, lengths[i]), a.operator, s.apply(a.t, operatorManager, fields{"conditions": []any{long}}), want)
		}
	}
	long := contract.ConditionManager(strings.Repeat("a", 120)) // the beginning of the node's name, and a hash
	for n, want := range map[int]string{253: allowed, 254: reportsPolicy} {
		kind := contract.ConditionType(strings.Repeat("a", n))
		a.dry(fmt.Sprintf("a node's name of %d bytes", n), a.minted, s.apply(a.t, long, fields{"conditions": []any{condition(kind, "[]")}}), want)
	}
}

// clusterOperator returns an apply of a condition of ClusterOperator/kms-health.
func clusterOperator(t *testing.T, condition fields) request {
	t.Helper()
	return request{http.MethodPatch, "/apis/config.openshift.io/v1/clusteroperators/kms-health/status?force=true&fieldManager=" + operatorManager, applyType,
		text(t, fields{"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": fields{"name": "kms-health"},
			"status": fields{"conditions": []any{condition}}})}
}

// labels tries labels by which other controllers select objects.
func (a *attempts) labels() {
	role, binding := a.identity()["ClusterRole"], a.identity()["ClusterRoleBinding"]
	file := with(a.file(a.home, account+"-0123456789"), role["metadata"].(fields)["labels"], "metadata", "labels")
	ofServer := with(role, a.server, "metadata", "labels", contract.APIServerLabel)["metadata"].(fields)["labels"]
	token := with(a.token("Opaque"), ofServer, "metadata", "labels")
	for policy, objects := range map[string][]fields{rightsPolicy: {role, binding}, configMapPolicy: {file, a.identity()["ServiceAccount"]}, secretPolicy: {token}} {
		for _, o := range objects {
			kind := o["kind"].(string)
			a.add(kind+" as it is", o, allowed)
			a.add(kind+" without labels", with(o, nil, "metadata", "labels"), allowed)
			annotated := map[bool]string{true: policy, false: allowed}[kind == "ServiceAccount"] // as OpenShift's OAuth clients are
			a.add(kind+" with its annotation", with(o, "{}", "metadata", "annotations", contract.StateAnnotation), annotated)
			for _, label := range []string{
				"rbac.authorization.k8s.io/aggregate-to-view", "rbac.authorization.k8s.io/aggregate-to-admin", "authorization.openshift.io/aggregate-to-basic-user",
				"grafana_dashboard", "olm.opgroup.permissions/aggregate-to-admin", "app.kubernetes.io/component", "kmshealth.openshift.io/mode",
			} {
				a.add(kind+" with label "+label, with(o, "true", "metadata", "labels", label), policy)
			}
			for _, label := range []string{"app.kubernetes.io/name", contract.ManagedByLabel} {
				a.add(kind+" with another "+label, with(o, "other", "metadata", "labels", label), policy)
			}
		}
	}
	a.add("ClusterRole that aggregates others", with(role, []any{fields{"matchLabels": fields{"a": "b"}}}, "aggregationRule", "clusterRoleSelectors"), escalation)
}

func (a *attempts) managers() {
	s := a.operatorResource()
	for _, who := range []*caller{a.bound, a.minted} {
		a.dry("nothing owned, as that of node-x", who, s.apply(a.t, contract.ConditionManager("node-x"), fields{}), reportsPolicy)
		a.dry("own condition", who, s.condition(a.t, "node-a"), allowed)
		a.dry("own condition, as another manager of the node", who, s.apply(a.t, contract.ConditionManager("node-a")+"-0123", fields{"conditions": []any{condition(contract.ConditionType("node-a"), "[]")}}), reportsPolicy)
	}
	// The names of two nodes begin with the same 91 bytes. A manager has only that many bytes of the name.
	long := strings.Repeat("a", 120)
	both := fields{"conditions": []any{condition(contract.ConditionType(long+"b"), "[]"), condition(contract.ConditionType(long+"c"), "[]")}}
	a.dry("two nodes' conditions, as one manager", a.minted, s.apply(a.t, contract.ConditionManager(long), both), reportsPolicy)
	for _, manager := range []string{"x", "kube-controller-manager", contract.ConditionManager("node-a")} {
		a.dry("own condition of the operator, as "+manager, a.operator, s.apply(a.t, manager, fields{"conditions": []any{condition(contract.PluginsDegraded, "")}}), statusPolicy)
	}
}

// rights tries other rights for reporters, and other subjects.
func (a *attempts) rights() {
	role, binding := a.identity()["ClusterRole"], a.identity()["ClusterRoleBinding"]
	in := map[string]string{a.home: allowed, a.servers: allowed, "default": rightsPolicy, "kube-public": rightsPolicy, "third-party": rightsPolicy, "": validation}
	if a.openShift() {
		// The role is the one for kube-apiserver, and each API server has one namespace.
		in["kms-health"], in["kube-system"], in["openshift-kube-apiserver"] = rightsPolicy, rightsPolicy, allowed
		in[a.servers], in["openshift-oauth-apiserver"] = rightsPolicy, rightsPolicy
	} else {
		in["openshift-kms-health"], in["openshift-apiserver"] = rightsPolicy, rightsPolicy
	}
	for _, namespace := range slices.Sorted(maps.Keys(in)) {
		o := with(binding, namespace, "subjects", 0, "namespace")
		a.add("ServiceAccount of namespace "+namespace, o, in[namespace])
	}
	for _, name := range []string{"default", operatorAccount, "kms-health-reporter", "x-" + account} {
		o := with(binding, name, "subjects", 0, "name")
		a.add("ServiceAccount "+name, o, rightsPolicy+": has as subjects")
	}
	for kind, name := range map[string]string{"User": "third-party", "Group": "system:authenticated"} {
		subject := fields{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
		a.add(kind+" "+name, with(binding, []any{subject}, "subjects"), rightsPolicy+": has as subjects")
	}
	a.add("another role", with(binding, "cluster-admin", "roleRef", "name"), escalation)
	s := a.operatorResource().of()
	for what, r := range map[string]fields{
		"Secrets": rule("", "secrets", nil, "get"), "everything": rule("*", "*", nil, "*"),
		"another SCC":       rule("security.openshift.io", "securitycontextconstraints", []any{"privileged"}, "use"),
		"another object":    rule(s.GVR().Group, s.Plural+"/status", []any{"other"}, "patch"),
		"a status, to read": rule(s.GVR().Group, s.Plural+"/status", []any{s.Name}, "get"),
	} {
		a.add(what, with(role, []any{r}, "rules"), escalation)
	}
	const nothingElse = rightsPolicy + ": and nothing else"
	a.add("writing of bindings", with(role, []any{rule("rbac.authorization.k8s.io", "clusterrolebindings", []any{account}, "patch")}, "rules"), nothingElse)
	a.add("token reviews", with(role, []any{rule("authentication.k8s.io", "tokenreviews", nil, "create")}, "rules"), nothingElse)
	a.add("listing of objects", with(role, []any{rule(s.GVR().Group, s.Plural, []any{s.Name}, "list")}, "rules"), nothingElse)
	for _, verb := range []string{"patch", "delete"} { // rights that the operator has on a KMSHealth, and for that alone
		want := map[bool]string{true: escalation, false: nothingElse}[a.openShift()]
		a.add(verb+" of the object", with(role, []any{rule(s.GVR().Group, s.Plural, []any{s.Name}, verb)}, "rules"), want)
	}
	reads := rule(s.GVR().Group, s.Plural+"/status", []any{s.Name}, "get")
	a.try("reading of the status, by an administrator", a.admin, a.write(a.t, with(role, []any{reads}, "rules"), "x", true), nothingElse)
	if !a.openShift() { // each API server has an object of its own
		other := with(with(role, "kms-health-reporter-other", "metadata", "name"), []any{rule(s.GVR().Group, s.Plural+"/status", []any{s.Name}, "patch")}, "rules")
		a.try("another target's status, by an administrator", a.admin, a.write(a.t, other, "x", true), nothingElse)
	}
}

// rule returns a rule of a role.
func rule(group, resource string, names []any, verbs ...any) fields {
	r := fields{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
	if names != nil {
		r["resourceNames"] = names
	}
	return r
}

func (a *attempts) kmsHealths() {
	if a.openShift() {
		return
	}
	s := kmsHealth
	o := a.input(target, "CompanionPod").Destination().Object
	forged := func(manager string) []any {
		return []any{fields{"manager": manager, "operation": "Apply", "subresource": "status", "apiVersion": "kmshealth.openshift.io/v1alpha1",
			"time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields{"f:status": fields{"f:conditions": fields{`k:{"type":"KMSHealthReporter_node-a"}`: fields{".": fields{}}}}}}}
	}
	main := func(what string, metadata fields) {
		a.dry(what, a.operator, managedBy(operatorManager, s.merge(a.t, s.path(), fields{"metadata": metadata})), statusPolicy)
	}
	a.add("as it is", o, allowed)
	main("managedFields cleared", fields{"managedFields": []any{fields{}}})
	for _, manager := range []string{"third-party", contract.ConditionManager("node-b"), operatorManager} {
		main("managedFields forged, of "+manager, fields{"managedFields": forged(manager)})
	}
	main("a label", fields{"labels": fields{"a": "b"}})
	main("a finalizer", fields{"finalizers": []any{"example.com/x"}})
	create := func(what string, o fields, want string) {
		r := a.write(a.t, o, operatorManager, true)
		if o["metadata"].(fields)["managedFields"] != nil { // an apply must not have managedFields
			r.method, r.contentType, r.path = http.MethodPost, "", collection(s)+"?dryRun=All&fieldManager="+operatorManager
		}
		a.try("created "+what, a.operator, r, want)
	}
	a.try("deleted", a.operator, request{method: http.MethodDelete, path: s.path()}, allowed)
	create("as it is", o, allowed)
	create("with a label", with(o, "x", "metadata", "labels", "other"), statusPolicy)
	create("with an annotation", with(o, "x", "metadata", "annotations", "other"), statusPolicy)
	create("with a finalizer", with(o, []any{"example.com/x"}, "metadata", "finalizers"), statusPolicy)
	create("with an owner", with(o, []any{fields{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}}, "metadata", "ownerReferences"), statusPolicy)
	create("with forged managedFields", with(o, forged("third-party"), "metadata", "managedFields"), byRights) // the right to create names its objects, and a POST has no name
	create("of another name", with(o, "other", "metadata", "name"), byRights)
}
