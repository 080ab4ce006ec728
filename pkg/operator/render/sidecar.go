package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// patchFile is the name of the patch. `kubectl apply -f` of the folder above leaves it out.
const patchFile = "sidecar/patch.yaml"

// sidecar adds the reporter in the API server's own pods: their manifest with it, else the
// patch of it; and the files that it reads.
func (r *rendering) sidecar() (err error) {
	if r.pod == nil {
		if r.pod, err = assumed(r.Target, r.plugins); err != nil {
			return err
		}
	}
	if r.HostFolder != "" {
		return errors.Join(r.hostFiles(), r.manifests("host/static-pod.json",
			"takes the place of the API server's manifest, last",
			"the API server's manifest: give this file to kubectl patch --local -f MANIFEST -o yaml --patch-file"))
	}
	if r.deployment == nil {
		r.pods = pods{pod: r.pod, deployment: &metav1.ObjectMeta{
			Name: cmp.Or(r.Target.Deployment, r.Target.Name), Namespace: r.Target.Namespace,
		}}
	}
	name := r.deployment.Name
	if r.Target.OwnerInjects() {
		err = r.ownersKubeconfig()
	}
	return errors.Join(err, r.configMap(objects.ConfigMapName(r.Target.Name, r.plugins)),
		r.manifests("50-deployment-"+name+".yaml", "your Deployment, with the reporter in it",
			fmt.Sprintf("your Deployment: give this file to kubectl patch deployment %s -n %s --patch-file",
				name, r.Target.Namespace)))
}

// manifests adds the pods' object with the reporter, else the patch. A static pod is JSON, in which
// every string has quotes: OpenShift's installer of static pods replaces words in it, and a
// string that becomes a number would be no string.
func (r *rendering) manifests(file, note, patched string) error {
	patch, whole, err := r.change()
	if err != nil {
		return err
	}
	if whole == nil {
		data, err := yaml.Marshal(patch)
		r.add(patchFile, data, "adds the reporter to "+patched)
		return err
	}
	if r.deployment != nil {
		data, err := yaml.Marshal(whole)
		r.add(file, data, note)
		return err
	}
	raw, err := applybody.Marshal(whole)
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	var data bytes.Buffer
	err = json.Indent(&data, append(raw, '\n'), "", "  ")
	r.add(file, data.Bytes(), note)
	return err
}

// hostFiles adds the files that a static pod's reporter reads on its node. Such a pod can refer
// to no object of the API.
func (r *rendering) hostFiles() error {
	file, err := r.File(r.plugins)
	if err != nil {
		return err
	}
	kubeconfig, err := r.Kubeconfig()
	certificate := "tls.crt and tls.key"
	if len(r.CA) == 0 {
		certificate += ", with the API server's CA as " + objects.CAFile
	}
	config, client := r.HostFolder+"/"+objects.HostConfig, r.HostFolder+"/"+objects.HostClient
	r.add("host/config/config.yaml", file, "goes to "+config+"/config.yaml on each node")
	r.add("host/config/kubeconfig", kubeconfig,
		"goes to "+config+"/kubeconfig on each node; the client certificate to "+client+"/"+certificate)
	return err
}

// ownersKubeconfig adds the part of the pods' owner's Secret that is no secret. No file has
// the Secret itself: applying it again would replace the credentials.
func (r *rendering) ownersKubeconfig() error {
	kubeconfig, err := r.Kubeconfig()
	r.add("credentials/kubeconfig", kubeconfig, fmt.Sprintf("goes into a Secret with a certificate and key of the user "+
		"system:kms-health-reporter; in the folder of the three files: kubectl create secret generic %s -n %s "+
		"--from-file=kubeconfig --from-file=tls.crt --from-file=tls.key",
		objects.CredentialsName(r.Target.Name), r.Target.Namespace))
	return err
}

// change is the strategic-merge patch that adds the reporter to the pods' object, and that object
// after it, where there is one. Of the other containers the patch has the names alone, which
// change nothing, but put the reporter behind them: a kubelet starts containers one after the
// other, and pulls each image before that.
func (r *rendering) change() (patch, whole map[string]any, err error) {
	template, err := r.Sidecar(&r.pod.Spec, r.plugins)
	if err != nil {
		return nil, nil, fmt.Errorf("--pod: %w", err)
	}
	var containers []any
	for i := range r.pod.Spec.Containers {
		if name := r.pod.Spec.Containers[i].Name; name != contract.ReporterContainer {
			containers = append(containers, map[string]any{"name": name})
		}
	}
	added := template["spec"].(map[string]any)
	added["containers"] = append(containers, added["containers"].([]any)...)
	patch = r.wrap(template)
	if r.manifest == nil {
		return patch, nil, nil
	}
	var schema any = corev1.Pod{}
	if r.deployment != nil {
		schema = appsv1.Deployment{}
	}
	whole = runtime.DeepCopyJSON(r.manifest)
	for _, change := range []map[string]any{r.wrap(withoutEarlier()), patch} {
		if whole, err = strategicpatch.StrategicMergeMapPatch(whole, change, schema); err != nil {
			return nil, nil, fmt.Errorf("--pod: %w", err)
		}
	}
	return patch, whole, nil
}

// withoutEarlier is the patch of a template that removes an earlier reporter: a merge would leave
// what that one has besides.
func withoutEarlier() map[string]any {
	remove := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, map[string]any{"name": name, "$patch": "delete"})
		}
		return list
	}
	return map[string]any{"spec": map[string]any{
		"containers": remove(contract.ReporterContainer), "volumes": remove(objects.SidecarVolumes...),
	}}
}

// wrap is a patch of the pods as one of their object.
func (r *rendering) wrap(template map[string]any) map[string]any {
	if r.deployment != nil {
		metadata := map[string]any{"name": r.deployment.Name}
		if r.deployment.Namespace != "" { // by which a kustomization finds the Deployment, too
			metadata["namespace"] = r.deployment.Namespace
		}
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": map[string]any{"template": template},
		}
	}
	metadata := map[string]any{"name": r.pod.Name}
	if had, ok := template["metadata"].(map[string]any); ok {
		metadata["annotations"] = had["annotations"]
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
}
