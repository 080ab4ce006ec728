package render

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

func (r *rendering) add(name string, data []byte, note string) {
	r.files = append(r.files, File{name, data, note})
}

// apply adds a file of objects.
func (r *rendering) apply(name, note string, all ...*unstructured.Unstructured) {
	var b bytes.Buffer
	for i, o := range all {
		if i > 0 {
			b.WriteString("---\n")
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			panic(err) // what came from YAML goes back to it
		}
		b.Write(raw)
	}
	r.add(name, b.Bytes(), note)
}

// identity adds what the reporters are allowed, and the object that gets their reports.
func (r *rendering) identity() error {
	policy, err1 := objects.Policy()
	identity, err2 := r.Identity()
	destination, err3 := r.Destination()
	who := "who the reporters are"
	if r.Target.Mode == v1alpha1.ModeSidecar && !r.Target.OwnerInjects() {
		who += fmt.Sprintf("; the operator puts their token into the Secret %s/%s; without an operator, you: "+
			"see docs/explain/modes.md#credentials-of-the-owner", r.Target.Namespace, objects.TokenName(r.Target.Name))
	}
	r.apply("10-policy.yaml", "what the reporters' identity may write", policy...)
	r.apply("20-identity.yaml", who, identity...)
	if destination != nil {
		r.add("00-crd.yaml", install.KMSHealthCRD, fmt.Sprintf("apply it first, and wait: "+
			"kubectl wait --for=condition=Established crd/%s.%s", contract.KMSHealths.Plural, contract.KMSHealths.Group))
		r.apply(fmt.Sprintf("15-kmshealth-%s.yaml", r.Target.Name), "where the reports are", destination)
	}
	return errors.Join(err1, err2, err3)
}

// configMap adds the reporters' file.
func (r *rendering) configMap(name string) error {
	cm, err := r.ConfigMap(name, r.ReportersNamespace(r.Target.Mode), r.plugins)
	if err == nil {
		r.apply("30-configmap-"+name+".yaml", "apply it", cm)
	}
	return err
}

// ownPods adds the reporters that are pods of their own.
func (r *rendering) ownPods(encrypted encryption.Config) error {
	t, companion, folders := r.Target, objects.APIServerPod{}, objects.AsNamed(r.plugins)
	if r.pod != nil && r.deployment == nil {
		var err1, err2 error
		folders, err1 = objects.FindFolders(r.pod, t.Container, objects.Endpoints(r.plugins), objects.KubeletRoot)
		companion.UID, err2 = objects.PodUID(r.pod)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
	}
	switch onHost := objects.OnHost(folders); {
	case t.Mode == v1alpha1.ModeAuto && (r.pod == nil || r.deployment != nil):
		return fmt.Errorf("API server %s: mode %s is decided by a pod, which shows where the sockets are: give it by --pod, "+
			"or set mode in the configuration", t.Name, t.Mode)
	case t.Mode == v1alpha1.ModeDaemonSet && !onHost:
		return errors.New("--pod: the sockets are in a volume of the pod, where no DaemonSet reaches them: " +
			"use mode CompanionPod")
	case t.Mode == v1alpha1.ModeAuto && onHost:
		t.Mode = v1alpha1.ModeDaemonSet
	case t.Mode == v1alpha1.ModeAuto:
		t.Mode = v1alpha1.ModeCompanionPod
	}
	mounts := t.ConfigSource == v1alpha1.ConfigSourceConfigMap && t.Resource == v1alpha1.ResourceKubeAPIServers
	if mounts && slices.Contains(encrypted.Encrypted, encryption.ConfigMaps) {
		return errors.New("--encryption-config: " + objects.ConfigMapsEncrypted)
	}
	for _, endpoint := range objects.Endpoints(r.plugins) {
		if why := r.NotReachable(endpoint); why != "" {
			return errors.New(why)
		}
	}
	if t.Mode == v1alpha1.ModeDaemonSet {
		slices.SortFunc(folders, func(a, b objects.Folder) int { return strings.Compare(a.MountPath, b.MountPath) })
		agents, err := r.DaemonSet(folders, r.plugins)
		if err != nil {
			return err
		}
		r.apply("40-daemonset-"+agents.GetName()+".yaml", "apply it", agents)
		return r.configMap(objects.ConfigMapName(t.Name, r.plugins))
	}
	companion.Node, companion.Folders = r.pod.Spec.NodeName, folders
	pod, err := r.CompanionPod(companion, r.plugins)
	if err != nil {
		return err
	}
	r.apply("40-pod-"+pod.GetName()+".yaml", "apply it", pod)
	return r.configMap(objects.CompanionConfigMapName(t.Name, r.plugins))
}
