// Package render writes what the operator would apply, from files alone: for bootstrap, for control planes without an
// operator, for GitOps, and to review a change. Its objects are those of the controller, so both give the same bytes.
package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

// Input has the content of the files, and Config, Namespace, OpenShift, CA and HostFolder of an objects.Input. A file
// that is not needed may be empty.
type Input struct {
	objects.Input
	APIServer        string // the name of one; may be empty if there is only one
	EncryptionConfig []byte // an EncryptionConfiguration, unless the target lists its plugins
	Pod              []byte // the API server's: a static pod's manifest, a Deployment, or a running Pod
}

// File is a rendered file, with a note on what to do with it.
type File struct {
	Name string
	Data []byte
	Note string
}

// rendering is the state of one Render.
type rendering struct {
	objects.Input
	pods
	plugins   []v1alpha1.Plugin
	encrypted encryptionconfig.Config
	files     []File
	warnings  []string
}

// Render returns the files, and why they may not fit the cluster. problems were found before: all errors are reported
// at once.
func Render(in Input, problems ...error) (files []File, warnings []string, err error) {
	t, noTarget := in.target()
	p, noPod := readPods(in.Pod)
	problems = append(problems, noTarget, noPod)
	if t != nil && noPod == nil {
		problems = append(problems, in.check(t, p))
	}
	if noPod == nil {
		problems = append(problems, in.checkCA(p))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	r := &rendering{pods: p, plugins: t.Plugins, Input: in.Input}
	r.Target, r.HostFolder = t, ""
	if p.static() {
		r.HostFolder, t.Mode, t.Deployment = in.HostFolder, v1alpha1.ModeSidecar, ""
		if to := &t.Connection; to.Server == v1alpha1.DefaultClusterServer && p.pod.Spec.HostNetwork {
			name := strings.TrimPrefix(to.Server, "https://") // every certificate has this name, but not each has localhost
			to.Server, to.TLSServerName = v1alpha1.DefaultLocalServer, cmp.Or(to.TLSServerName, name)
		}
	}
	r.TLS, _ = tlsprofile.Of(nil) // Intermediate
	if err := r.readEncryption(in.EncryptionConfig); err != nil {
		return nil, nil, err
	}
	reporters := r.agents
	if t.Mode.InOwnersPods() {
		reporters = r.sidecar
	}
	if err := reporters(); err != nil {
		return nil, nil, err
	}
	r.identity()
	slices.SortStableFunc(r.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return r.files, r.warnings, nil
}

func (in *Input) target() (*v1alpha1.APIServer, error) {
	var names []string
	for _, t := range in.Config.APIServers {
		if t.Name == in.APIServer || in.APIServer == "" && len(in.Config.APIServers) == 1 {
			return &t, nil
		}
		names = append(names, t.Name)
	}
	if in.APIServer == "" {
		return nil, fmt.Errorf("the configuration has %d API servers, name one of them by --api-server: %s",
			len(names), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("--api-server: the configuration has no %q, only: %s", in.APIServer, strings.Join(names, ", "))
}

// check returns all errors of a target and its pods.
func (in *Input) check(t *v1alpha1.APIServer, p pods) error {
	var all []error
	add := func(format string, values ...any) { all = append(all, fmt.Errorf(format, values...)) }
	switch {
	case !t.Mode.ServesNode() && !t.Mode.InOwnersPods() && !p.static():
		add("API server %s: mode %s needs an operator: set DaemonSet or Sidecar in the configuration", t.Name, t.Mode)
	case t.Mode.InOwnersPods() && p.deployment == nil && !p.static():
		add("--pod: mode %s of %s needs the API server's Deployment, or a static pod's manifest, a file of its node",
			t.Mode, t.Name)
	case p.deployment != nil && t.Deployment != "" && p.deployment.Name != t.Deployment:
		add("--pod: is Deployment %q, must be %q, as the configuration names it", p.deployment.Name, t.Deployment)
	}
	if f := in.HostFolder; p.static() && (!path.IsAbs(f) || f == "/" || path.Clean(f) != f) {
		add("--host-folder: %q must be the absolute path of a folder, without . or .. or a final /", f)
	}
	switch given := len(in.EncryptionConfig) > 0; {
	case t.Plugins != nil && given:
		add("--encryption-config: %s has its plugins in `plugins` of the configuration: remove these, or the flag", t.Name)
	case t.Plugins == nil && !given:
		add("--encryption-config: %s has no `plugins` in the configuration: give its EncryptionConfiguration", t.Name)
	}
	return errors.Join(all...)
}

// checkCA accepts only certificates: everyone may read the files that they are written into.
func (in *Input) checkCA(p pods) error {
	_, err := cert.ParseCertsPEM(in.CA)
	switch {
	case len(in.CA) == 0 && p.static():
		return nil // it is in the folder of the client certificate
	case len(in.CA) == 0:
		return errors.New("--ca-file: is needed: the API server's CA, a PEM file such as /etc/kubernetes/pki/ca.crt")
	case bytes.Contains(in.CA, []byte("PRIVATE KEY")):
		return errors.New("--ca-file: holds a PRIVATE KEY, must hold certificates and nothing else")
	case err != nil:
		return fmt.Errorf("--ca-file: must be the API server's CA, a PEM file of certificates: %w", err)
	}
	return nil
}

// readEncryption reads the encryption config, where there is one.
func (r *rendering) readEncryption(file []byte) (err error) {
	if len(file) == 0 {
		return nil
	}
	r.encrypted, err = encryptionconfig.Parse(file)
	if r.plugins = r.encrypted.Plugins; err == nil && len(r.plugins) == 0 {
		err = errors.New("it has no kms provider that can be probed: " + encryptionconfig.IgnoredText(r.encrypted.Ignored))
	}
	if err != nil {
		return fmt.Errorf("--encryption-config: %w", err)
	}
	for _, ignored := range r.encrypted.Ignored {
		r.warnings = append(r.warnings, "--encryption-config: "+ignored)
	}
	return nil
}

func (r *rendering) add(name string, data []byte, note string) {
	r.files = append(r.files, File{Name: name, Data: data, Note: note})
}

// apply adds a file of objects.
func (r *rendering) apply(name, note string, all ...*unstructured.Unstructured) {
	var documents [][]byte
	for _, o := range all {
		documents = append(documents, asYAML(o.Object))
	}
	r.add(name, bytes.Join(documents, []byte("---\n")), note)
}

func asYAML(object map[string]any) []byte {
	raw, err := yaml.Marshal(object)
	if err != nil {
		panic(err) // what came from YAML goes back to it
	}
	return raw
}

// identity adds the rights of the reporters, and the object that gets their reports.
func (r *rendering) identity() {
	who := "who the reporters are"
	if r.Target.Mode.InOwnersPods() && !r.Target.OwnerInjects() {
		who += fmt.Sprintf("; the operator puts their token into the Secret %s/%s; without an operator, you: "+
			"see docs/explain/modes.md#credentials-of-the-owner", r.Target.Namespace, r.Secret())
	}
	r.apply("10-policy.yaml", "what the reporters' identity may write", objects.Policy()...)
	r.apply("20-identity.yaml", who, r.Identity()...)
	if destination := r.Destination(); destination != nil {
		r.add("00-crd.yaml", install.KMSHealthCRD, fmt.Sprintf("apply it first, and wait: "+
			"kubectl wait --for=condition=Established crd/%s.%s", contract.KMSHealths.Plural, contract.KMSHealths.Group))
		r.apply(fmt.Sprintf("15-kmshealth-%s.yaml", r.Target.Name), "where the reports are", destination)
	}
}

// configMap adds the ConfigMap with the reporters' file.
func (r *rendering) configMap() {
	name := objects.ConfigMapName(r.Target.Name, r.plugins)
	r.apply("30-configmap-"+name+".yaml", "apply it", r.ConfigMap(name, r.plugins))
}

// agents adds the DaemonSet of the reporters.
func (r *rendering) agents() (err error) {
	t, folders, user := r.Target, objects.AsNamed(r.plugins), contract.Root
	if r.pod != nil {
		user, _ = objects.UserOf(r.pod, t.Container)
		folders, err = objects.FindFolders(r.pod, t.Container, r.plugins...)
		if err == nil && !objects.OnHost(folders) {
			err = errors.New("the sockets are in a volume of the pod, where no DaemonSet reaches them: use Sidecar")
		}
		if err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
	}
	mounts := r.MountsConfigMap() && t.Resource == v1alpha1.ResourceKubeAPIServers
	if mounts && slices.Contains(r.encrypted.Encrypted, encryptionconfig.ConfigMaps) {
		return errors.New("--encryption-config: " + objects.ConfigMapsEncrypted)
	}
	for _, p := range r.plugins {
		if why := r.NotReachable(p.Endpoint); why != "" {
			return errors.New(why)
		}
	}
	if r.MountsConfigMap() {
		r.configMap()
	}
	reporters := r.DaemonSet(folders, user, r.plugins)
	name := "40-daemonset-" + reporters.GetName() + ".yaml"
	r.apply(name, "apply it", reporters)
	if why := objects.NotAllowed(folders); why != "" {
		r.warnings = append(r.warnings, name+": "+why)
	}
	return nil
}
