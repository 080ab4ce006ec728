// Package render makes what the operator would apply from files alone: for
// bootstrap, for control planes without an operator, for GitOps, and to review
// a change. Its objects are those of the controller, so both give the same bytes.
package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

// Input is the content of the files, of which those that are not needed may be empty.
type Input struct {
	Config           *v1alpha1.OperatorConfiguration // with an image
	Target           string                          // the name of one; may be empty where there is only one
	Namespace        string
	OpenShift        bool
	EncryptionConfig []byte // an EncryptionConfiguration, where the target does not name its plugins itself
	APIServer        []byte // the object apiservers.config.openshift.io/cluster, for its TLS profile
	Pod              []byte // the API server's: a static pod's manifest, a Deployment, or a Pod as the API shows it
	CA               []byte // the API server's, PEM
	// HostFolder is where a static pod's files will be on its node. It stands for a static
	// pod where there is no Pod. Empty: DefaultHostFolder, and there is none.
	HostFolder string
}

// DefaultHostFolder is where a static pod's files will be on its node.
const DefaultHostFolder = "/etc/kubernetes/kms-health"

// File is one that was made, with a note on what to do with it.
type File struct {
	Name string
	Data []byte
	Note string
}

// rendering is the making of the files.
type rendering struct {
	*objects.Input
	plugins []v1alpha1.Plugin
	pods
	files []File
}

// Render makes the files. problems are those found before: all that is missing is reported at once.
func Render(in Input, problems ...error) ([]File, error) {
	t, p, err := in.check()
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	r := &rendering{pods: p, Input: &objects.Input{
		Config: in.Config, Namespace: in.Namespace, Target: t, OpenShift: in.OpenShift, CA: in.CA,
	}}
	if p.static() || p.pod == nil && in.HostFolder != "" {
		r.HostFolder, t.Mode, t.Deployment = cmp.Or(in.HostFolder, DefaultHostFolder), v1alpha1.ModeSidecar, ""
	}
	encrypted, err := in.encryption(t)
	if err != nil {
		return nil, err
	}
	if r.TLS, err = in.tls(); err != nil {
		return nil, err
	}
	if r.plugins = t.Plugins; r.plugins == nil {
		r.plugins = encrypted.Plugins
	}
	if t.Mode == v1alpha1.ModeSidecar {
		err = r.sidecar()
	} else {
		err = r.ownPods(encrypted)
	}
	if err := errors.Join(err, r.identity()); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return r.files, nil
}

// check reports all that is missing at once.
func (in *Input) check() (*v1alpha1.APIServer, pods, error) {
	t, noTarget := in.target()
	p, noPod := readPods(in.Pod)
	missing := []error{noTarget, noPod}
	add := func(format string, values ...any) { missing = append(missing, fmt.Errorf(format, values...)) }
	if t != nil && noPod == nil {
		switch {
		case t.Mode == v1alpha1.ModeCompanionPod && (p.pod == nil || p.deployment != nil) && in.HostFolder == "":
			add("--pod: mode CompanionPod of target %s needs a running pod, as `kubectl get pod -o yaml` shows it", t.Name)
		case t.Mode == v1alpha1.ModeSidecar && p.mirror():
			add("--pod: is the mirror of a static pod, must be its manifest, a file of its node")
		case p.deployment != nil && t.Mode == v1alpha1.ModeSidecar && t.Deployment != "" && p.deployment.Name != t.Deployment:
			add("--pod: is Deployment %q, must be %q, as the configuration names it", p.deployment.Name, t.Deployment)
		}
	}
	if f := in.HostFolder; f != "" && (!path.IsAbs(f) || f == "/" || path.Clean(f) != f) {
		add("--host-folder: %q must be the absolute path of a folder, without . or .. or a final /", f)
	}
	switch {
	case t != nil && len(in.EncryptionConfig) > 0 && t.Plugins != nil:
		add("--encryption-config: target %s names its plugins itself, in `plugins` of the configuration: "+
			"give one of the two", t.Name)
	case t != nil && t.Plugins != nil && len(t.Plugins) == 0:
		add("the configuration names no plugin of target %s in `plugins`, so there is nothing to probe", t.Name)
	case t != nil && len(in.EncryptionConfig) == 0 && t.Plugins == nil:
		add("--encryption-config: target %s names no plugins itself: give the API server's EncryptionConfiguration", t.Name)
	}
	if noPod == nil {
		missing = append(missing, in.checkCA(p))
	}
	return t, p, errors.Join(missing...)
}

// checkCA refuses what is no CA: it goes into files that anybody may read.
func (in *Input) checkCA(p pods) error {
	if len(in.CA) == 0 {
		if p.static() || p.pod == nil && in.HostFolder != "" {
			return nil // it is in the folder of the client certificate
		}
		return errors.New("--ca-file: is empty, must be the API server's CA, which goes into the reporters' kubeconfig")
	}
	if bytes.Contains(in.CA, []byte("PRIVATE KEY")) {
		return errors.New("--ca-file: holds a PRIVATE KEY, must hold certificates and nothing else")
	}
	if _, err := cert.ParseCertsPEM(in.CA); err != nil {
		return fmt.Errorf("--ca-file: is not a PEM file of certificates: %w", err)
	}
	return nil
}

func (in *Input) target() (*v1alpha1.APIServer, error) {
	var names []string
	for i := range in.Config.APIServers {
		t := &in.Config.APIServers[i]
		if t.Name == in.Target || in.Target == "" && len(in.Config.APIServers) == 1 {
			chosen := *t
			return &chosen, nil
		}
		names = append(names, t.Name)
	}
	if in.Target == "" {
		return nil, fmt.Errorf("the configuration has %d API servers, name one of them by --api-server: %s",
			len(names), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("--api-server: the configuration has no %q, only: %s", in.Target, strings.Join(names, ", "))
}

// encryption is that of the encryption config; empty: there is none.
func (in *Input) encryption(t *v1alpha1.APIServer) (encryption.Config, error) {
	if len(in.EncryptionConfig) == 0 {
		return encryption.Config{}, nil
	}
	config, err := encryption.Parse(in.EncryptionConfig, t.EncryptionConfig.KeyIDs)
	switch {
	case err != nil:
		return config, fmt.Errorf("--encryption-config: %w", err)
	case len(config.Plugins) == 0 && len(config.Ignored) == 0:
		return config, errors.New("--encryption-config: no kms provider is named, so there is nothing to probe")
	case len(config.Plugins) == 0:
		return config, fmt.Errorf("--encryption-config: no kms provider can be probed: %s",
			encryption.IgnoredText(config.Ignored))
	}
	return config, nil
}

// tls are the settings of the TLS profile.
func (in *Input) tls() (tlsprofile.Settings, error) {
	a := &configv1.APIServer{}
	if err := yaml.Unmarshal(in.APIServer, a); err != nil {
		return tlsprofile.Settings{}, fmt.Errorf("--apiserver: %w", err)
	}
	return tlsprofile.Of(a.Spec.TLSSecurityProfile)
}
