package apiserver

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// companions plans a pod beside each API server pod.
func (p *planner) companions() error {
	var files []file
	for _, a := range p.pods {
		if a.pod.DeletionTimestamp != nil && p.replaced(a) {
			continue
		}
		pod, err := p.CompanionPod(a.APIServerPod, a.plugins)
		if err != nil {
			return err
		}
		files = append(files, file{objects.CompanionConfigMapName(p.Target.Name, a.plugins), a.plugins})
		p.plan.Workloads = append(p.plan.Workloads, pod)
	}
	return p.configMaps(files...)
}

// sameBeside reports whether two pods are companions of one API server pod.
func sameBeside(a, b *unstructured.Unstructured) bool {
	beside := a.GetAnnotations()[contract.BesideAnnotation]
	return beside != "" && beside == b.GetAnnotations()[contract.BesideAnnotation] && nodeOf(a) == nodeOf(b)
}

// replaced reports whether a newer pod runs on the node of a terminating one. Its
// companion then writes the node's report alone.
func (p *planner) replaced(old apiServerPod) bool {
	return slices.ContainsFunc(p.pods, func(a apiServerPod) bool {
		return a.Node == old.Node && a.UID != old.UID && a.pod.DeletionTimestamp == nil
	})
}

func (p *planner) daemonSet() error {
	plugins := p.livePlaced()
	var folders []objects.Folder
	for _, a := range p.pods {
		if len(plugins) == 0 {
			plugins = a.plugins // it is being turned off, and still read
		}
		for _, f := range a.Folders {
			at := slices.IndexFunc(folders, func(other objects.Folder) bool { return other.MountPath == f.MountPath })
			switch {
			case f.EmptyDir:
				p.problem(contract.SocketVolumeMissing,
					fmt.Sprintf("%s of pod %s/%s is in a volume of the pod, where no DaemonSet reaches it; use mode CompanionPod",
						f.MountPath, a.pod.Namespace, a.pod.Name))
			case at < 0:
				folders = append(folders, f)
			case folders[at].HostPath != f.HostPath:
				p.problem(contract.SocketVolumeMissing,
					fmt.Sprintf("%s is %s on some nodes and %s on others, which one DaemonSet cannot serve", f.MountPath,
						folders[at].HostPath, f.HostPath))
			}
		}
	}
	if len(folders) == 0 { // no pod shows them, as in a rollout on a single node
		folders = lastKnown(p.state.Folders, objects.AsNamed(plugins))
	}
	slices.SortFunc(folders, func(a, b objects.Folder) int { return strings.Compare(a.MountPath, b.MountPath) })
	p.state.Folders = folders
	ds, err := p.DaemonSet(folders, plugins)
	if err != nil {
		return err
	}
	p.liveFiles(ds)
	p.plan.Workloads = append(p.plan.Workloads, ds)
	return p.configMaps(p.fileOf(plugins))
}

// livePlaced are the plugins of the current configuration but those that no pod can reach,
// while pods show that. The owner of pods decides for its own.
func (p *planner) livePlaced() []v1alpha1.Plugin {
	return slices.DeleteFunc(slices.Clone(p.live()), func(plugin v1alpha1.Plugin) bool {
		return len(p.pods) > 0 && p.unplaced[plugin.Endpoint] && !p.Target.OwnerInjects()
	})
}

// lastKnown replaces each folder by the one that pods last showed at its mount path.
func lastKnown(last, folders []objects.Folder) []objects.Folder {
	var all []objects.Folder
	for _, f := range folders {
		if i := slices.IndexFunc(last, func(l objects.Folder) bool { return l.MountPath == f.MountPath }); i >= 0 {
			f = last[i]
		}
		all = append(all, f)
	}
	return all
}

// inOwnersPods plans the objects that other owners' pods mount: a file for each plugin set
// that one of them has or is about to have, and, unless their owner brings it,
// a token.
func (p *planner) inOwnersPods() error {
	files := []file{p.fileOf(p.livePlaced())}
	for _, a := range p.pods {
		files = append(files, p.fileOf(a.plugins))
	}
	if p.Deployment != nil && !p.Target.OwnerInjects() {
		files = append(files, p.fileOf(p.templatePlugins(p.Deployment)))
	}
	if err := p.configMaps(files...); err != nil {
		return err
	}
	if p.Target.OwnerInjects() {
		return nil
	}
	p.plan.Token, p.state.Token = true, true
	return p.inject()
}

// templatePlugins are the plugins that the reporter in a Deployment's pods reaches.
func (p *planner) templatePlugins(d *appsv1.Deployment) []v1alpha1.Plugin {
	t := &d.Spec.Template
	return p.mountable(fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name), &t.Spec, p.setOf(&t.Spec, t.Labels))
}

// pluginsOf reads the plugin set of a ConfigMap of ours that only an earlier pod has.
func pluginsOf(cm *unstructured.Unstructured) []v1alpha1.Plugin {
	file, _, _ := unstructured.NestedString(cm.Object, "data", contract.ConfigFile)
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		return nil
	}
	return c.Plugins
}

// mounted reports whether a pod of the target mounts a ConfigMap or Secret of a name.
func (p *planner) mounted(name string) bool {
	return slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool { return mounts(&pod.Spec, name) })
}

func mounts(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == name || v.Secret != nil && v.Secret.SecretName == name
	})
}
