package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

// This file plays the part of OpenShift's operator of kube-apiserver: it writes
// encryption configs, and rolls static pods to a revision.

// socketVolume is short, for the sake of the sockets' paths.
const socketVolume = "kms"

// encryption is an EncryptionConfiguration with these keys, the first of which
// writes, or with identity first.
func encryption(providers ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, configmaps]\n  providers:\n")
	for _, p := range providers {
		if p == "identity" {
			b.WriteString("  - identity: {}\n")
			continue
		}
		fmt.Fprintf(&b, "  - kms: {apiVersion: v2, name: %s_secrets, endpoint: 'unix:///var/run/kmsplugin/kms-%s.sock', timeout: 10s}\n", p, p)
	}
	return b.String()
}

// setEncryption writes the live Secret, then that of a revision.
func (s *stage) setEncryption(revision, text string) error {
	for _, name := range []string{"encryption-config", "encryption-config-" + revision} {
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
			"stringData": map[string]any{"encryption-config": text},
		})
		if err != nil {
			return err
		}
		force := true
		if _, err := s.kube.CoreV1().Secrets(target).Patch(s.ctx, name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "kube-apiserver-operator", Force: &force}); err != nil {
			return err
		}
	}
	return nil
}

// roll brings kube-apiserver's static pod on a node to a revision that has the
// plugins of these keys. The plugins of before end with the pod of before.
func (s *stage) roll(node, revision string, keys ...string) error {
	if err := s.stopPlugins(node); err != nil {
		return err
	}
	pod, err := s.workers.RunStaticPod(s.ctx, node, staticPod(revision, keys))
	if err != nil {
		return err
	}
	for _, key := range keys {
		p, err := s.startPlugin(pod, key)
		if err != nil {
			return fmt.Errorf("plugin %s on %s: %w", key, node, err)
		}
		s.plugins[node] = append(s.plugins[node], p)
	}
	return nil
}

func (s *stage) rollAll(revision string, keys ...string) error {
	for _, node := range nodeNames {
		if err := s.roll(node, revision, keys...); err != nil {
			return err
		}
	}
	return nil
}

func staticPod(revision string, keys []string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver", Namespace: target, Labels: map[string]string{"apiserver": "true", "revision": revision}},
		Spec: corev1.PodSpec{
			HostNetwork: true,
			Containers:  []corev1.Container{{Name: "kube-apiserver", Image: "kube-apiserver:demo"}},
		},
	}
	if len(keys) == 0 {
		return p
	}
	mount := []corev1.VolumeMount{{Name: socketVolume, MountPath: "/var/run/kmsplugin"}}
	p.Spec.Containers[0].VolumeMounts = mount
	p.Spec.Volumes = []corev1.Volume{{Name: socketVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, key := range keys {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "kms-plugin-" + key, Image: "kms-plugin:demo", Args: []string{"--endpoint=unix:///var/run/kmsplugin/kms-" + key + ".sock"}, VolumeMounts: mount})
	}
	return p
}

// startPlugin serves a key in a pod's socket folder. The plugins of one key share
// their state, as nodes share a remote key.
func (s *stage) startPlugin(pod *corev1.Pod, key string) (*plugin, error) {
	socket := filepath.Join(s.workers.EmptyDir(pod, socketVolume), "kms-"+key+".sock")
	p, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: filepath.Join(s.dir, "vault-"+key)})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "control"), 0o700); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	control, err := kmsplugin.ServeControl(p, s.control(pod.Spec.NodeName, key))
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &plugin{p, control}, nil
}

// control is the path of the socket by which a plugin is made ill.
func (s *stage) control(node, key string) string {
	return filepath.Join(s.dir, "control", node+"-kms-"+key)
}

// tell gives a command to a plugin.
func (s *stage) tell(node, key, command string, args ...string) error {
	client, err := kmsplugin.NewClient(s.control(node, key))
	if err != nil {
		return err
	}
	_, err = client.Do(s.ctx, command, args...)
	return err
}

func (s *stage) stopPlugins(node string) error {
	var errs []error
	for _, p := range s.plugins[node] {
		errs = append(errs, p.close())
	}
	delete(s.plugins, node)
	return errors.Join(errs...)
}
