package pluginhealthcontroller

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// observe adds the nodes and pods to the input; false: a source is not known.
func (s *healthSync) observe(in *rollup.Input) (known bool) {
	t := s.target
	if !t.SetsKnown && len(s.resource.Reports) == 0 || !s.readSources(in) {
		return false
	}
	var pods []*corev1.Pod
	if !t.NamespaceMissing {
		pods = t.Sources.Pods.List()
	}
	pods, ours := s.readers(pods), byNode(reporterPods(t.Name, t.Sources.Cluster.OwnPods.List()))
	denied := len(in.NotObserved) > 0
	if s.attendance == nil && in.Previous[contract.PluginsDegraded].Status == operatorstatus.True {
		s.stood = s.now.Add(rollup.FirstReport)
	}
	in.Stood = s.stood
	s.before, s.attendance = s.attendance, map[string]nodeHistory{}
	if in.Alone = len(pods) == 0 && t.State.Mode.ServesNode(); in.Alone {
		pods = s.hosts()
	}
	s.expect(in, byNode(pods), ours)
	if !denied { // another pod may write with another key
		in.WriteKey, in.NoWriteKey = configuredKey(t)
	}
	if t.State.NotProbed != "" {
		in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.ProviderNotProbed, Text: t.State.NotProbed})
	}
	return true
}

// readers returns the pods that are on a node, have not ended permanently, and may read an encryption config.
func (s *healthSync) readers(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		_, reads := delivery.RevisionOf(s.target.EncryptionConfig.Secret, &p.Spec, p.Labels)
		return !delivery.Alive(p) || s.target.Plugins == nil && !reads
	})
}

func byNode(pods []*corev1.Pod) map[string][]*corev1.Pod {
	all := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		all[pod.Spec.NodeName] = append(all[pod.Spec.NodeName], pod)
	}
	return all
}

func isAgent(p *corev1.Pod) bool { return v1alpha1.Mode(p.Labels[contract.ModeLabel]).ServesNode() }

// expect adds the nodes that API servers run on, each with the plugins of the pod that counts, and what the other
// pods write with. A static pod operator may list a pod that is not shown, since a kubelet is about to create its
// mirror again. That ends no agreement, but no agreement begins without it. ours are the reporters' pods.
func (s *healthSync) expect(in *rollup.Input, pods, ours map[string][]*corev1.Pod) {
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		its, exists := s.node(name)
		if !exists {
			continue
		}
		look := s.lookAt(name, in)
		pod, second := look.choose(pods[name])
		for _, other := range pods[name] {
			if other != pod {
				n, _ := uses(s.target, other)
				in.Others = append(in.Others, n)
			}
		}
		if pod == nil {
			continue
		}
		n, plugins := uses(s.target, pod)
		b := newBeside(s.target, pod, plugins, look.latest(ours[name]))
		if len(second) > 0 {
			for _, p := range append(second, pod) {
				n.Pods = append(n.Pods, p.Namespace+"/"+p.Name)
			}
			slices.Sort(n.Pods)
			since := look.since("several pods", look.reporting.Reason == contract.SeveralPods)
			n.PodsDue = since.Add(rollup.FirstReport)
		}
		served := b.reporter != nil && isAgent(b.reporter) || b.reporter == nil && s.target.State.Mode.ServesNode()
		if served && !in.Alone {
			n.NotMounted = notMounted(s.target, pod, plugins)
		}
		n.Ready = its.Ready
		look.complete(&n, b, ours[name])
		s.attendance[name] = look.nodeHistory
		in.Nodes = append(in.Nodes, n)
	}
	for _, listed := range s.resource.Nodes { // a static pod may run without a mirror
		_, exists := s.node(listed.Name)
		if exists && listed.Revision != "" && len(pods[listed.Name]) == 0 && s.agreement.KeyID == "" {
			in.Others = append(in.Others, rollup.Node{Name: listed.Name, WriteKeyNotKnown: true})
		}
	}
}

// hosts returns a pod for each node that should have an agent, for an API server that runs outside of pods.
func (s *healthSync) hosts() (pods []*corev1.Pod) {
	for _, n := range s.target.Sources.Cluster.Nodes.List() {
		_, controlPlane := n.Labels[objects.ControlPlaneLabel] // the default
		selected := labels.SelectorFromSet(s.target.NodeSelector).Matches(labels.Set(n.Labels))
		if selected && (controlPlane || s.target.NodeSelector != nil) {
			pods = append(pods, &corev1.Pod{Spec: corev1.PodSpec{NodeName: n.Name}})
		}
	}
	return pods
}

// readSources reports whether all sources were read or are denied, and adds denials to the input. A denial of the API
// server's pods counts even if they were read before: each may have been replaced by one with another key. A denial
// counts once it lasts.
func (s *healthSync) readSources(in *rollup.Input) (known bool) {
	t, pods := s.target, "the pods of namespace "+s.target.Namespace
	cluster := t.Sources.Cluster
	sources := map[string]informers.Source{"Nodes": cluster.Nodes, "the reporters' pods": cluster.OwnPods}
	if !t.NamespaceMissing {
		sources[pods] = t.Sources.Pods
	}
	for _, what := range slices.Sorted(maps.Keys(sources)) {
		read, problem := sources[what].HasSynced(), sources[what].Problem()
		if informers.Denied(problem) && (!read || what == pods) {
			in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.SourceUnreadable,
				Text: fmt.Sprintf("%s cannot be read: %v", what, problem)})
			s.unread, read = s.unread || !read, true
		}
		if !read {
			return false
		}
	}
	return true
}

// uses returns the plugins of an API server's pod, nil while they are not known, and what it writes with. A live set
// that cannot be read any more may have been replaced. A provider that cannot be probed may be the one that encrypts.
func uses(t *delivery.Snapshot, pod *corev1.Pod) (n rollup.Node, plugins []v1alpha1.Plugin) {
	n = rollup.Node{Name: pod.Spec.NodeName, WriteKeyNotKnown: true}
	revision, _ := delivery.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)
	plugins, current := t.State.Revisions[revision]
	switch {
	case t.Plugins != nil:
		plugins, current = t.Plugins, true
	case current:
	case t.SetsKnown && revision == "":
		plugins, current = t.State.Live, t.LiveKnown
	default:
		return n, nil
	}
	n.Keys, n.Sockets = make([]string, 0, len(plugins)), map[string]string{}
	for _, p := range plugins {
		n.Keys = append(n.Keys, p.KeyID)
		if address, err := v1alpha1.SocketAddress(p.Endpoint); err == nil {
			n.Sockets[p.KeyID] = v1alpha1.CleanSocket(address)
		}
	}
	n.WriteKey, n.WriteKeyOfSome = delivery.WriteKey(plugins), t.State.Mixed[revision]
	n.WriteKeyNotKnown = !current || !loaded(t, pod, revision) || n.WriteKey == "" && t.State.NotProbed != ""
	return n, plugins
}

// notMounted returns the keyIDs of plugins whose sockets' folders a pod does not mount from its node as its agent does.
func notMounted(t *delivery.Snapshot, pod *corev1.Pod, plugins []v1alpha1.Plugin) (keys []string) {
	other := func(f objects.Folder) bool {
		return f.EmptyDir || len(t.State.Folders) > 0 && !slices.Contains(t.State.Folders, f)
	}
	for _, p := range plugins {
		folders, err := objects.FindFolders(pod, t.Container, p)
		if err != nil || slices.ContainsFunc(folders, other) {
			keys = append(keys, p.KeyID)
		}
	}
	return keys
}

// configuredKey returns the write key of the configuration as last read, and whether it is known to have none.
func configuredKey(t *delivery.Snapshot) (key string, none bool) {
	key = delivery.WriteKey(t.State.Live)
	return key, t.LiveKnown && key == "" && t.State.NotProbed == ""
}

// loaded reports whether the API server of a pod is known to have loaded the plugin set that the pod uses. The Secret
// of a revision does not change. Of any other set, a container may still use what it read at its start. A pod that
// shows no container yet counts as loaded, so that it ends no agreement: a mirror pod has a status within seconds.
func loaded(t *delivery.Snapshot, pod *corev1.Pod, revision string) bool {
	return t.Plugins == nil && revision != "" ||
		!slices.Contains(t.State.NotLoaded, delivery.ContainerStatus(pod, t.Container).ContainerID)
}
