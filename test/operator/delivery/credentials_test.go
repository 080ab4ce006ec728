//go:build integration

package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A token of which half its life is over is renewed without a rollout. A renewal that
// fails is reported while the token still works.
func TestTokenIsRenewedWithoutARolloutAndAFailureIsReportedInTime(t *testing.T) {
	target, ns, resource := apiservers.OpenShift, apiservers.OpenShift.Namespace, apiservers.OpenShift.Resource
	op := fixture.NewOperator(t)
	metric := op.ServeMetrics()
	fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
	fixture.ApplyDeployment(t, "1")
	t.Cleanup(func() { fixture.RemoveDeployment(t) })
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	began := time.Now()
	op.Configure(fixture.Targets(fixture.OpenShiftAPIServer()))
	op.Start("")
	fixture.AwaitDelivered(t, resource)
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation

	old := age(t, time.Now().Add(10*24*time.Hour))
	op.Configure(fixture.Every("20s", fixture.OpenShiftAPIServer())) // a sync
	awaitRenewal(t, old)

	expires := time.Now().Add(9 * 24 * time.Hour)
	refuseTokens(t)
	old = age(t, expires)
	op.Configure(fixture.Every("25s", fixture.OpenShiftAPIServer()))
	message := fixture.AwaitReason(t, target, "RenewalFailed")
	if text := expires.UTC().Format(time.RFC3339); !strings.Contains(message, refusal) || !strings.Contains(message, text) {
		t.Errorf("without %q or the expiry: %s", refusal, message)
	}
	awaitWarning(t, "RenewalFailed", began, refusal)
	const metricName = "kms_health_operator_credential_expiry_timestamp_seconds"
	fixture.Eventually(t, metricName+" is that of the token in use", func() error {
		for labels, value := range metric(metricName) {
			var seconds float64
			if _, err := fmt.Sscan(value, &seconds); err == nil && int64(seconds) == expires.Unix() &&
				strings.Contains(labels, `secret="`+credential+`"`) && strings.Contains(labels, `api_server="`+target.Name+`"`) {
				return nil
			}
		}
		return fmt.Errorf("%v", metric(metricName))
	})
	if now := tokenSecret(t); string(now.Data["token"]) != string(old.Data["token"]) {
		t.Error("the token that still works was replaced")
	}
	if now := fixture.DeploymentNow(t).Generation; now != generation {
		t.Errorf("a renewed token made %d rollouts", now-generation)
	}
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

const refusal = "no new token, by the test"

// refuseTokens lets nobody change the token in its Secret.
func refuseTokens(t *testing.T) {
	t.Helper()
	const name = "refuse-new-tokens"
	invalid := metav1.StatusReasonInvalid
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			ResourceNames: []string{credential},
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "object.data['token'] == oldObject.data['token']", Message: refusal, Reason: &invalid}},
	}}
	deny(t, policy)
	fixture.Eventually(t, "the policy is active", func() error {
		s := tokenSecret(t)
		s.Data["token"] = []byte("another")
		_, err := fixture.Kube.CoreV1().Secrets(s.Namespace).Update(t.Context(), s, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), refusal) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
}

func tokenSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := fixture.Kube.CoreV1().Secrets(apiservers.OpenShift.Namespace).Get(t.Context(), credential, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// age makes a token one of which half its life is over.
func age(t *testing.T, expires time.Time) *corev1.Secret {
	t.Helper()
	s := tokenSecret(t)
	s.Annotations[contract.IssuedAtAnnotation] = time.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
	s.Annotations[contract.ExpiresAtAnnotation] = expires.UTC().Format(time.RFC3339)
	s, err := fixture.Kube.CoreV1().Secrets(s.Namespace).Update(t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func awaitRenewal(t *testing.T, old *corev1.Secret) {
	t.Helper()
	fixture.Eventually(t, "the token is renewed", func() error {
		if now := tokenSecret(t); string(now.Data["token"]) == string(old.Data["token"]) {
			return fmt.Errorf("the same token, of %s", now.Annotations[contract.IssuedAtAnnotation])
		}
		return nil
	})
}
