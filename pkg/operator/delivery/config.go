package delivery

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
)

// configSource decides how own pods get the ConfigMap with their file, and why. While no
// KMS plugin is healthy, a pod whose ConfigMap is encrypted does not start.
func (s *Snapshot) configSource(d v1alpha1.Delivery) (source v1alpha1.ConfigSource, why string) {
	switch {
	case d.InOwnersPods():
		return v1alpha1.ConfigSourceConfigMap, ""
	case s.Target.ConfigSource != v1alpha1.ConfigSourceAuto:
		return s.Target.ConfigSource, "as configured"
	case s.ConfigMapsEncrypted == nil:
		return v1alpha1.ConfigSourceAnnotation, "whether kube-apiserver encrypts configmaps with KMS is not known"
	case *s.ConfigMapsEncrypted:
		return v1alpha1.ConfigSourceAnnotation, "kube-apiserver encrypts configmaps with KMS"
	default:
		return v1alpha1.ConfigSourceConfigMap, "kube-apiserver does not encrypt configmaps with KMS"
	}
}

// file is one of the reporter's, in a ConfigMap.
type file struct {
	name    string // of the ConfigMap
	plugins []v1alpha1.Plugin
}

// fileOf is that of a plugin set.
func (p *planner) fileOf(set []v1alpha1.Plugin) file {
	return file{manifests.ConfigMapName(p.Target.Name, set), set}
}

// configMaps plans the ConfigMaps of files, the first of those with one name, and of the files
// that earlier pods still mount: those keep their plugins, and get every other change. They are
// applied before pods that mount them. Where their content is copied into annotations they are
// applied after the pods, since they cannot be written while the plugin is unhealthy.
func (p *planner) configMaps(files ...file) error {
	namespace := p.ReportersNamespace(p.Target.Delivery)
	for _, cm := range p.own("ConfigMap") {
		if cm.GetNamespace() == namespace && p.inUse(cm) {
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
var fileAnnotations = []string{manifests.ConfigAnnotation, manifests.KubeconfigAnnotation}

// liveFiles keeps a change of the files live where a DaemonSet's pods have them in
// annotations: its template, of which a change would replace the pods, keeps the files of
// the plugin set's first version, and the pods get the current ones.
func (p *planner) liveFiles(ds *unstructured.Unstructured) {
	if p.Target.ConfigSource != v1alpha1.ConfigSourceAnnotation {
		return
	}
	wanted := templateAnnotations(ds)
	hash := wanted[manifests.ConfigHashAnnotation]
	for _, o := range p.own("Pod") {
		is := o.GetAnnotations()
		_, copied := is[manifests.ConfigAnnotation] // one that mounts the ConfigMap is being replaced
		if !copied || o.GetLabels()[manifests.DeliveryLabel] != string(v1alpha1.DeliveryDaemonSet) || is[manifests.ConfigHashAnnotation] != hash || o.GetDeletionTimestamp() != nil || maps.Equal(filesOf(is), filesOf(wanted)) {
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
		if _, has := was[manifests.ConfigAnnotation]; !has || was[manifests.ConfigHashAnnotation] != hash {
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
