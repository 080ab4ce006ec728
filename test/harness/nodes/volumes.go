package nodes

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenLife is that of a token, which is an hour by default, at 80% (k8s.io/kubernetes/pkg/kubelet/token).
const tokenLife = 48 * time.Minute

// newReplacer replaces the container's mountPaths by the folders of this host.
func (p *process) newReplacer(pod *corev1.Pod) *strings.Replacer {
	replace := map[string]string{}
	if more := p.nodes.options.Processes.Replace; more != nil {
		maps.Copy(replace, more(pod.Spec.NodeName))
	}
	for _, mount := range p.container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == mount.Name {
				replace[filepath.Clean(mount.MountPath)] = p.dir(volume)
			}
		}
	}
	// The longest first: a path may begin another one.
	from := slices.SortedFunc(maps.Keys(replace), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, f := range from {
		pairs = append(pairs, f, replace[f])
	}
	return strings.NewReplacer(pairs...)
}

// dir is the folder of a volume.
func (s *sandbox) dir(volume corev1.Volume) string {
	switch {
	case volume.HostPath != nil:
		return s.nodes.hostPath(s.kubelet.name, volume.HostPath.Path)
	case volume.EmptyDir != nil:
		return filepath.Join(s.folder, emptyDirs, volume.Name)
	}
	return filepath.Join(s.folder, "volumes", "of-files", volume.Name)
}

// writeVolumes writes the files of the volumes. One that cannot be brought up to date keeps its files.
func (p *process) writeVolumes(ctx context.Context, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.HostPath != nil || volume.EmptyDir != nil {
			continue
		}
		files, err := p.files(ctx, pod, volume)
		if err == nil {
			err = WriteVolume(p.dir(volume), files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// files are those of a volume, of the kinds that pods of reporters have. ConfigMaps and Secrets are
// read as an administrator: a node's authorizer gets to know a pod too late.
func (p *process) files(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) (map[string]string, error) {
	api, files := p.nodes.admin.CoreV1(), map[string]string{}
	switch {
	case volume.ConfigMap != nil:
		object, err := api.ConfigMaps(pod.Namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if err == nil {
			for key, text := range object.Data {
				files[key] = p.replacer.Replace(text)
			}
		}
		return files, unlessOptional(err, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		object, err := api.Secrets(pod.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err == nil {
			for key, data := range object.Data {
				files[key] = string(data)
			}
		}
		return files, unlessOptional(err, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		for _, item := range volume.DownwardAPI.Items {
			value, err := p.field(pod, item.FieldRef)
			if err != nil {
				return nil, err
			}
			files[item.Path] = p.replacer.Replace(value)
		}
		return files, nil
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken == nil {
				return nil, fmt.Errorf("the simulated kubelet projects tokens only")
			}
			if err := p.renewToken(ctx, pod); err != nil {
				return nil, err
			}
			files[source.ServiceAccountToken.Path] = p.token
		}
		return files, nil
	}
	return nil, fmt.Errorf("the simulated kubelet does not support its kind")
}

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *process) renewToken(ctx context.Context, pod *corev1.Pod) error {
	if time.Since(p.minted) < tokenLife {
		return nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		},
	}}
	accounts := p.kubelet.client.CoreV1().ServiceAccounts(pod.Namespace)
	answer, err := accounts.CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("mint a token: %w", err)
	}
	p.token, p.minted = answer.Status.Token, time.Now()
	return nil
}
