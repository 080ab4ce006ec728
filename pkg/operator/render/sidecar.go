package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// sidecar adds what injects the reporter into the API server's own pods, and the files that it reads.
func (r *rendering) sidecar() error {
	template, err := r.Sidecar(&r.pod.Spec, r.plugins)
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	// The patch names the other containers without changing them, so that the reporter comes last: a kubelet starts
	// containers one after the other, and pulls each image before that.
	var containers []any
	for i := range r.pod.Spec.Containers {
		if name := r.pod.Spec.Containers[i].Name; name != contract.ReporterContainer {
			containers = append(containers, map[string]any{"name": name})
		}
	}
	added := template["spec"].(map[string]any)
	added["containers"] = append(containers, added["containers"].([]any)...)
	if r.deployment == nil {
		return r.staticPod(template)
	}
	if r.Target.OwnerInjects() { // no file has the Secret: applying it again would replace the credentials
		r.add("credentials/kubeconfig", r.Kubeconfig(), fmt.Sprintf("goes into a Secret with a certificate and key of the "+
			"user system:kms-health-reporter; in the folder of the three files: kubectl create secret generic %s -n %s "+
			"--from-file=kubeconfig --from-file=tls.crt --from-file=tls.key", r.Secret(), r.Target.Namespace))
	}
	r.configMap()
	name, namespace := r.deployment.Name, cmp.Or(r.deployment.Namespace, r.Target.Namespace)
	patch := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}}
	patch.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	patch.SetName(name)
	patch.SetNamespace(namespace) // a kustomization also finds the Deployment by it
	// `kubectl apply -f` of the output folder does not read this subfolder.
	r.add("sidecar/patch.yaml", asYAML(patch.Object), fmt.Sprintf("adds the reporter to your Deployment: "+
		"kubectl patch deployment %s -n %s --patch-file", name, namespace))
	return nil
}

// staticPod adds a static pod's manifest with the reporter, and the files that the reporter reads on its node: such a
// pod can refer to no object of the API.
func (r *rendering) staticPod(template map[string]any) error {
	whole, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(r.manifest), template, corev1.Pod{})
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	r.add("host/static-pod.json", quoted(whole), "replaces the API server's manifest, as the last step; the reporter in "+
		"it runs as root, as its files are root's. For another mode give a running pod by --pod, or none")
	certificate := "tls.crt and tls.key"
	if len(r.CA) == 0 {
		certificate += ", with the API server's CA as " + objects.CAFile
	}
	config, client := r.HostFolder+"/"+objects.HostConfig, r.HostFolder+"/"+objects.HostClient
	r.add("host/config/config.yaml", r.File(r.plugins), "goes to "+config+"/config.yaml on each node")
	r.add("host/config/kubeconfig", r.Kubeconfig(),
		"goes to "+config+"/kubeconfig on each node; the client certificate to "+client+"/"+certificate)
	return nil
}

// quoted returns JSON, in which every string has quotes: OpenShift's installer of static pods replaces words in it,
// and an unquoted string could become a number.
func quoted(object map[string]any) []byte {
	var data bytes.Buffer
	if err := json.Indent(&data, append(contract.Body(object), '\n'), "", "  "); err != nil {
		panic(err) // it came from JSON
	}
	return data.Bytes()
}
