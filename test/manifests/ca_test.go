//go:build integration

package manifests

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

// Without the policy, the operator's right to patch its Deployment would include all of this.
func TestOperatorChangesTheCAInItsDeploymentAndNothingElse(t *testing.T) {
	openshift.with(t, "deployment", "start-during-plugin-outage")
	operator := kubernetes.NewForConfigOrDie(openshift.as(t))
	patch := func(name, subresource, manager string, how types.PatchType, body string) error {
		options := metav1.PatchOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}}
		var more []string
		if subresource != "" {
			more = []string{subresource}
		}
		if how == types.ApplyPatchType {
			force := true
			options.Force = &force
			body = `{"apiVersion": "apps/v1", "kind": "Deployment", ` + body[1:]
		}
		_, err := operator.AppsV1().Deployments(home).Patch(soon(t), name, how, []byte(body), options, more...)
		return err
	}
	const template, ca = `{"spec": {"template": %s}}`, `{"metadata": {"annotations": {"kmshealth.openshift.io/ca": %q}}}`
	own := fmt.Sprintf(template, fmt.Sprintf(ca, "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"))
	eventually(t, "the right and the policy are active", func() error {
		if err := patch(contract.OperatorName, "", contract.CAManager, types.ApplyPatchType, own); err != nil {
			return err
		}
		if err := patch(contract.OperatorName, "", contract.CAManager, types.ApplyPatchType, `{"spec": {"replicas": 3}}`); err == nil {
			return fmt.Errorf("another field is accepted")
		}
		return nil
	})
	const image = `{"spec": {"containers": [{"name": "operator", "image": "other"}]}}`
	for what, c := range map[string]struct {
		manager string
		how     types.PatchType
		body    string
	}{
		"another manager":              {contract.OperatorName, types.ApplyPatchType, own},
		"no Server-Side Apply":         {contract.CAManager, types.MergePatchType, own},
		"empty":                        {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, fmt.Sprintf(ca, ""))},
		"no PEM":                       {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, fmt.Sprintf(ca, "x"))},
		"removed":                      {contract.CAManager, types.MergePatchType, fmt.Sprintf(template, `{"metadata": {"annotations": {"kmshealth.openshift.io/ca": null}}}`)},
		"another annotation":           {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, `{"metadata": {"annotations": {"kmshealth.openshift.io/config": "x"}}}`)},
		"own and another annotation":   {contract.CAManager, types.ApplyPatchType, strings.Replace(own, `"kmshealth.openshift.io/ca"`, `"x": "y", "kmshealth.openshift.io/ca"`, 1)},
		"all annotations removed":      {contract.CAManager, types.MergePatchType, fmt.Sprintf(template, `{"metadata": {"annotations": null}}`)},
		"a label of the pod":           {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, `{"metadata": {"labels": {"x": "y"}}}`)},
		"image":                        {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, image)},
		"image, as strategic merge":    {contract.CAManager, types.StrategicMergePatchType, fmt.Sprintf(template, image)},
		"ServiceAccount":               {contract.CAManager, types.ApplyPatchType, fmt.Sprintf(template, `{"spec": {"serviceAccountName": "other"}}`)},
		"replicas":                     {contract.CAManager, types.ApplyPatchType, `{"spec": {"replicas": 0}}`},
		"replicas, co-owned":           {contract.CAManager, types.ApplyPatchType, `{"spec": {"replicas": 2, ` + own[len(`{"spec": {`):]},
		"strategy":                     {contract.CAManager, types.MergePatchType, `{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}`},
		"paused":                       {contract.CAManager, types.ApplyPatchType, `{"spec": {"paused": true}}`},
		"annotation of the Deployment": {contract.CAManager, types.ApplyPatchType, `{"metadata": {"annotations": {"kmshealth.openshift.io/ca": "x"}}}`},
		"owner":                        {contract.CAManager, types.MergePatchType, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]}}`},
	} {
		if err := patch(contract.OperatorName, "", c.manager, c.how, c.body); err == nil || !strings.Contains(err.Error(), "'kms-health-operator-ca'") {
			t.Errorf("%s: not refused by the policy: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"another Deployment": patch("other", "", contract.CAManager, types.ApplyPatchType, own),
		"scale":              patch(contract.OperatorName, "scale", contract.CAManager, types.MergePatchType, `{"spec": {"replicas": 0}}`),
		"status":             patch(contract.OperatorName, "status", contract.CAManager, types.MergePatchType, `{"status": {"replicas": 9}}`),
		"update": func() error {
			d, err := openshift.kube.AppsV1().Deployments(home).Get(soon(t), contract.OperatorName, metav1.GetOptions{})
			must.Succeed(t, err)
			_, err = operator.AppsV1().Deployments(home).Update(soon(t), d, metav1.UpdateOptions{})
			return err
		}(),
		"delete": operator.AppsV1().Deployments(home).Delete(soon(t), contract.OperatorName, metav1.DeleteOptions{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s: not refused: %v", what, err)
		}
	}
}
