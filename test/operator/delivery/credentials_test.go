//go:build integration

package delivery

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// credential is the name of the Secret with the token of openshift-apiserver's reporters.
const credential = "kms-health-reporter-openshift-apiserver-token"

// In state Unmanaged, the operator changes only a token whose half life is over. It reports a failed renewal while the
// token still works.
func TestUnmanagedRenewsTheTokenAndReportsAFailureInTime(t *testing.T) {
	target, ns := apiservers.OpenShift, apiservers.OpenShift.Namespace
	op := fixture.NewOperator(t)
	fixture.Deploy(t, "1", "1", "identity")
	began := time.Now()
	op.Start(fixture.Targets(fixture.OpenShiftAPIServer()))
	fixture.AwaitDelivered(t, apiservers.OpenShift)
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation
	const unmanaged = "managementState: Unmanaged\n"
	op.Configure(unmanaged + fixture.Targets(fixture.OpenShiftAPIServer()))
	op.AwaitLogged("it is configured", `managementState="Unmanaged"`, 1)

	other, err := controlplane.NewCA("another")
	must.Succeed(t, err)
	bundle := append(fixture.Cluster.ServingCA().PEM(), other.PEM()...)
	must.Succeed(t, os.WriteFile(filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), bundle, 0o600))
	old := age(t, time.Now().Add(10*24*time.Hour))
	op.Configure(unmanaged + fixture.Every("20s", fixture.OpenShiftAPIServer())) // causes a sync
	fixture.Eventually(t, "the token is renewed", func() error {
		if now := tokenSecret(t); string(now.Data["token"]) == string(old.Data["token"]) {
			return fmt.Errorf("the same token, of %s", now.Annotations[contract.IssuedAtAnnotation])
		}
		return nil
	})
	fixture.AwaitDescribed(t, "1W every 30s", 1) // the interval was not changed

	op.Configure(fixture.Every("20s", fixture.OpenShiftAPIServer()))
	fixture.Eventually(t, "the files have the new CA", func() error {
		file, err := fixture.Kube.CoreV1().ConfigMaps(ns).Get(t.Context(), setName(target, "1"), metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(file.Data), base64.StdEncoding.EncodeToString(bundle)) {
			err = fmt.Errorf("%v", file.Data)
		}
		return err
	})
	expires := time.Now().Add(9 * 24 * time.Hour)
	refuseTokens(t)
	old = age(t, expires)
	op.Configure(fixture.Every("25s", fixture.OpenShiftAPIServer()))
	message := fixture.AwaitRollUp(t, apiservers.OpenShift, contract.HealthReporting, "False", "Refused").Message
	if text := expires.UTC().Format(time.RFC3339); !strings.Contains(message, refusal) || !strings.Contains(message, text) {
		t.Errorf("without %q or the expiry: %s", refusal, message)
	}
	fixture.AwaitWarning(t, "Refused", began, refusal)
	must.Equal(t, "the token that still works", tokenSecret(t).Data, old.Data)
	must.Equal(t, "the generation after a renewed token", fixture.DeploymentNow(t).Generation, generation)
}

const refusal = "no new token, by the test"

// refuseTokens installs a policy that refuses each change of the token in its Secret.
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
	must.Succeed(t, err)
	return s
}

// age changes the token's annotations: more than half its life is over.
func age(t *testing.T, expires time.Time) (s *corev1.Secret) {
	t.Helper()
	fixture.Eventually(t, "the token is made old", func() (err error) {
		s = tokenSecret(t) // the operator may apply it again meanwhile
		s.Annotations[contract.IssuedAtAnnotation] = time.Now().Add(-20 * 24 * time.Hour).UTC().Format(time.RFC3339)
		s.Annotations[contract.ExpiresAtAnnotation] = expires.UTC().Format(time.RFC3339)
		s, err = fixture.Kube.CoreV1().Secrets(s.Namespace).Update(t.Context(), s, metav1.UpdateOptions{})
		return err
	})
	return s
}
