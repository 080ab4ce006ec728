//go:build integration

package manifests

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// question is a question to the authorizer. what is RESOURCE[.GROUP][/SUBRESOURCE], or a path.
type question struct {
	verbs     string // separated by spaces
	what      string
	namespace string
	name      string
}

func (q question) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", q.verbs, q.what, q.namespace, q.name))
}

const (
	kas, oas, oauth = "openshift-kube-apiserver", "openshift-apiserver", "openshift-oauth-apiserver"
	reporter        = "kms-health-reporter-kube-apiserver"
)

// rights are the operator's rights as shipped, and similar rights that it must not have.
var rights = []struct {
	question
	may bool
}{
	// The operator's namespace.
	{question{"list watch create patch delete", "pods", home, "any"}, true},
	{question{"get update deletecollection", "pods", home, "any"}, false},
	{question{"create get", "pods/exec", home, "any"}, false},
	{question{"create get", "pods/attach", home, "any"}, false},
	{question{"get", "pods/log", home, "any"}, false},
	{question{"create", "pods/portforward", home, "any"}, false},
	{question{"patch update", "pods/ephemeralcontainers", home, "any"}, false},
	{question{"list watch", "configmaps", home, ""}, true},
	{question{"create patch delete", "configmaps", home, reporter + "-0123456789"}, true}, // a policy limits the names
	{question{"update get deletecollection", "configmaps", home, "kms-health-operator-config"}, false},
	{question{"create patch delete", "serviceaccounts", home, "kms-health-reporter-oauth-apiserver"}, true},
	{question{"patch delete", "serviceaccounts", home, "kms-health-operator"}, false},
	{question{"create", "serviceaccounts/token", home, reporter}, false},
	{question{"create", "serviceaccounts/token", home, "kms-health-operator"}, false},
	{question{"impersonate", "serviceaccounts", home, reporter}, false},
	{question{"list watch", "daemonsets.apps", home, ""}, true},
	{question{"create patch delete", "daemonsets.apps", home, reporter}, true},
	{question{"create patch", "daemonsets.apps", home, "other"}, false},
	{question{"create patch update", "deployments.apps", home, "kms-health-operator"}, false},
	{question{"create", "leases.coordination.k8s.io", home, ""}, true},
	{question{"get update", "leases.coordination.k8s.io", home, "kms-health-operator"}, true},
	{question{"get update list", "leases.coordination.k8s.io", home, "other"}, false},
	{question{"list watch create patch", "events", home, ""}, true},
	{question{"get list watch create patch update delete", "events", kas, ""}, false},
	{question{"get list watch create patch update delete", "secrets", home, ""}, false},
	{question{"get list watch create patch update delete", "secrets", home, "kms-health-operator-serving"}, false},
	{question{"create patch update escalate bind", "roles.rbac.authorization.k8s.io", home, "kms-health-operator"}, false},
	{question{"create patch update", "rolebindings.rbac.authorization.k8s.io", home, "kms-health-operator"}, false},
	{question{"patch update delete", "networkpolicies.networking.k8s.io", home, "default-deny"}, false},

	// Nodes, which the roll-up reads, and the ClusterOperator.
	{question{"patch update delete create", "nodes", "", "master-0"}, false},
	{question{"patch", "nodes/status", "", "master-0"}, false},
	{question{"get", "clusteroperators.config.openshift.io", "", "kms-health"}, true},
	{question{"patch", "clusteroperators.config.openshift.io/status", "", "kms-health"}, true},
	{question{"patch update", "clusteroperators.config.openshift.io/status", "", "kube-apiserver"}, false},
	{question{"list watch patch create update delete", "clusteroperators.config.openshift.io", "", "kms-health"}, false},

	// The namespaces of API servers.
	{question{"list watch", "pods", kas, ""}, true},
	{question{"get create patch update delete", "pods", kas, "any"}, false},
	{question{"create get", "pods/exec", kas, "any"}, false},
	{question{"get", "pods/log", oas, "any"}, false},
	{question{"list watch create patch delete escalate", "roles.rbac.authorization.k8s.io", kas, "kms-health-operator-kube-apiserver"}, true},
	{question{"list watch create patch delete escalate", "roles.rbac.authorization.k8s.io", oas, "kms-health-operator-openshift-apiserver"}, true},
	{question{"list watch create patch delete escalate", "roles.rbac.authorization.k8s.io", oauth, "kms-health-operator-oauth-apiserver"}, true},
	{question{"bind update get", "roles.rbac.authorization.k8s.io", kas, "kms-health-operator-kube-apiserver"}, false},
	{question{"create patch escalate", "roles.rbac.authorization.k8s.io", kas, "kms-health-operator-oauth-apiserver"}, false},
	{question{"create patch escalate bind", "roles.rbac.authorization.k8s.io", kas, "kms-health-operator"}, false},
	{question{"escalate create patch", "roles.rbac.authorization.k8s.io", "kube-system", "kms-health-operator-kube-apiserver"}, false},
	{question{"create patch update delete", "rolebindings.rbac.authorization.k8s.io", kas, "kms-health-operator-kube-apiserver"}, false},
	{question{"get list watch", "secrets", kas, ""}, false},
	{question{"get list watch", "secrets", kas, "encryption-config"}, false}, // only after the operator created the Role
	{question{"get create patch delete", "secrets", kas, reporter + "-token"}, false},
	{question{"get list watch create patch delete", "configmaps", kas, reporter}, false},
	{question{"get list create patch delete", "serviceaccounts", kas, reporter}, false},
	{question{"create", "serviceaccounts/token", kas, reporter}, false},
	{question{"get list patch", "deployments.apps", oas, "apiserver"}, false},
	{question{"list watch", "pods", "kube-system", ""}, false},
	{question{"list watch", "pods", "", ""}, false},

	// Cluster-scoped resources.
	{question{"list watch", "kubeapiservers.operator.openshift.io", "", "cluster"}, true},
	{question{"list watch", "authentications.operator.openshift.io", "", "cluster"}, true},
	{question{"patch", "openshiftapiservers.operator.openshift.io/status", "", "cluster"}, true},
	{question{"patch update", "kubeapiservers.operator.openshift.io", "", "cluster"}, false},
	{question{"update", "kubeapiservers.operator.openshift.io/status", "", "cluster"}, false},
	{question{"patch", "consoles.operator.openshift.io/status", "", "cluster"}, false},
	{question{"list watch", "apiservers.config.openshift.io", "", "cluster"}, true},
	{question{"list watch", "infrastructures.config.openshift.io", "", "cluster"}, true},
	{question{"patch update", "apiservers.config.openshift.io", "", "cluster"}, false},
	{question{"list", "oauths.config.openshift.io", "", "cluster"}, false},
	{question{"list watch", "namespaces", "", kas}, true},
	{question{"list watch", "namespaces", "", ""}, false},
	{question{"patch update delete", "namespaces", "", home}, false},
	{question{"list watch", "clusterroles.rbac.authorization.k8s.io", "", ""}, true},
	{question{"create patch delete", "clusterroles.rbac.authorization.k8s.io", "", reporter}, true},
	{question{"create patch delete", "clusterrolebindings.rbac.authorization.k8s.io", "", reporter}, true},
	{question{"escalate bind update", "clusterroles.rbac.authorization.k8s.io", "", reporter}, false},
	{question{"create patch update delete bind escalate", "clusterroles.rbac.authorization.k8s.io", "", "kms-health-operator"}, false},
	{question{"create patch bind escalate", "clusterroles.rbac.authorization.k8s.io", "", "cluster-admin"}, false},
	{question{"create patch update delete", "clusterrolebindings.rbac.authorization.k8s.io", "", "kms-health-operator"}, false},
	{question{"list watch", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "kms-health-reporter"}, true},
	{question{"get", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "kms-health-reporter"}, false},
	{question{"list watch", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "kms-health-reporter"}, true},
	{question{"patch update delete create", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "kms-health-reporter"}, false},
	{question{"patch update delete create", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "kms-health-reporter"}, false},
	{question{"patch update delete create", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "kms-health-operator-roles"}, false},
	{question{"patch update delete create", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "kms-health-pods"}, false},
	{question{"create patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "any"}, false},
	{question{"use", "securitycontextconstraints.security.openshift.io", "", "kms-health-reporter"}, true},
	{question{"use", "securitycontextconstraints.security.openshift.io", "", "privileged"}, false},
	{question{"create patch update", "securitycontextconstraints.security.openshift.io", "", "kms-health-reporter"}, false},
	{question{"get create", "nodes/proxy", "", "any"}, false},
	{question{"create", "tokenreviews.authentication.k8s.io", "", ""}, true},
	{question{"create", "subjectaccessreviews.authorization.k8s.io", "", ""}, true},
	{question{"get list create delete", "certificatesigningrequests.certificates.k8s.io", "", "any"}, false},
	{question{"update patch", "certificatesigningrequests.certificates.k8s.io/approval", "", "any"}, false},
	{question{"approve sign", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"}, false},
	{question{"impersonate", "users", "", "system:admin"}, false},
	{question{"impersonate", "groups", "", "system:masters"}, false},
	{question{"get", "/metrics", "", ""}, false},
}

func TestOperatorMayDoThisAndNothingElse(t *testing.T) {
	for _, r := range rights {
		t.Run(r.String(), func(t *testing.T) { openshift.expect(t, r.question, r.may) })
	}
}

func TestComponentsAddThisAndNothingElse(t *testing.T) {
	openshift.with(t, "deployment")
	const secrets = "get create patch delete"
	for _, q := range []question{
		{secrets, "secrets", kas, reporter + "-token"},
		{secrets, "secrets", oauth, "kms-health-reporter-oauth-apiserver-token"},
		{"create", "serviceaccounts/token", kas, reporter},
		{"get create patch delete", "serviceaccounts", kas, reporter},
		{"create patch delete", "configmaps", kas, reporter + "-0123456789"}, // a policy limits the names
		{"list watch patch", "deployments.apps", oas, "apiserver"},
	} {
		openshift.expect(t, q, true)
	}
	for _, q := range []question{
		{"list watch", "secrets", kas, ""},
		{"list watch update", "secrets", kas, reporter + "-token"},
		{"get patch", "secrets", kas, "encryption-config"},
		{"create", "serviceaccounts/token", kas, "installer-sa"},
		{"get patch", "serviceaccounts", kas, "installer-sa"},
		{"create update delete", "deployments.apps", oas, "apiserver"},
		{"patch", "deployments.apps", oas, "other"},
		{"patch list", "deployments.apps", kas, "apiserver"},
		{"create patch", "pods", kas, "any"},
		{"create", "certificatesigningrequests.certificates.k8s.io", "", ""},
	} {
		openshift.expect(t, q, false)
	}
	for _, r := range rights {
		if r.may {
			openshift.expect(t, r.question, true)
		}
	}
}

func TestOperatorOfAPlainControlPlaneReadsNoSecretAndKeepsNoRole(t *testing.T) {
	const home = "kms-health"
	for _, q := range []question{
		{"list watch", "pods", "kube-system", ""},
		{"list watch", "roles.rbac.authorization.k8s.io", "kube-system", "kms-health-operator-kube-apiserver"},
		{"list watch create patch delete", "pods", home, "any"},
		{"create patch delete", "daemonsets.apps", home, reporter},
		{"patch", "kmshealths.kmshealth.openshift.io/status", "", "kube-apiserver"},
		{"list watch create patch delete", "kmshealths.kmshealth.openshift.io", "", "kube-apiserver"},
	} {
		plain.expect(t, q, true)
	}
	for _, q := range []question{
		{"create patch escalate delete bind", "roles.rbac.authorization.k8s.io", "kube-system", "kms-health-operator-kube-apiserver"},
		{"get list watch create patch", "secrets", "kube-system", ""},
		{"get list watch create patch", "secrets", home, ""},
		{"create patch", "configmaps", "kube-system", reporter},
		{"use", "securitycontextconstraints.security.openshift.io", "", "kms-health-reporter"},
		{"list watch", "apiservers.config.openshift.io", "", "cluster"},
		{"list watch", "infrastructures.config.openshift.io", "", "cluster"},
		{"list watch", "kubeapiservers.operator.openshift.io", "", "cluster"},
		{"patch", "kubeapiservers.operator.openshift.io/status", "", "cluster"},
		{"list patch delete", "kmshealths.kmshealth.openshift.io", "", "other"},
		{"patch", "kmshealths.kmshealth.openshift.io/status", "", "other"},
		{"get update deletecollection", "kmshealths.kmshealth.openshift.io", "", "kube-apiserver"},
		{"create patch update delete", "customresourcedefinitions.apiextensions.k8s.io", "", "kmshealths.kmshealth.openshift.io"},
		{"create patch delete", "clusterroles.rbac.authorization.k8s.io", "", "kms-health-reporter-oauth-apiserver"},
	} {
		plain.expect(t, q, false)
	}
}

// expect repeats the question until the answer is as expected: the authorizer reads roles from a cache.
func (s *cluster) expect(t *testing.T, q question, may bool) {
	t.Helper()
	for _, verb := range strings.Fields(q.verbs) {
		eventually(t, fmt.Sprintf("%s %s: %t", verb, q, may), func() error {
			answer, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), q.review(s.overlay, verb), metav1.CreateOptions{})
			if err == nil && answer.Status.Allowed != may {
				err = fmt.Errorf("allowed %t, %s", answer.Status.Allowed, answer.Status.Reason)
			}
			return err
		})
	}
}

func (q question) review(overlay, verb string) *authorizationv1.SubjectAccessReview {
	namespace := install.Namespace(overlay)
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   controlplane.ServiceAccountUser(namespace, install.ServiceAccount),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	if strings.HasPrefix(q.what, "/") {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: q.what, Verb: verb}
		return &authorizationv1.SubjectAccessReview{Spec: spec}
	}
	what, subresource, _ := strings.Cut(q.what, "/")
	resource, group, _ := strings.Cut(what, ".")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: q.namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: q.name,
	}
	return &authorizationv1.SubjectAccessReview{Spec: spec}
}

// Other ServiceAccounts share a priority level, in which those that list much keep a report waiting for longer than a
// write may take.
func TestRequestsAreNotQueuedWithThoseOfOtherServiceAccounts(t *testing.T) {
	for _, s := range []*cluster{openshift, plain} {
		schema, err := s.kube.FlowcontrolV1().FlowSchemas().Get(t.Context(), "kms-health", metav1.GetOptions{})
		must.Succeed(t, err)
		home := install.Namespace(s.overlay)
		for user, want := range map[string]bool{
			"system:serviceaccount:" + home + ":" + install.ServiceAccount: true, "system:kms-health-reporter": true,
			"system:serviceaccount:" + home + ":kms-health-reporter-kube-apiserver": true, "system:serviceaccount:default:other": false,
		} {
			config := s.RESTConfig()
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
			if namespace, is := strings.CutPrefix(user, "system:serviceaccount:"); is {
				namespace, _, _ = strings.Cut(namespace, ":")
				config.Impersonate.Groups = append(config.Impersonate.Groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
			}
			eventually(t, "flow schema of "+user+" on "+s.overlay, func() error {
				client, err := rest.HTTPClientFor(config)
				if err != nil {
					return err
				}
				answer, err := client.Get(s.URL() + "/api/v1/nodes")
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if got := answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"); (got == string(schema.UID)) != want {
					return fmt.Errorf("%s, that of kms-health is %s", got, schema.UID)
				}
				return nil
			})
		}
	}
}
