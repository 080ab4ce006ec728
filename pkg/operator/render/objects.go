package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// planned are the objects of a plan, in the order in which they are applied, and what the owner of
// the pods adds.
func planned(s *apiserver.Snapshot, plan *apiserver.Plan, p pods) ([]File, error) {
	policy, err := objects.Policy()
	if err != nil {
		return nil, err
	}
	identity := []*unstructured.Unstructured{plan.Anchor}
	var rest []*unstructured.Unstructured
	for _, o := range slices.Concat(plan.Apply, plan.Workloads, plan.Copied) {
		switch o.GetKind() {
		case "ServiceAccount", "ClusterRoleBinding":
			identity = append(identity, o)
		case "Role": // the operator's own
		default:
			rest = append(rest, o)
		}
	}
	who := "who the reporters are"
	if plan.Token {
		who += fmt.Sprintf("; the operator puts their token into the Secret %s/%s; without an operator, you: "+
			"see docs/explain/credentials.md#credentials-of-the-owner", s.Target.Namespace, objects.TokenName(s.Target.Name))
	}
	all := []File{
		{"10-policy.yaml", manifest(policy), "what the reporters' identity may write"},
		{"20-identity.yaml", manifest(identity), who},
	}
	if s.ReportsTo().PerAPIServer() {
		all = append(all, crd())
	}
	for _, o := range rest {
		name := fmt.Sprintf("%d-%s-%s.yaml", rank(o), strings.ToLower(o.GetKind()), o.GetName())
		all = append(all, File{name, manifest([]*unstructured.Unstructured{o}), "apply it"})
	}
	if s.Target.Mode == v1alpha1.ModeSidecar {
		container, err := sidecar(s, p)
		if err != nil {
			return nil, err
		}
		all = append(all, container)
	}
	if s.Target.OwnerInjects() {
		kubeconfig, err := ownersKubeconfig(s)
		if err != nil {
			return nil, err
		}
		all = append(all, kubeconfig)
	}
	slices.SortStableFunc(all, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// ownersKubeconfig is the part of the pods' owner's Secret that is no secret. No file has
// the Secret itself: applying it again would replace the credentials.
func ownersKubeconfig(s *apiserver.Snapshot) (File, error) {
	kubeconfig, err := s.Kubeconfig()
	create := fmt.Sprintf("kubectl create secret generic %s -n %s --from-file=kubeconfig --from-file=tls.crt --from-file=tls.key",
		objects.CredentialsName(s.Target.Name), s.Target.Namespace)
	note := "goes into a Secret with a certificate and key of the user system:kms-health-reporter; in the folder of the three files: " + create
	return File{"credentials/kubeconfig", kubeconfig, note}, err
}

func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case contract.KMSHealths.Kind:
		return 15
	case "ConfigMap":
		return 30
	}
	return 40
}

// crd is that of the object that gets the reports, where that is not OpenShift's.
func crd() File {
	note := fmt.Sprintf("apply it first, and wait: kubectl wait --for=condition=Established crd/%s.%s",
		contract.KMSHealths.Plural, contract.KMSHealths.Group)
	return File{"00-crd.yaml", install.KMSHealthCRD, note}
}

func manifest(objects []*unstructured.Unstructured) []byte {
	var b bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			panic(err) // what came from YAML goes back to it
		}
		b.Write(raw)
	}
	return b.Bytes()
}
