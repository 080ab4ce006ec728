//go:build integration

package delivery

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// startWebhook installs a validating webhook for the creation of reporters' pods, with the default timeout. end removes
// it.
func startWebhook(t *testing.T, ifItFails admissionv1.FailurePolicyType, answer http.HandlerFunc) (end func()) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	none := admissionv1.SideEffectClassNone
	match := rule(fixture.Namespace, "", "pods", admissionv1.Create)
	config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "pods.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &ifItFails,
			ClientConfig: admissionv1.WebhookClientConfig{URL: &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector: match.NamespaceSelector,
			Rules:             []admissionv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations},
			MatchConditions:   []admissionv1.MatchCondition{{Name: "reporters", Expression: isReporter}},
		}}}
	return create(t, fixture.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations(), config)
}

// A webhook's denial has code 400 and no reason, unless the webhook sets them. The operator must not apply a DaemonSet
// whose pods would be denied.
func TestDenialOfAWebhookIsReportedBeforeARollout(t *testing.T) {
	end := startWebhook(t, admissionv1.Fail, denying(t, "no bare pods"))
	awaitDenial(t, "no bare pods")
	fixture.StartOperator(t, fixture.OnHost)
	message := fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", contract.Forbidden).Message
	if !strings.Contains(message, "no bare pods") || strings.Contains(message, "apply the manifests") {
		t.Errorf("not the webhook's message alone: %s", message)
	}
	if err := daemonSetExists(t, apiservers.Kube); !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet: %v", err)
	}
	end()
	fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, len(fixture.NodeNames))
	fixture.AwaitDelivered(t, apiservers.Kube)
}

// By default kube-apiserver waits 10 s for a webhook. Then it continues without it, if the failurePolicy is Ignore.
func TestWebhookThatDoesNotAnswerAndMayFailStopsNoReporter(t *testing.T) {
	end := startWebhook(t, admissionv1.Ignore, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only after that does the end of the connection cancel the context
		<-r.Context().Done()
	})
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RunStatic(t, fixture.NodeNames[0], fixture.StaticPod("1", false))
	op.Start(fixture.Targets(apiservers.Kube.Target(), apiservers.OAuth.Target("mode: DaemonSet",
		`plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}]`)))
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 1)
	fixture.Eventually(t, "the DaemonSet is applied", func() error { return daemonSetExists(t, apiservers.OAuth) })
	end()
}

// An image policy that changes the DaemonSet itself, as Kyverno's policies do, makes it differ from the applied object
// for ever. Without a rollout, the operator must not try to create a pod: a denial, such as by a full quota, would not
// matter.
func TestDaemonSetThatAdmissionChangedIsNotTriedAgain(t *testing.T) {
	mutate(t, "rewrite-the-agents-image", isReporter, rule(fixture.Namespace, "apps", "daemonsets", admissionv1.Create, admissionv1.Update),
		applyConfiguration(fmt.Sprintf(`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
			containers: [Object.spec.template.spec.containers{name: '%s', image: '%s'}]}}}}`, contract.ReporterContainer, mirrored)))
	op := fixture.StartOperator(t, fixture.OnHost)
	daemonSets := fixture.Kube.AppsV1().DaemonSets(fixture.Namespace)
	fixture.Eventually(t, "the DaemonSet has the other image", func() error {
		name := contract.ReporterName(apiservers.Kube.Name)
		ds, err := daemonSets.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && ds.Spec.Template.Spec.Containers[0].Image != mirrored {
			err = errors.Join(errors.New("the policy is not in use yet"), daemonSets.Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		return err
	})
	fixture.AwaitPods(t, fixture.Namespace, fixture.Agents, len(fixture.NodeNames))
	fixture.AwaitDelivered(t, apiservers.Kube)
	end := startWebhook(t, admissionv1.Fail, denying(t, "no room for one more"))
	awaitDenial(t, "no room for one more")
	seen := fixture.RecordConditions(t, apiservers.Kube)
	op.Configure(fixture.Every("11s", apiservers.Kube.Target()))
	fixture.AwaitDescribed(t, "every 11s", len(fixture.NodeNames))
	must.Succeed(t, seen.None(contract.Forbidden))

	// Of a pod that is missing, an Event has the reason.
	for agent := range fixture.PodUIDs(t, fixture.Agents) {
		must.Succeed(t, fixture.Kube.CoreV1().Pods(fixture.Namespace).Delete(t.Context(), agent, metav1.DeleteOptions{}))
		break
	}
	fixture.Eventually(t, "the denial is reported", func() error {
		message := fixture.Resource(t, apiservers.Kube).Conditions[contract.HealthReporting].Message
		if !strings.Contains(message, "has 2 of 3 pods: ") || !strings.Contains(message, "no room for one more") {
			return errors.New(message)
		}
		return nil
	})
	end()
}

// denying returns a webhook that denies all requests.
func denying(t *testing.T, why string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review := admissionapi.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Response = &admissionapi.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: why}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}
}

func daemonSetExists(t *testing.T, server apiservers.Server) error {
	t.Helper()
	_, err := fixture.Kube.AppsV1().DaemonSets(fixture.Namespace).Get(t.Context(), contract.ReporterName(server.Name),
		metav1.GetOptions{})
	return err
}
