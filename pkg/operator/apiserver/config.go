package apiserver

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// checkEncrypted finds what the reporters need, and kube-apiserver encrypts with KMS.
func (p *planner) checkEncrypted() {
	if slices.Contains(p.Encrypted, p.ReportsTo().GVR().GroupResource()) {
		p.problem(contract.ReportsEncrypted,
			fmt.Sprintf("kube-apiserver encrypts %s with KMS, as with the resource *.*, so reports and conditions cannot be "+
				"written from 3 minutes after its plugin becomes unhealthy: give it an entry of its own, without KMS, before "+
				"that one", p.ReportsTo().Plural))
	}
	if slices.Contains(p.Encrypted, encryption.ConfigMaps) && p.Target.ConfigSource == v1alpha1.ConfigSourceConfigMap &&
		!p.Target.Mode.InOwnersPods() {
		p.problem(contract.ConfigMapsEncrypted, objects.ConfigMapsEncrypted)
	}
}

// file is one of the reporter's, in a ConfigMap.
type file struct {
	name    string // of the ConfigMap
	plugins []v1alpha1.Plugin
}

// fileOf is that of a plugin set.
func (p *planner) fileOf(set []v1alpha1.Plugin) file {
	return file{objects.ConfigMapName(p.Target.Name, set), set}
}

// configMaps plans the ConfigMaps of files, the first of those with one name, and of the files
// that earlier pods still mount: those keep their plugins, and get every other change. They are
// applied before pods that mount them. Where their content is copied into annotations they are
// applied after the pods, since they cannot be written while the plugin is unhealthy.
func (p *planner) configMaps(files ...file) error {
	namespace := p.ReportersNamespace(p.Target.Mode)
	for _, cm := range p.own("ConfigMap") {
		known := slices.ContainsFunc(files, func(f file) bool { return f.name == cm.GetName() })
		if cm.GetNamespace() == namespace && !known && p.inUse(cm) {
			files = append(files, file{cm.GetName(), pluginsOf(cm)})
		}
	}
	done := map[string]bool{}
	for _, f := range files {
		if len(f.plugins) == 0 || done[f.name] {
			continue
		}
		done[f.name] = true
		cm, err := p.ConfigMap(f.name, namespace, f.plugins)
		if err != nil {
			return err
		}
		if p.Target.ConfigSource == v1alpha1.ConfigSourceAnnotation {
			p.plan.Copied = append(p.plan.Copied, cm)
		} else {
			p.plan.Apply = append(p.plan.Apply, cm)
		}
	}
	return nil
}

// fileAnnotations are those that have the files of a pod that does not mount them.
var fileAnnotations = []string{contract.ConfigAnnotation, contract.KubeconfigAnnotation}

// liveFiles keeps a change of the files live where a DaemonSet's pods have them in
// annotations: its template, of which a change would replace the pods, keeps the files of
// the plugin set's first version, and the pods get the current ones.
func (p *planner) liveFiles(ds *unstructured.Unstructured) {
	if p.Target.ConfigSource != v1alpha1.ConfigSourceAnnotation {
		return
	}
	wanted := templateAnnotations(ds)
	hash := wanted[contract.ConfigHashAnnotation]
	for _, o := range p.own("Pod") {
		is := o.GetAnnotations()
		_, copied := is[contract.ConfigAnnotation] // one that mounts the ConfigMap is being replaced
		if !copied || modeOf(o) != v1alpha1.ModeDaemonSet || is[contract.ConfigHashAnnotation] != hash ||
			o.GetDeletionTimestamp() != nil || maps.Equal(filesOf(is), filesOf(wanted)) {
			continue
		}
		patch := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
		patch.SetName(o.GetName())
		patch.SetNamespace(o.GetNamespace())
		patch.SetUID(o.GetUID())
		patch.SetAnnotations(filesOf(wanted))
		p.plan.LiveFiles = append(p.plan.LiveFiles, patch)
	}
	if live := p.find(ds); live != nil {
		was := templateAnnotations(live)
		if _, has := was[contract.ConfigAnnotation]; !has || was[contract.ConfigHashAnnotation] != hash {
			return
		}
		for name, file := range filesOf(was) {
			_ = unstructured.SetNestedField(ds.Object, file, "spec", "template", "metadata", "annotations", name)
		}
	}
}

// templateAnnotations are those of the pods of a DaemonSet.
func templateAnnotations(ds *unstructured.Unstructured) map[string]string {
	all, _, _ := unstructured.NestedStringMap(ds.Object, "spec", "template", "metadata", "annotations")
	return all
}

func filesOf(annotations map[string]string) map[string]string {
	files := map[string]string{}
	for _, name := range fileAnnotations {
		files[name] = annotations[name]
	}
	return files
}
