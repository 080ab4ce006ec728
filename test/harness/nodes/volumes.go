package nodes

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// volumes are what a process's container mounts. They are used by one goroutine.
type volumes struct {
	process  *process
	mounted  []corev1.Volume // with files that we write
	rewriter *rewriter
	err      error               // permanent: an unsupported volume
	objects  map[string]*watched // by resource/name
	tokens   map[string]*token   // by volume/path
}

type token struct {
	value          string
	renew, expires time.Time
}

// newVolumes watches until ctx ends each ConfigMap and Secret that is mounted,
// alone, as a kubelet does. It does so as an administrator: a node's authorizer
// gets to know a pod too late.
func newVolumes(ctx context.Context, p *process, pod *corev1.Pod) *volumes {
	v := &volumes{process: p, objects: map[string]*watched{}, tokens: map[string]*token{}}
	byName := map[string]corev1.Volume{}
	for _, volume := range pod.Spec.Volumes {
		byName[volume.Name] = volume
	}
	n := p.sandbox.nodes
	replace := map[string]string{}
	if more := n.options.Processes.Replace; more != nil {
		maps.Copy(replace, more(pod.Spec.NodeName))
	}
	for _, mount := range n.options.Processes.of(pod).VolumeMounts {
		volume := byName[mount.Name]
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			v.err = fmt.Errorf("volume %s: the simulated kubelet does not support subPath", mount.Name)
			return v
		}
		dir, written, err := v.dir(volume, pod.Spec.NodeName)
		if err != nil {
			v.err = err
			return v
		}
		replace[filepath.Clean(mount.MountPath)] = dir
		if written {
			v.mounted = append(v.mounted, volume)
			v.watch(ctx, pod.Namespace, volume)
		}
	}
	v.rewriter = newRewriter(replace)
	return v
}

// dir is the folder of a volume, and whether it has files that we write.
func (v *volumes) dir(volume corev1.Volume, node string) (dir string, written bool, err error) {
	s := v.process.sandbox
	switch {
	case volume.EmptyDir != nil:
		return s.volume(emptyDirPlugin, volume.Name), false, nil
	case volume.HostPath != nil:
		dir := s.nodes.hostPath(node, volume.HostPath.Path)
		if kind := volume.HostPath.Type; kind != nil && *kind == corev1.HostPathDirectoryOrCreate {
			return dir, false, os.MkdirAll(dir, 0o755)
		}
		return dir, false, nil
	case volume.ConfigMap != nil:
		return s.volume(configMapPlugin, volume.Name), true, nil
	case volume.Secret != nil:
		return s.volume(secretPlugin, volume.Name), true, nil
	case volume.DownwardAPI != nil:
		return s.volume(downwardPlugin, volume.Name), true, nil
	case volume.Projected != nil:
		return s.volume(projectedPlugin, volume.Name), true, nil
	}
	return "", false, fmt.Errorf("volume %s: the simulated kubelet does not support its kind", volume.Name)
}

// hostPaths returns which of those that must be there are not.
func (v *volumes) hostPaths(pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.HostPath == nil || volume.HostPath.Type == nil {
			continue
		}
		path := v.process.sandbox.nodes.hostPath(pod.Spec.NodeName, volume.HostPath.Path)
		switch *volume.HostPath.Type {
		case corev1.HostPathDirectory, corev1.HostPathFile, corev1.HostPathSocket:
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("volume %s: hostPath type check failed: %w", volume.Name, err)
			}
		}
	}
	return nil
}

func (v *volumes) watch(ctx context.Context, namespace string, volume corev1.Volume) {
	one := func(resource, name string, kind runtime.Object) {
		key := resource + "/" + name
		if v.objects[key] == nil {
			v.objects[key] = v.process.sandbox.nodes.watch(ctx, resource, namespace,
				fields.OneTermEqualSelector(metav1.ObjectNameField, name), kind, func(string) { v.process.poke() })
		}
	}
	if source := volume.ConfigMap; source != nil {
		one("configmaps", source.Name, &corev1.ConfigMap{})
	}
	if source := volume.Secret; source != nil {
		one("secrets", source.SecretName, &corev1.Secret{})
	}
	if volume.Projected == nil {
		return
	}
	for _, source := range volume.Projected.Sources {
		if source.ConfigMap != nil {
			one("configmaps", source.ConfigMap.Name, &corev1.ConfigMap{})
		}
		if source.Secret != nil {
			one("secrets", source.Secret.Name, &corev1.Secret{})
		}
	}
}

// update writes what has changed, and reports when it is to be called again without
// a cause: never, for the zero time. A volume that is there already keeps its
// files when it cannot be brought up to date.
func (v *volumes) update(ctx context.Context, pod *corev1.Pod) (due time.Time, err error) {
	if v.err != nil {
		return due, v.err
	}
	for _, volume := range v.mounted {
		files, err := v.files(ctx, pod, volume)
		if err != nil {
			return due, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		dir, _, err := v.dir(volume, pod.Spec.NodeName)
		if err != nil {
			return due, err
		}
		if err := writeAtomically(dir, files); err != nil {
			return due, err
		}
	}
	for _, t := range v.tokens {
		if due.IsZero() || t.renew.Before(due) {
			due = t.renew
		}
	}
	return due, nil
}

func (v *volumes) files(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) (map[string]file, error) {
	files := map[string]file{}
	add := func(path string, data []byte, mode, defaultMode *int32) {
		if mode == nil {
			mode = defaultMode
		}
		bits := os.FileMode(0o644)
		if mode != nil {
			bits = os.FileMode(*mode).Perm()
		}
		files[path] = file{data: data, mode: bits}
	}
	switch {
	case volume.ConfigMap != nil:
		source := volume.ConfigMap
		return files, v.project("configmaps", source.Name, pod.Namespace, source.Items, isTrue(source.Optional), source.DefaultMode, add)
	case volume.Secret != nil:
		source := volume.Secret
		return files, v.project("secrets", source.SecretName, pod.Namespace, source.Items, isTrue(source.Optional), source.DefaultMode, add)
	case volume.DownwardAPI != nil:
		return files, v.downward(pod, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode, add)
	}
	mode := volume.Projected.DefaultMode
	for _, source := range volume.Projected.Sources {
		var err error
		switch {
		case source.ConfigMap != nil:
			err = v.project("configmaps", source.ConfigMap.Name, pod.Namespace, source.ConfigMap.Items, isTrue(source.ConfigMap.Optional), mode, add)
		case source.Secret != nil:
			err = v.project("secrets", source.Secret.Name, pod.Namespace, source.Secret.Items, isTrue(source.Secret.Optional), mode, add)
		case source.DownwardAPI != nil:
			err = v.downward(pod, source.DownwardAPI.Items, mode, add)
		case source.ServiceAccountToken != nil:
			var value string
			value, err = v.token(ctx, pod, volume.Name, source.ServiceAccountToken)
			add(source.ServiceAccountToken.Path, []byte(value), nil, mode)
		default:
			err = fmt.Errorf("the simulated kubelet does not support one of its sources")
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

type addFile func(path string, data []byte, mode, defaultMode *int32)

func (v *volumes) project(resource, name, namespace string, items []corev1.KeyToPath, optional bool, mode *int32, add addFile) error {
	watched := v.objects[resource+"/"+name]
	if !watched.isSynced() {
		return fmt.Errorf("%s %q is not read yet", resource, name)
	}
	found, _, err := watched.GetByKey(namespace + "/" + name)
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	switch object := found.(type) {
	case *corev1.ConfigMap:
		for key, text := range object.Data {
			data[key] = v.rewriter.content([]byte(text))
		}
		maps.Copy(data, object.BinaryData)
	case *corev1.Secret:
		data = object.Data
	default:
		if !optional {
			return fmt.Errorf("%s %q not found", resource, name)
		}
	}
	if items == nil {
		for key, value := range data {
			add(key, value, nil, mode)
		}
	}
	for _, item := range items {
		value, found := data[item.Key]
		if found {
			add(item.Path, value, item.Mode, mode)
		} else if !optional {
			return fmt.Errorf("%s %q has no key %q", resource, name, item.Key)
		}
	}
	return nil
}

func (v *volumes) downward(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32, add addFile) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: the simulated kubelet supports no source but fieldRef", item.Path)
		}
		value, err := field(pod, item.FieldRef.FieldPath, v.process.sandbox)
		if err != nil {
			return err
		}
		add(item.Path, v.rewriter.content([]byte(value)), item.Mode, mode)
	}
	return nil
}

// token returns the active one, or a new one at 80% of its life, as a kubelet
// does (k8s.io/kubernetes/pkg/kubelet/token).
func (v *volumes) token(ctx context.Context, pod *corev1.Pod, volume string, source *corev1.ServiceAccountTokenProjection) (string, error) {
	key, now := volume+"/"+source.Path, time.Now()
	held := v.tokens[key]
	if held != nil && now.Before(held.renew) {
		return held.value, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	answer, err := v.process.sandbox.kubelet.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	switch {
	case err == nil:
		expires := answer.Status.ExpirationTimestamp.Time
		v.tokens[key] = &token{value: answer.Status.Token, expires: expires, renew: now.Add(expires.Sub(now) * 8 / 10)}
		return answer.Status.Token, nil
	case held != nil && now.Before(held.expires):
		held.renew = now.Add(time.Second)
		v.process.log("a token is not renewed yet", err)
		return held.value, nil
	}
	return "", fmt.Errorf("mint a token: %w", err)
}
