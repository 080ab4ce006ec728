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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// patchFile is the name of the patch. `kubectl apply -f` of the folder above leaves it out.
const patchFile = "sidecar/patch.yaml"

// sidecar adds the reporter in the API server's own pods: their manifest with it, else the
// patch of it; and the files that it reads.
func (r *rendering) sidecar() (err error) {
	assumes := r.pod == nil
	if assumes {
		if r.pod, err = assumed(r.Target, r.plugins); err != nil {
			return err
		}
	}
	if r.HostFolder != "" {
		r.hostFiles()
		const asRoot = " (it runs as root, as its files on the node are root's)"
		return r.change(assumes, "host/static-pod.json",
			"takes the place of the API server's manifest, last; has the reporter"+asRoot,
			"the API server's manifest"+asRoot+": give this file to kubectl patch --local -f MANIFEST -o yaml --patch-file")
	}
	if r.deployment == nil {
		r.manifest, r.deployment = nil, &metav1.ObjectMeta{
			Name: cmp.Or(r.Target.Deployment, r.Target.Name), Namespace: r.Target.Namespace,
		}
	}
	name := r.deployment.Name
	if r.Target.OwnerInjects() {
		r.ownersKubeconfig()
	}
	r.configMap(objects.ConfigMapName(r.Target.Name, r.plugins))
	return r.change(assumes, "50-deployment-"+name+".yaml", "your Deployment, with the reporter in it",
		fmt.Sprintf("your Deployment: give this file to kubectl patch deployment %s -n %s --patch-file",
			name, r.Target.Namespace))
}

// hostFiles adds the files that a static pod's reporter reads on its node. Such a pod can refer
// to no object of the API.
func (r *rendering) hostFiles() {
	certificate := "tls.crt and tls.key"
	if len(r.CA) == 0 {
		certificate += ", with the API server's CA as " + objects.CAFile
	}
	config, client := r.HostFolder+"/"+objects.HostConfig, r.HostFolder+"/"+objects.HostClient
	r.add("host/config/config.yaml", r.File(r.plugins), "goes to "+config+"/config.yaml on each node")
	r.add("host/config/kubeconfig", r.Kubeconfig(),
		"goes to "+config+"/kubeconfig on each node; the client certificate to "+client+"/"+certificate)
}

// ownersKubeconfig adds the part of the pods' owner's Secret that is no secret. No file has
// the Secret itself: applying it again would replace the credentials.
func (r *rendering) ownersKubeconfig() {
	r.add("credentials/kubeconfig", r.Kubeconfig(), fmt.Sprintf("goes into a Secret with a certificate and key of the "+
		"user system:kms-health-reporter; in the folder of the three files: kubectl create secret generic %s -n %s "+
		"--from-file=kubeconfig --from-file=tls.crt --from-file=tls.key", r.Secret(), r.Target.Namespace))
}

// change adds a strategic-merge patch that adds the reporter to the pods' object; or, where there is
// one, that object after it. Of the other containers the patch has the names alone, which change
// nothing, but put the reporter behind them: a kubelet starts containers one after the other, and
// pulls each image before that. What it assumes
// is a warning.
func (r *rendering) change(assumes bool, file, note, patched string) error {
	template, err := r.Sidecar(&r.pod.Spec, r.plugins)
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	var containers []any
	for i := range r.pod.Spec.Containers {
		if name := r.pod.Spec.Containers[i].Name; name != contract.ReporterContainer {
			containers = append(containers, map[string]any{"name": name})
		}
	}
	added := template["spec"].(map[string]any)
	added["containers"] = append(containers, added["containers"].([]any)...)
	patch, schema, marshal := r.patchOf(template), any(appsv1.Deployment{}), asYAML
	switch {
	case r.manifest == nil:
		r.add(patchFile, asYAML(patch), "adds the reporter to "+patched)
		if assumes {
			r.files[len(r.files)-1].Warning = "assumes a volume " + socketVolume + " with the sockets, which the pod may not " +
				"have: check it, or give the pod's manifest by --pod"
		}
		return nil
	case r.deployment == nil:
		schema, marshal = corev1.Pod{}, quoted
	}
	whole, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(r.manifest), patch, schema)
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	r.add(file, marshal(whole), note)
	return nil
}

// quoted is JSON, in which every string has quotes: OpenShift's installer of static pods replaces
// words in it, and a string that becomes a number would be no string.
func quoted(object map[string]any) []byte {
	raw, err := applybody.Marshal(object)
	var data bytes.Buffer
	if err = errors.Join(err, json.Indent(&data, append(raw, '\n'), "", "  ")); err != nil {
		panic(err) // it came from JSON
	}
	return data.Bytes()
}

// patchOf is a patch of the pods' template as one of their object.
func (r *rendering) patchOf(template map[string]any) map[string]any {
	o := &unstructured.Unstructured{Object: template}
	kind, name := corev1.SchemeGroupVersion.WithKind("Pod"), r.pod.Name
	if r.deployment != nil {
		o.Object = map[string]any{"spec": map[string]any{"template": template}}
		kind, name = appsv1.SchemeGroupVersion.WithKind("Deployment"), r.deployment.Name
		o.SetNamespace(r.deployment.Namespace) // by which a kustomization finds the Deployment, too
	}
	o.SetGroupVersionKind(kind)
	o.SetName(name)
	return o.Object
}
