// Package render makes what the operator would apply from files alone: for
// bootstrap, for control planes without an operator, for GitOps, and to review
// a change. It uses the planner of the controller, so both give the same bytes.
package render

import (
	"bytes"
	"crypto/fips140"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	install "github.com/kms-health/kms-health/manifests"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/podspec"
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
	// Pod as the API shows it. Empty: no pod is needed.
	Pod []byte
	// CA is the API server's, PEM. Empty: a kubeconfig names CAFile.
	CA []byte
	// HostFolder is where a static pod's files will be on its node.
	HostFolder string
}

// File is one that was made.
type File struct {
	Name string
	Data []byte
	// Note is what to do with it.
	Note string
}

// Render makes the files.
func Render(in Input) ([]File, error) {
	t, pod, err := in.check()
	if err != nil {
		return nil, err
	}
	return in.render(t, pod)
}

func (in *Input) render(t *v1alpha1.Target, pod pod) ([]File, error) {
	w, err := in.snapshot(t, pod)
	if err != nil {
		return nil, err
	}
	if pod.static() {
		return in.staticPod(w)
	}
	plan, err := delivery.Make(w)
	if err != nil {
		return nil, err
	}
	if plan.Status.Condition() != "True" || plan.State.Delivery == "" {
		return nil, fmt.Errorf("target %s: %s: %s", t.Name, plan.Status.Reason, plan.Status.Message)
	}
	return in.files(w, plan)
}

// check reports all that is missing at once.
func (in *Input) check() (*v1alpha1.Target, pod, error) {
	t, noTarget := in.target()
	p, noPod := readPod(in.Pod)
	missing := []error{noTarget, noPod}
	add := func(format string, values ...any) { missing = append(missing, fmt.Errorf(format, values...)) }
	if t != nil && noPod == nil {
		switch {
		case t.Delivery == v1alpha1.DeliveryCompanion && p.pod == nil:
			add("--pod: delivery Companion of target %s needs a running pod, as `kubectl get pod -o yaml` shows it", t.Name)
		case t.Delivery == v1alpha1.DeliveryDeployment && p.deployment == nil && !p.static():
			add("--pod: delivery Deployment of target %s needs the Deployment's manifest", t.Name)
		case p.static() && in.HostFolder == "":
			add("--host-folder: is empty, must be the folder on the node where the reporter's files will be")
		}
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
func (in *Input) checkCA(p pod) error {
	if len(in.CA) == 0 {
		if p.static() {
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

func (in *Input) target() (*v1alpha1.Target, error) {
	var names []string
	for i := range in.Config.Targets {
		t := &in.Config.Targets[i]
		if t.Name == in.Target || in.Target == "" && len(in.Config.Targets) == 1 {
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

// pod is an API server's, in one of its forms.
type pod struct {
	deployment *appsv1.Deployment
	pod        *corev1.Pod
}

// static reports whether it is a manifest that no API server has seen.
func (p pod) static() bool { return p.pod != nil && p.pod.Spec.NodeName == "" }

func readPod(data []byte) (pod, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return pod{}, nil
	}
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(data, &kind); err != nil {
		return pod{}, fmt.Errorf("--pod: %w", err)
	}
	var p pod
	var err error
	switch kind.APIVersion + "/" + kind.Kind {
	case "v1/Pod":
		p.pod = &corev1.Pod{}
		err = yaml.Unmarshal(data, p.pod)
	case "apps/v1/Deployment":
		p.deployment = &appsv1.Deployment{}
		err = yaml.Unmarshal(data, p.deployment)
	default:
		err = fmt.Errorf("is a %q of %q, must be a Pod of v1 or a Deployment of apps/v1", kind.Kind, kind.APIVersion)
	}
	if err != nil {
		return pod{}, fmt.Errorf("--pod: %w", err)
	}
	return p, nil
}

func (in *Input) snapshot(t *v1alpha1.Target, p pod) (*delivery.Snapshot, error) {
	w := &delivery.Snapshot{
		Now: time.Time{}, KubeletRoot: sockets.KubeletRoot, Pods: []*corev1.Pod{}, OwnKnown: map[string]bool{},
		Deployment: p.deployment,
	}
	w.Config, w.Target, w.Namespace, w.OpenShift, w.Offline = in.Config, t, in.Namespace, in.OpenShift, true
	w.State.Proven = in.Config.Image // it cannot be proven without a cluster
	if w.CA = in.CA; len(in.CA) == 0 {
		w.CAFile = caFile
	}
	if p.pod != nil {
		w.Pods = append(w.Pods, p.pod)
	}
	if len(in.EncryptionConfig) > 0 {
		config, err := encryption.Parse(in.EncryptionConfig, t.EncryptionConfig.KeyIDs)
		if err != nil {
			return nil, fmt.Errorf("--encryption-config: %w", err)
		}
		w.Encryption = &delivery.Encryption{Live: config}
		if t.Resource == v1alpha1.ResourceKubeAPIServers {
			w.ConfigMapsEncrypted = &config.ConfigMaps
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
	w.TLS, err = tlsprofile.Of(profile, fips140.Enabled())
	return w, err
}

func noPlugins(c encryption.Config) error {
	if len(c.Ignored) == 0 {
		return errors.New("--encryption-config: no kms provider is named, so there is nothing to probe")
	}
	return errors.New("--encryption-config: no kms provider can be probed: " + c.IgnoredText(len(c.Ignored)))
}

// files are a plan's objects, in the order in which they are applied.
func (in *Input) files(w *delivery.Snapshot, plan *delivery.Plan) ([]File, error) {
	policy, err := manifests.Policy()
	if err != nil {
		return nil, err
	}
	identity := []*unstructured.Unstructured{plan.Anchor}
	var rest []*unstructured.Unstructured
	for _, o := range slices.Concat(plan.Apply, plan.Workloads, plan.Copied) {
		switch o.GetKind() {
		case "ServiceAccount", "ClusterRoleBinding":
			identity = append(identity, o)
		case "Role": // the operator's own
		default:
			rest = append(rest, o)
		}
	}
	all := []File{
		{"10-policy.yaml", manifest(policy), "what the reporters' identity may write"},
		{"20-identity.yaml", manifest(identity), "who the reporters are"},
	}
	if w.ReportsTo().PerTarget() {
		all = append(all, crd())
	}
	for _, o := range rest {
		name := fmt.Sprintf("%d-%s-%s.yaml", rank(o), strings.ToLower(o.GetKind()), o.GetName())
		all = append(all, File{name, manifest([]*unstructured.Unstructured{o}), "apply it"})
	}
	if plan.Inject != nil {
		data, err := podspec.InjectManifest(in.Pod, plan.Inject.Options)
		if err != nil {
			return nil, err
		}
		all = append(all, File{"50-deployment-" + w.Deployment.Name + ".yaml", data, "your Deployment, with the reporter in it"})
	}
	slices.SortStableFunc(all, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range plan.Credentials {
		identity := slices.IndexFunc(all, func(f File) bool { return f.Name == "20-identity.yaml" })
		all[identity].Note += fmt.Sprintf("; their credentials go into the Secret %s/%s, which the operator makes, or you: see docs/explain/credentials.md", c.Namespace, c.Name)
	}
	return all, nil
}

func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case operatorcr.KMSHealths.Kind:
		return 15
	case "ConfigMap":
		return 30
	}
	return 40
}

// crd is that of the object that gets the reports, where that is not OpenShift's.
func crd() File {
	return File{"00-crd.yaml", install.KMSHealthCRD, fmt.Sprintf("apply it first, and wait: kubectl wait --for=condition=Established crd/%s.%s", operatorcr.KMSHealths.Plural, operatorcr.KMSHealths.Group)}
}

func manifest(objects []*unstructured.Unstructured) []byte {
	var b bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			panic(err) // what came from YAML goes back to it
		}
		b.Write(raw)
	}
	return b.Bytes()
}

func alsoCA(inKubeconfig []byte) string {
	if len(inKubeconfig) > 0 {
		return ""
	}
	return ", with the API server's CA as " + caFile
}

// caFile is where a static pod's credentials hold the CA.
const caFile = "ca.crt"

// staticPod makes a static pod's manifest with the reporter in it, and the files
// that it reads on its node. Such a pod can refer to no object of the API.
func (in *Input) staticPod(w *delivery.Snapshot) ([]File, error) {
	t := w.Target
	t.Delivery, t.Credentials = v1alpha1.DeliveryExternal, v1alpha1.CredentialsClientCertificate
	plugins := t.Plugins
	if w.Encryption != nil {
		plugins = w.Encryption.Live.Plugins
	}
	hash, err := w.SetHash(plugins)
	if err != nil {
		return nil, err
	}
	root := int64(0)
	o := podspec.Options{
		Image: in.Config.Image, APIServerContainer: t.Container, Endpoints: delivery.Endpoints(plugins), ConfigHash: hash,
		HostFiles: &podspec.HostFiles{ConfigFolder: in.HostFolder + "/config", CredentialsFolder: in.HostFolder + "/credentials/client"},
		NodeName:  podspec.InstallerNodeName, RunAsUser: &root,
	}
	injected, err := podspec.InjectManifest(in.Pod, o)
	if err != nil {
		return nil, fmt.Errorf("--pod: %w", err)
	}
	w.CredentialsFolder = o.Credentials()
	if len(in.CA) == 0 {
		w.CAFile = o.Credentials() + "/" + caFile
	}
	file, err := w.File(plugins)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := w.Kubeconfig()
	if err != nil {
		return nil, err
	}
	policy, err := manifests.Policy()
	if err != nil {
		return nil, err
	}
	identity, err := w.Identity()
	if err != nil {
		return nil, err
	}
	destination, err := w.Destination()
	if err != nil {
		return nil, err
	}
	var all []File
	if destination != nil {
		all = []File{crd(), {fmt.Sprintf("15-kmshealth-%s.yaml", t.Name), manifest([]*unstructured.Unstructured{destination}), "apply it: where the reports are"}}
	}
	all = append(all, []File{
		{"10-policy.yaml", manifest(policy), "apply it: what the reporters' identity may write"},
		{"20-identity.yaml", manifest(identity), "apply it: what the user system:kms-health-reporter may do"},
		{"host/config/config.yaml", file, "goes to " + in.HostFolder + "/config/config.yaml on each node"},
		{"host/config/kubeconfig", kubeconfig, "goes to " + in.HostFolder + "/config/kubeconfig on each node; the client certificate to " + in.HostFolder + "/credentials/client/tls.crt and tls.key" + alsoCA(in.CA)},
		{"static-pod.yaml", injected, "takes the place of the API server's manifest, last"},
	}...)
	slices.SortStableFunc(all, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
