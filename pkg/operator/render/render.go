// Package render makes what the operator would apply from files alone: for
// bootstrap, for control planes without an operator, for GitOps, and to review
// a change. It uses the planner of the controller, so both give the same bytes.
package render

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

// Input is the content of the files.
type Input struct {
	Config *v1alpha1.OperatorConfiguration // with an image
	// Target is the name of one; it may be empty where there is only one.
	Target    string
	Namespace string
	OpenShift bool
	// EncryptionConfig is an EncryptionConfiguration. Empty: the target names its
	// plugins itself.
	EncryptionConfig []byte
	// APIServer is the object apiservers.config.openshift.io/cluster, for its TLS
	// profile. Empty: Intermediate.
	APIServer []byte
	// Pod is the API server's: a static pod's manifest, a Deployment, or a running
	// Pod as the API shows it. Empty: what the configuration says of it is enough.
	Pod []byte
	// CA is the API server's, PEM. Empty: a kubeconfig names CAFile.
	CA []byte
	// HostFolder is where a static pod's files will be on its node. It stands for a static
	// pod where there is no Pod. Empty: DefaultHostFolder, and there is none.
	HostFolder string
}

// DefaultHostFolder is where a static pod's files will be on its node.
const DefaultHostFolder = "/etc/kubernetes/kms-health"

// File is one that was made.
type File struct {
	Name string
	Data []byte
	// Note is what to do with it.
	Note string
}

// Render makes the files.
func Render(in Input) ([]File, error) {
	t, p, err := in.check()
	if err != nil {
		return nil, err
	}
	return in.render(t, p)
}

func (in *Input) render(t *v1alpha1.APIServer, p pods) ([]File, error) {
	s, err := in.snapshot(t, p)
	if err != nil {
		return nil, err
	}
	staticPod := p.static() || p.none() && in.HostFolder != ""
	if p.none() && (staticPod || t.Mode == v1alpha1.ModeSidecar) {
		if p, err = assumed(s, staticPod); err != nil {
			return nil, err
		}
	}
	if staticPod {
		return in.staticPod(s, p)
	}
	if t.Mode == v1alpha1.ModeSidecar {
		s.Deployment = p.asDeployment(t)
	}
	plan, err := apiserver.Make(s)
	if err != nil {
		return nil, err
	}
	if plan.Status.Reason == contract.NoPods {
		return nil, fmt.Errorf("API server %s: mode %s is decided by a pod, which shows where the sockets are: give it by --pod, "+
			"or set mode in the configuration", t.Name, t.Mode)
	}
	if !plan.Status.Delivered() || plan.State.Mode == "" {
		return nil, fmt.Errorf("target %s: %s: %s", t.Name, plan.Status.Reason, plan.Status.Message)
	}
	return planned(s, plan, p)
}

// check reports all that is missing at once.
func (in *Input) check() (*v1alpha1.APIServer, pods, error) {
	t, noTarget := in.target()
	p, noPod := readPods(in.Pod)
	missing := []error{noTarget, noPod}
	add := func(format string, values ...any) { missing = append(missing, fmt.Errorf(format, values...)) }
	if t != nil && noPod == nil {
		_, mirror := p.annotations()[corev1.MirrorPodAnnotationKey]
		switch {
		case t.Mode == v1alpha1.ModeCompanionPod && p.pod == nil && in.HostFolder == "":
			add("--pod: mode CompanionPod of target %s needs a running pod, as `kubectl get pod -o yaml` shows it", t.Name)
		case t.Mode == v1alpha1.ModeSidecar && mirror:
			add("--pod: is the mirror of a static pod, must be its manifest, a file of its node")
		}
	}
	if f := in.HostFolder; f != "" && (!path.IsAbs(f) || f == "/" || path.Clean(f) != f) {
		add("--host-folder: %q must be the absolute path of a folder, without . or .. or a final /", f)
	}
	switch {
	case t != nil && len(in.EncryptionConfig) > 0 && t.Plugins != nil:
		add("--encryption-config: target %s names its plugins itself, in `plugins` of the configuration: give one of the two", t.Name)
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
		if p.static() || p.none() && in.HostFolder != "" {
			return nil // it is in the folder of the client certificate
		}
		return errors.New("--ca-file: is empty, must be the API server's CA, which goes into the reporters' kubeconfig")
	}
	for rest := in.CA; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && len(bytes.TrimSpace(rest)) > 0, block == nil && len(rest) == len(in.CA):
			return errors.New("--ca-file: is not PEM")
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("--ca-file: holds a %s, must hold certificates and nothing else", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
	}
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
		return nil, fmt.Errorf("the configuration has %d targets, name one of them by --target: %s", len(names), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("--target: the configuration has no %q, only: %s", in.Target, strings.Join(names, ", "))
}

func (in *Input) snapshot(t *v1alpha1.APIServer, p pods) (*apiserver.Snapshot, error) {
	s := &apiserver.Snapshot{Now: time.Time{}, KubeletRoot: objects.KubeletRoot, Pods: []*corev1.Pod{}, OwnKnown: map[string]bool{}}
	s.Config, s.Target, s.Namespace, s.OpenShift, s.Offline = in.Config, t, in.Namespace, in.OpenShift, true
	if s.CA = in.CA; len(in.CA) == 0 {
		s.CAFile = caFile
	}
	if p.pod != nil {
		s.Pods = append(s.Pods, p.pod)
	}
	if len(in.EncryptionConfig) > 0 {
		config, err := encryption.Parse(in.EncryptionConfig, t.EncryptionConfig.KeyIDs)
		if err != nil {
			return nil, fmt.Errorf("--encryption-config: %w", err)
		}
		s.Encryption = &apiserver.Encryption{Live: config}
		if t.Resource == v1alpha1.ResourceKubeAPIServers {
			s.Encrypted = config.Encrypted
		}
		if len(config.Plugins) == 0 {
			return nil, noPlugins(config)
		}
	}
	var profile *configv1.TLSSecurityProfile
	if len(in.APIServer) > 0 {
		a := &configv1.APIServer{}
		if err := yaml.Unmarshal(in.APIServer, a); err != nil {
			return nil, fmt.Errorf("--apiserver: %w", err)
		}
		profile = a.Spec.TLSSecurityProfile
	}
	var err error
	s.TLS, err = tlsprofile.Of(profile)
	return s, err
}

func noPlugins(c encryption.Config) error {
	if len(c.Ignored) == 0 {
		return errors.New("--encryption-config: no kms provider is named, so there is nothing to probe")
	}
	return errors.New("--encryption-config: no kms provider can be probed: " + encryption.IgnoredText(c.Ignored))
}

// plugins are those that the configuration or the encryption config names.
func plugins(s *apiserver.Snapshot) []v1alpha1.Plugin {
	if s.Encryption != nil {
		return s.Encryption.Live.Plugins
	}
	return s.Target.Plugins
}
