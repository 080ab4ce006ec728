package apiserver

import (
	"fmt"
	"slices"

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
