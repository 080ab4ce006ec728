package reportercontroller

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// deliveries plan the reporters of each mode, and find what prevents them from being where the plugins are. Package
// pluginhealthcontroller judges, by pods and reports, whether each reporter runs and reports.
var deliveries = map[v1alpha1.Mode]func(*planner){
	v1alpha1.ModeCompanionPod: (*planner).companions,
	v1alpha1.ModeDaemonSet:    (*planner).daemonSet,
	v1alpha1.ModeSidecar:      (*planner).inOwnersPods,
}

// deliver plans a target with reporters. reason and why are its status once nothing is left to do.
func (p *planner) deliver(mode v1alpha1.Mode, reason delivery.Reason, why string) {
	p.Target.Mode = mode
	if p.state.Mode == "" {
		p.state.Mode = mode
	}
	p.checkEncrypted()
	// 1. Who the reporters are, what they read, and what runs.
	identity := p.identity()
	p.Apply = append(p.Apply, identity...)
	p.state.InTarget = p.state.InTarget || mode.InOwnersPods()
	deliveries[mode](p)
	p.notStarted()
	// 2. The old reporters stay until the new ones report.
	switching := p.state.Mode != mode && (p.pending ||
		slices.ContainsFunc(p.pods, func(a apiServerPod) bool { return !p.takenOverOn(a.Node) }))
	if switching {
		p.keepSubjects(identity)
		p.wait("the earlier reporters (%s) stay until those of %s report", p.state.Mode, mode)
	} else {
		p.state.Mode = mode
	}
	switch {
	case switching:
		p.prune(true)
	case !p.pending:
		if !mode.InOwnersPods() || p.Target.OwnerInjects() {
			p.eject()
		}
		p.prune(false)
		p.state.InTarget = mode.InOwnersPods() || p.inTarget()
	}
	p.Status = p.delivered(delivery.Status{Reason: reason, Message: fmt.Sprintf("%s: %s", mode, why)})
}

// delivered returns the status of a delivery. Problems come before waits.
func (p *planner) delivered(done delivery.Status) delivery.Status {
	switch {
	case len(p.problems) > 0:
		return delivery.Worst(p.problems)
	case p.pending:
		return transient
	case len(p.waits) > 0:
		return delivery.Status{Reason: contract.Progressing, Message: delivery.Join(p.waits)}
	}
	return done
}

// identity returns the ServiceAccount and its binding. The ClusterRole becomes the plan's Anchor.
func (p *planner) identity() []*unstructured.Unstructured {
	all := p.Identity()
	p.Anchor = ofKind(all, "ClusterRole")[0]
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o == p.Anchor })
}

// keepSubjects keeps the current subjects of the ClusterRoleBinding while the mode changes.
func (p *planner) keepSubjects(identity []*unstructured.Unstructured) {
	binding := ofKind(identity, "ClusterRoleBinding")[0]
	live := p.find(binding)
	if live == nil {
		return
	}
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	had, _, _ := unstructured.NestedSlice(live.Object, "subjects")
	for _, subject := range had {
		if !slices.ContainsFunc(subjects, func(s any) bool { return reflect.DeepEqual(s, subject) }) {
			subjects = append(subjects, subject)
		}
	}
	_ = unstructured.SetNestedSlice(binding.Object, subjects, "subjects")
}

// inTarget reports whether the target's namespace has, or may have, objects of the operator.
func (p *planner) inTarget() bool {
	return p.Snapshot.State.InTarget && (p.Unlisted != nil ||
		slices.ContainsFunc(p.Own, func(o *unstructured.Unstructured) bool {
			return o.GetNamespace() == p.Target.Namespace && (o.GetKind() == "ConfigMap" || o.GetKind() == "ServiceAccount")
		}))
}

// checkEncrypted adds problems for what reporters need although kube-apiserver encrypts it with KMS, and for sockets
// that reporters in their own pods cannot reach.
func (p *planner) checkEncrypted() {
	if to := p.Target.ReportsTo(); slices.Contains(p.Encrypted, to.GVR().GroupResource()) {
		p.problem(contract.ReportsEncrypted, "kube-apiserver encrypts %[1]s with KMS, as by an entry for *.*: reports and "+
			"conditions cannot be written from 3 minutes after its plugin becomes unhealthy. In the encryption config, "+
			"before that entry, give %[1]s an entry of its own, without KMS", to.Plural)
	}
	if p.Target.Mode.InOwnersPods() {
		return
	}
	if p.MountsConfigMap() && slices.Contains(p.Encrypted, encryptionconfig.ConfigMaps) {
		p.problem(contract.ConfigMapsEncrypted, objects.ConfigMapsEncrypted)
	}
	for _, a := range p.pods {
		for _, plugin := range a.plugins {
			if why := p.NotReachable(plugin.Endpoint); why != "" {
				p.problem(contract.SocketVolumeMissing, "%s", why)
			}
		}
	}
}

// companions plans a companion for one API server pod of each node.
func (p *planner) companions() {
	if len(p.pods) == 0 && !p.pending {
		p.problem(contract.NoPods, "no running pod of the API server has a KMS plugin yet")
	}
	files := map[string][]v1alpha1.Plugin{} // of sets with the same sockets, the last one counts
	var pods []*unstructured.Unstructured
	for _, a := range p.served() {
		files[objects.ConfigMapName(p.Target.Name, a.plugins)] = a.plugins
		if a.started {
			pods = append(pods, p.CompanionPod(a.APIServerPod, a.plugins))
		}
	}
	p.configMaps(files)
	p.Apply = append(p.Apply, pods...)
}

// served returns the pods that reports are about: on each node the one that precedes the others, since two companions
// would overwrite one condition.
func (p *planner) served() []apiServerPod {
	all := slices.Clone(p.pods)
	for i := range all {
		a := &all[i]
		if made, has := p.companionUser(*a); has {
			a.User, a.companion = made, true
		}
		a.started = a.companion || !p.starting(*a)
	}
	slices.SortFunc(all, p.precedence)
	return slices.CompactFunc(all, func(a, b apiServerPod) bool { return a.Node == b.Node })
}

// precedence sorts pods by node, and then by how much the node's report is to be about them. First come those for which
// a companion can be created; then those that are not being deleted; then those that this process saw later. Pods that
// were there at the process's start are equal in that: then those with a companion come first, then the newer ones.
func (p *planner) precedence(a, b apiServerPod) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), trueFirst(a.started, b.started),
		trueFirst(a.pod.DeletionTimestamp == nil, b.pod.DeletionTimestamp == nil),
		cmp.Compare(p.Seen[a.pod.UID], p.Seen[b.pod.UID]),
		trueFirst(a.companion, b.companion),
		b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time), strings.Compare(a.UID, b.UID))
}

// trueFirst compares so that true comes before false.
func trueFirst(a, b bool) int { return map[bool]int{true: 1}[b] - map[bool]int{true: 1}[a] }

func (p *planner) daemonSet() {
	plugins := p.agentPlugins()
	var folders []objects.Folder
	for _, a := range p.pods {
		for _, f := range a.Folders {
			at := slices.IndexFunc(folders, func(other objects.Folder) bool { return other.MountPath == f.MountPath })
			switch {
			case f.EmptyDir:
				p.problem(contract.SocketVolumeMissing, "%s of pod %s/%s is in a volume of the pod, where no DaemonSet "+
					"reaches it; use mode CompanionPod", f.MountPath, a.pod.Namespace, a.pod.Name)
			case at < 0:
				folders = append(folders, f)
			case folders[at].HostPath != f.HostPath:
				p.problem(contract.SocketVolumeMissing, "%s is %s on some nodes and %s on others, which one DaemonSet "+
					"cannot serve", f.MountPath, folders[at].HostPath, f.HostPath)
			}
		}
	}
	if len(folders) == 0 { // no pod shows them, as in a rollout on a single node
		folders = objects.AsNamed(plugins)
		for i, f := range folders {
			last := slices.IndexFunc(p.state.Folders, func(l objects.Folder) bool { return l.MountPath == f.MountPath })
			if last >= 0 {
				folders[i] = p.state.Folders[last]
			}
		}
	}
	// A socket in a folder that no pod mounts yet is probed once one does.
	plugins = slices.DeleteFunc(plugins, func(plugin v1alpha1.Plugin) bool {
		folder := v1alpha1.SocketFolder(plugin.Endpoint)
		return folder != "" && !slices.ContainsFunc(folders, func(f objects.Folder) bool { return f.MountPath == folder })
	})
	slices.SortFunc(folders, func(a, b objects.Folder) int { return strings.Compare(a.MountPath, b.MountPath) })
	p.state.Folders = folders
	ds := p.DaemonSet(folders, p.agentUser(), plugins)
	p.configMaps(map[string][]v1alpha1.Plugin{objects.ConfigMapName(p.Target.Name, plugins): plugins})
	p.liveFiles(ds, p.File(plugins))
	p.apply(ds)
	p.selectsNodes()
}

// agentPlugins returns the union of the live set and of the sets of running pods, which use theirs until they are
// rolled out. The live set comes first, and there are at most as many plugins as a file can have. Of two plugins with
// one key ID or one socket, it has the one that more running pods use.
func (p *planner) agentPlugins() (union []v1alpha1.Plugin) {
	socket := func(plugin v1alpha1.Plugin) v1alpha1.Plugin {
		return v1alpha1.Plugin{KeyID: plugin.KeyID, Endpoint: v1alpha1.Plain(plugin.Endpoint)}
	}
	all, users := p.livePlaced(), map[v1alpha1.Plugin]int{}
	for _, a := range p.pods {
		all = append(all, a.plugins...)
		for _, plugin := range a.plugins {
			users[socket(plugin)]++
		}
	}
	for _, plugin := range all {
		s := socket(plugin)
		conflicts := func(other v1alpha1.Plugin) bool {
			return other.KeyID == s.KeyID || socket(other).Endpoint == s.Endpoint
		}
		stays := func(other v1alpha1.Plugin) bool { return conflicts(other) && users[socket(other)] >= users[s] }
		at := slices.IndexFunc(union, conflicts)
		switch {
		case at < 0 && len(union) < v1alpha1.MaxPlugins:
			union = append(union, plugin)
		case at >= 0 && !slices.ContainsFunc(union, stays):
			union = slices.Insert(slices.DeleteFunc(union, conflicts), at, plugin)
		}
	}
	return union
}

// liveFiles updates the files in the running pods' annotations. The DaemonSet's template keeps the first version of its
// plugin set, because a change of the template would restart the pods.
func (p *planner) liveFiles(ds *unstructured.Unstructured, file []byte) {
	wanted := informers.As[appsv1.DaemonSet](ds).Spec.Template.Annotations
	hasFiles := func(annotations map[string]string) bool { // others mount the ConfigMap, or are being replaced
		return annotations[contract.ConfigAnnotation] != "" &&
			annotations[contract.ConfigHashAnnotation] == wanted[contract.ConfigHashAnnotation]
	}
	put := func(o *unstructured.Unstructured, files map[string]string, path ...string) {
		for _, name := range []string{contract.ConfigAnnotation, contract.KubeconfigAnnotation} {
			_ = unstructured.SetNestedField(o.Object, files[name], append(path, "metadata", "annotations", name)...)
		}
	}
	if !hasFiles(wanted) {
		return
	}
	wanted[contract.ConfigAnnotation] = string(file) // with a request, which the template does not have
	for _, o := range p.own("Pod") {
		if hasFiles(o.GetAnnotations()) && modeOf(o).ServesNode() && o.GetDeletionTimestamp() == nil && !ended(o) {
			pod := o.DeepCopy() // only its metadata is written
			put(pod, wanted)
			p.Apply = append(p.Apply, pod)
		}
	}
	if live := p.find(ds); live != nil {
		if first := informers.As[appsv1.DaemonSet](live).Spec.Template.Annotations; hasFiles(first) {
			put(ds, first, "spec", "template")
		}
	}
}

// livePlaced returns the plugins of the live set that reporters may reach. Own pods do not mount every folder: such a
// plugin is a problem. If running pods show that none of them has a socket, its plugin is dropped, unless the pods'
// owner adds the reporter.
func (p *planner) livePlaced() []v1alpha1.Plugin {
	return slices.DeleteFunc(slices.Clone(p.state.Live), func(plugin v1alpha1.Plugin) bool {
		folder := v1alpha1.SocketFolder(plugin.Endpoint)
		if err := v1alpha1.CheckSocketFolder(folder); err != nil && !p.Target.Mode.InOwnersPods() {
			p.problem(contract.SocketVolumeMissing, "%s: %v", plugin.Endpoint, err)
			return true
		}
		return len(p.pods) > 0 && p.unplaced[plugin.Endpoint] && !p.Target.OwnerInjects()
	})
}

// inOwnersPods plans the objects that the API server's own pods mount: a file for each plugin set that one of them
// has or is about to have, and a token, unless the pods' owner provides the credentials.
func (p *planner) inOwnersPods() {
	sets := [][]v1alpha1.Plugin{p.livePlaced()}
	for _, a := range p.pods {
		sets = append(sets, a.plugins)
	}
	if !p.Target.OwnerInjects() {
		p.Token = true
		sets = append(sets, p.inject())
	}
	files := map[string][]v1alpha1.Plugin{}
	for _, set := range slices.Backward(sets) { // if two have one name, the first one counts
		files[objects.ConfigMapName(p.Target.Name, set)] = set
	}
	p.configMaps(files)
	p.inAPIServerPods()
}

// configMaps plans the ConfigMaps of files, by name, if pods mount them, and of files that older pods still mount:
// these keep their plugins, and get every other change.
func (p *planner) configMaps(files map[string][]v1alpha1.Plugin) {
	if !p.MountsConfigMap() {
		clear(files)
	}
	namespace := p.ReportersNamespace()
	for _, cm := range p.own("ConfigMap") {
		if _, known := files[cm.GetName()]; cm.GetNamespace() == namespace && !known && p.inUse(cm) {
			file, _, _ := unstructured.NestedString(cm.Object, "data", contract.ConfigFile)
			if c, err := v1alpha1.DecodeReporter([]byte(file)); err == nil {
				files[cm.GetName()] = c.Plugins
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if len(files[name]) > 0 {
			p.apply(p.ConfigMap(name, files[name]))
		}
	}
}

// mounted reports whether a pod of the target mounts a ConfigMap or Secret of a name.
func (s *Snapshot) mounted(name string) bool {
	return slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool { return mounts(&pod.Spec, name) })
}

func mounts(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == name || v.Secret != nil && v.Secret.SecretName == name
	})
}
