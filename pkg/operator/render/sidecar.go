package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// patchFile is the name of the patch. `kubectl apply -f` of the folder above leaves it out.
const patchFile = "sidecar/patch.yaml"

// sidecar is the reporter in a Deployment: the whole manifest, else the patch.
func sidecar(s *apiserver.Snapshot, p pods) (File, error) {
	d := s.Deployment
	if p.deployment == nil { // of a running pod
		p = pods{deployment: d}
	}
	patch, err := p.patch(s.SidecarOptions(d, plugins(s)))
	if err != nil {
		return File{}, err
	}
	if p.manifest == nil {
		data, err := yaml.Marshal(patch)
		note := fmt.Sprintf("adds the reporter to your Deployment: give this file to kubectl patch deployment %s -n %s --patch-file",
			d.Name, s.Target.Namespace)
		return File{patchFile, data, note}, err
	}
	whole, err := p.merged(patch)
	if err != nil {
		return File{}, err
	}
	data, err := yaml.Marshal(whole)
	return File{"50-deployment-" + d.Name + ".yaml", data, "your Deployment, with the reporter in it"}, err
}

// patch is the strategic-merge patch that adds the reporter. Of the other containers it has the
// names alone, which change nothing, but put the reporter behind them: a kubelet starts
// containers one after the other, and pulls each image before that.
func (p pods) patch(o podspec.Options) (map[string]any, error) {
	spec, at := p.spec()
	reporter, volumes, err := podspec.Container(at, spec, o)
	if err != nil {
		return nil, fmt.Errorf("--pod: %w", err)
	}
	type named struct {
		Name string `json:"name"`
	}
	var containers []any
	for i := range spec.Containers {
		if name := spec.Containers[i].Name; name != contract.ReporterContainer {
			containers = append(containers, named{name})
		}
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{contract.ConfigHashAnnotation: o.ConfigHash}},
		"spec":     map[string]any{"containers": append(containers, reporter), "volumes": volumes},
	})
	if err != nil {
		return nil, err
	}
	var template map[string]any
	err = json.Unmarshal(raw, &template)
	return p.wrap(template), err
}

// wrap is a patch of the pods as one of their object.
func (p pods) wrap(template map[string]any) map[string]any {
	if d := p.deployment; d != nil {
		metadata := map[string]any{"name": d.Name}
		if d.Namespace != "" { // by which a kustomization finds the Deployment, too
			metadata["namespace"] = d.Namespace
		}
		return map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": map[string]any{"template": template},
		}
	}
	patch := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{}}
	for key, value := range template {
		patch[key] = value
	}
	_ = unstructured.SetNestedField(patch, p.pod.Name, "metadata", "name")
	return patch
}

// merged is the manifest after the patch, without what an earlier reporter has besides.
func (p pods) merged(patch map[string]any) (map[string]any, error) {
	remove := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, map[string]any{"name": name, "$patch": "delete"})
		}
		return list
	}
	earlier := p.wrap(map[string]any{"spec": map[string]any{
		"containers": remove(contract.ReporterContainer), "volumes": remove(podspec.Volumes...),
	}})
	var schema any = corev1.Pod{}
	if p.deployment != nil {
		schema = appsv1.Deployment{}
	}
	whole := runtime.DeepCopyJSON(p.manifest)
	for _, change := range []map[string]any{earlier, patch} {
		var err error
		if whole, err = strategicpatch.StrategicMergeMapPatch(whole, change, schema); err != nil {
			return nil, fmt.Errorf("--pod: %w", err)
		}
	}
	return whole, nil
}

// caFile is where a static pod's credentials hold the CA.
const caFile = "ca.crt"

// staticPod makes a static pod with the reporter in it, or the patch, and the files that it
// reads on its node. Such a pod can refer to no object of the API.
func (in *Input) staticPod(s *apiserver.Snapshot, p pods) ([]File, error) {
	t, set, root := s.Target, plugins(s), int64(0)
	t.Mode, t.Deployment = v1alpha1.ModeSidecar, ""
	folder := in.HostFolder
	if folder == "" {
		folder = DefaultHostFolder
	}
	o := podspec.Options{
		Image: in.Config.Image, APIServerContainer: t.Container, Endpoints: apiserver.Endpoints(set),
		HostFolder: folder, ConfigHash: v1alpha1.PluginSetHash(set), RunAsUser: &root,
	}
	sidecar, err := p.staticSidecar(o)
	if err != nil {
		return nil, err
	}
	s.CredentialsFolder = o.Credentials()
	certificate := "tls.crt and tls.key"
	if len(in.CA) == 0 {
		s.CAFile = o.Credentials() + "/" + caFile
		certificate += ", with the API server's CA as " + caFile
	}
	file, err := s.File(set)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := s.Kubeconfig()
	if err != nil {
		return nil, err
	}
	all, err := staticObjects(s)
	if err != nil {
		return nil, err
	}
	config, client := folder+"/"+podspec.HostConfig, folder+"/"+podspec.HostClient
	all = append(all,
		File{"host/config/config.yaml", file, "goes to " + config + "/config.yaml on each node"},
		File{"host/config/kubeconfig", kubeconfig,
			"goes to " + config + "/kubeconfig on each node; the client certificate to " + client + "/" + certificate},
		sidecar)
	slices.SortStableFunc(all, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// staticSidecar is the manifest as JSON, in which every string has quotes: OpenShift's installer
// of static pods replaces words in it, and a string that becomes a number would be no string.
func (p pods) staticSidecar(o podspec.Options) (File, error) {
	patch, err := p.patch(o)
	if err != nil {
		return File{}, err
	}
	if p.manifest == nil {
		data, err := yaml.Marshal(patch)
		note := "adds the reporter to the API server's manifest: give this file to kubectl patch --local -f MANIFEST -o yaml --patch-file"
		return File{patchFile, data, note}, err
	}
	whole, err := p.merged(patch)
	if err != nil {
		return File{}, err
	}
	raw, err := applybody.Marshal(whole)
	if err != nil {
		return File{}, fmt.Errorf("--pod: %w", err)
	}
	var data bytes.Buffer
	err = json.Indent(&data, append(raw, '\n'), "", "  ")
	return File{"host/static-pod.json", data.Bytes(), "takes the place of the API server's manifest, last"}, err
}

// staticObjects are what a static pod's reporter needs in the API.
func staticObjects(s *apiserver.Snapshot) ([]File, error) {
	policy, err := objects.Policy()
	if err != nil {
		return nil, err
	}
	identity, err := s.Identity()
	if err != nil {
		return nil, err
	}
	all := []File{
		{"10-policy.yaml", manifest(policy), "apply it: what the reporters' identity may write"},
		{"20-identity.yaml", manifest(identity), "apply it: what the user system:kms-health-reporter may do"},
	}
	destination, err := s.Destination()
	if destination != nil {
		name, data := fmt.Sprintf("15-kmshealth-%s.yaml", s.Target.Name), manifest([]*unstructured.Unstructured{destination})
		all = append(all, crd(), File{name, data, "apply it: where the reports are"})
	}
	return all, err
}
