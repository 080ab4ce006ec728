package delivery

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// companions plans a pod beside each API server pod without a third-party reporter. Where a
// pod replaces an earlier one beside the same API server, this is one node at a time.
func (p *planner) companions() error {
	var files []file
	var next []*unstructured.Unstructured // replace earlier ones, and do not exist yet
	replacing := false
	for _, a := range p.pods {
		if a.thirdParty || a.pod.DeletionTimestamp != nil && p.replaced(a) {
			continue
		}
		pod, err := p.Companion(a.APIServerPod, a.plugins)
		if err != nil {
			return err
		}
		files = append(files, file{manifests.CompanionConfigMapName(p.Target.Name, a.plugins), a.plugins})
		switch earlier := p.hasEarlier(pod); {
		case earlier && p.find(pod) == nil:
			next = append(next, pod)
			continue
		case earlier:
			replacing = replacing || p.answered(p.find(pod))
		}
		p.plan.Workloads = append(p.plan.Workloads, pod)
	}
	if len(next) > 0 && !replacing {
		p.plan.Workloads = append(p.plan.Workloads, next[0])
		next = next[1:]
	}
	p.later = next
	return p.configMaps(files...)
}

// hasEarlier reports whether an earlier version of a companion runs, or may yet.
func (p *planner) hasEarlier(pod *unstructured.Unstructured) bool {
	return slices.ContainsFunc(p.own("Pod"), func(o *unstructured.Unstructured) bool {
		return sameBeside(o, pod) && o.GetName() != pod.GetName() && o.GetDeletionTimestamp() == nil && !ended(o, pod)
	})
}

// kubeletWait is how long a kubelet may take to see a new pod of its node. The others do
// not wait longer for a node that is down.
const kubeletWait = time.Minute

// answered reports whether a kubelet has seen a new pod, or may yet.
func (p *planner) answered(pod *unstructured.Unstructured) bool {
	if _, started, _ := unstructured.NestedString(pod.Object, "status", "startTime"); started || p.runs(pod) {
		return true
	}
	until := pod.GetCreationTimestamp().Add(kubeletWait)
	p.requeue(until)
	return p.Now.Before(until)
}

// sameBeside reports whether two pods are companions of one API server pod.
func sameBeside(a, b *unstructured.Unstructured) bool {
	beside := a.GetAnnotations()[manifests.BesideAnnotation]
	return beside != "" && beside == b.GetAnnotations()[manifests.BesideAnnotation] && nodeOf(a) == nodeOf(b)
}

// replaced reports whether a newer pod runs on the node of a terminating one. Its
// companion then writes the node's report alone.
func (p *planner) replaced(old apiServerPod) bool {
	return slices.ContainsFunc(p.pods, func(a apiServerPod) bool {
		return a.Node == old.Node && a.UID != old.UID && a.pod.DeletionTimestamp == nil
	})
}

func (p *planner) daemonSet() error {
	plugins := p.live()
	var folders []sockets.Folder
	for _, a := range p.pods {
		if len(plugins) == 0 {
			plugins = a.plugins // it is being turned off, and still read
		}
		for _, f := range a.Folders {
			at := slices.IndexFunc(folders, func(other sockets.Folder) bool { return other.MountPath == f.MountPath })
			switch {
			case f.EmptyDir:
				p.problem(SocketVolumeMissing, fmt.Sprintf("%s of pod %s/%s is in a volume of the pod, where no DaemonSet reaches it; use delivery Companion", f.MountPath, a.pod.Namespace, a.pod.Name))
			case at < 0:
				folders = append(folders, f)
			case folders[at].HostPath != f.HostPath:
				p.problem(SocketVolumeMissing, fmt.Sprintf("%s is %s on some nodes and %s on others, which one DaemonSet cannot serve", f.MountPath, folders[at].HostPath, f.HostPath))
			}
		}
	}
	if len(folders) == 0 { // no pod shows them, as in a rollout on a single node
		folders = lastKnown(p.state.Folders, asNamed(plugins))
	}
	slices.SortFunc(folders, func(a, b sockets.Folder) int { return strings.Compare(a.MountPath, b.MountPath) })
	p.state.Folders = folders
	ds, err := p.DaemonSet(folders, plugins)
	if err != nil {
		return err
	}
	p.liveFiles(ds)
	p.plan.Workloads = append(p.plan.Workloads, ds)
	return p.configMaps(p.fileOf(plugins))
}

// asNamed assumes that the endpoints' folders have the same path on the nodes.
func asNamed(plugins []v1alpha1.Plugin) []sockets.Folder {
	var folders []sockets.Folder
	for _, p := range plugins {
		address, err := v1alpha1.SocketAddress(p.Endpoint)
		if err != nil || strings.HasPrefix(address, "@") {
			continue
		}
		folder := path.Dir(v1alpha1.CleanSocket(address))
		f := sockets.Folder{MountPath: folder, HostPath: folder}
		if !slices.Contains(folders, f) {
			folders = append(folders, f)
		}
	}
	return folders
}

// lastKnown replaces each folder by the one that pods last showed at its mount path.
func lastKnown(last, folders []sockets.Folder) []sockets.Folder {
	var all []sockets.Folder
	for _, f := range folders {
		if i := slices.IndexFunc(last, func(l sockets.Folder) bool { return l.MountPath == f.MountPath }); i >= 0 {
			f = last[i]
		}
		all = append(all, f)
	}
	return all
}

// inOwnersPods plans the objects that other owners' pods mount: a file for each plugin set
// that one of them has or is about to have, and credentials.
func (p *planner) inOwnersPods(d v1alpha1.Delivery) error {
	files := []file{p.fileOf(p.live())}
	for _, a := range p.pods {
		files = append(files, p.fileOf(a.plugins))
	}
	if p.Deployment != nil && d == v1alpha1.DeliveryDeployment {
		files = append(files, p.fileOf(p.setOf(&p.Deployment.Spec.Template.Spec, p.Deployment.Spec.Template.Labels)))
	}
	if err := p.configMaps(files...); err != nil {
		return err
	}
	secret := manifests.CredentialsName(p.Target.Name, p.Target.Credentials)
	p.plan.Credentials = []CredentialsWanted{{Kind: p.Target.Credentials, Namespace: p.Target.Namespace, Name: secret}}
	if !slices.Contains(p.state.Secrets, secret) {
		p.state.Secrets = slices.Concat(p.state.Secrets, []string{secret})
	}
	if d == v1alpha1.DeliveryDeployment {
		return p.inject()
	}
	return nil
}

// pluginsOf reads the plugin set of a ConfigMap of ours.
func pluginsOf(cm *unstructured.Unstructured) []v1alpha1.Plugin {
	file, _, _ := unstructured.NestedString(cm.Object, "data", "config.yaml")
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
