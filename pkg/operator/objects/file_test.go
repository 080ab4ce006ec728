package objects

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

const (
	ofNode  = "https://localhost:6443"
	ofAll   = "https://api-int.example.com:6443"
	another = "https://10.0.0.7:6443"
)

func TestFileNamesTheServersAndTheKubeconfig(t *testing.T) {
	for name, tt := range map[string]struct {
		server, cluster string
		fallbacks       []v1alpha1.Server
		ownerInjects    bool
		hostFolder      string
		servers         string // in the file; a single server is only in the kubeconfig
		folder          string // of the kubeconfig; empty: the file's folder
	}{
		"of the node":                     {server: ofNode},
		"of the node, and the cluster's":  {server: ofNode, cluster: ofAll, servers: ofNode + " " + ofAll},
		"the cluster's is the node's":     {server: ofNode, cluster: ofNode},
		"fallbacks":                       {server: ofNode, cluster: ofAll, fallbacks: []v1alpha1.Server{{URL: another}}, servers: ofNode + " " + another},
		"an empty list of fallbacks":      {server: ofNode, cluster: ofAll, fallbacks: []v1alpha1.Server{}},
		"of the cluster, by its name":     {server: ofAll, cluster: another, servers: ofAll + " " + another},
		"the owner brings the kubeconfig": {server: ofAll, cluster: another, ownerInjects: true, folder: CredentialsFolder},
		"files of a static pod":           {server: ofAll, ownerInjects: true, hostFolder: "/etc/kms"},
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.ClusterServer, in.HostFolder = tt.cluster, tt.hostFolder
			in.Target.Resource = v1alpha1.ResourceKubeAPIServers
			in.Target.Connection = v1alpha1.Connection{Server: tt.server, Fallbacks: tt.fallbacks}
			if tt.ownerInjects {
				in.Target.Deployment = ""
			}
			var file v1alpha1.ReporterConfiguration
			must.Succeed(t, yaml.UnmarshalStrict(in.File(sidecarPlugins), &file))
			var servers []string
			for _, s := range file.Destination.Servers {
				servers = append(servers, s.URL)
			}
			if got := strings.Join(servers, " "); got != tt.servers {
				t.Errorf("servers %q", got)
			}
			if got := file.Destination.Kubeconfig; got != cmp.Or(tt.folder, ConfigFolder)+"/kubeconfig" {
				t.Errorf("kubeconfig %s", got)
			}
		})
	}
}

// A reporter of an earlier version rejects a field that it does not know.
func TestFileHasNoFieldForADefault(t *testing.T) {
	in := sidecarInput()
	in.Config.Probe = v1alpha1.DefaultProbe()
	var file struct {
		Probe   map[string]any
		Plugins []map[string]any
	}
	must.Succeed(t, yaml.Unmarshal(in.File(sidecarPlugins), &file))
	fields := slices.Concat(slices.Sorted(maps.Keys(file.Probe)), slices.Sorted(maps.Keys(file.Plugins[0])))
	if want := []string{"interval", "endpoint", "keyID", "role", "timeout"}; !slices.Equal(fields, want) {
		t.Errorf("probe and plugins have %v, want %v", fields, want)
	}
}

// A new request must not replace pods: the DaemonSet's template and a companion's hash never contain it.
func TestARequestIsInTheFilesOfRunningPodsAlone(t *testing.T) {
	const annotation, mounted = v1alpha1.ConfigSourceAnnotation, v1alpha1.ConfigSourceConfigMap
	for name, tt := range map[string]struct {
		mode      v1alpha1.Mode
		source    v1alpha1.ConfigSource
		annotated bool
	}{
		"companions with annotations":                          {v1alpha1.ModeCompanionPod, annotation, true},
		"companions that mount a ConfigMap":                    {v1alpha1.ModeCompanionPod, mounted, false},
		"agents with annotations: the controller patches them": {v1alpha1.ModeDaemonSet, annotation, true},
		"agents that mount a ConfigMap":                        {v1alpha1.ModeDaemonSet, mounted, false},
		"sidecars":                                             {v1alpha1.ModeSidecar, annotation, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.Target.Mode, in.Target.ConfigSource = tt.mode, tt.source
			before := *in
			in.Requested = "before-restart_1.2"
			has := func(o *unstructured.Unstructured) bool { return strings.Contains(marshal(t, o.Object), in.Requested) }
			server := APIServerPod{Node: "a", UID: "1"}
			was, is := before.CompanionPod(server, sidecarPlugins), in.CompanionPod(server, sidecarPlugins)
			if has(is) != tt.annotated || is.GetName() != was.GetName() {
				t.Errorf("the companion %s, before %s, has the request: %v", is.GetName(), was.GetName(), has(is))
			}
			if has(in.DaemonSet(nil, contract.User{}, sidecarPlugins)) {
				t.Error("the DaemonSet's template has the request")
			}
			if in.MountsConfigMap() == tt.annotated || !has(in.ConfigMap("x", sidecarPlugins)) {
				t.Errorf("it mounts a ConfigMap: %v, which has no request", !tt.annotated)
			}
			sidecar, err := in.Sidecar(apiServerPod(), sidecarPlugins)
			if err != nil || strings.Contains(marshal(t, sidecar), in.Requested) {
				t.Errorf("the sidecar has the request, or %v", err)
			}
			if in.Config.Probe.Checks != before.Config.Probe.Checks || in.Requested == "" {
				t.Error("the input was changed")
			}
		})
	}
}

func TestARequestChangesNothingElseOfTheFile(t *testing.T) {
	for name, probe := range map[string]string{
		"by default":              `{"interval":"30s"}`,
		"without round trips":     `{"interval":"30s","checks":{"roundTrip":{"interval":"0s"}}}`,
		"of an own request: none": `{"interval":"30s","checks":{"roundTrip":{"interval":"5m","requested":"of-the-file"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.Config.Probe = v1alpha1.Probe{}
			must.Succeed(t, yaml.UnmarshalStrict([]byte(probe), &in.Config.Probe))
			decode := func() (c v1alpha1.ReporterConfiguration, requested string) {
				must.Succeed(t, yaml.UnmarshalStrict(in.File(sidecarPlugins), &c))
				if c.Probe.Checks == (v1alpha1.Checks{}) {
					c.Probe.Checks = v1alpha1.DefaultProbe().Checks
				}
				requested, c.Probe.Checks.RoundTrip.Requested = c.Probe.Checks.RoundTrip.Requested, ""
				return c, requested
			}
			before, none := decode()
			in.Requested = "r1"
			after, requested := decode()
			if requested != "r1" || none != "" {
				t.Errorf("requested is %q, before it was %q", requested, none)
			}
			if got, want := marshal(t, after), marshal(t, before); got != want {
				t.Errorf("without the request it is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := yaml.Marshal(v)
	must.Succeed(t, err)
	return string(raw)
}

func TestKubeconfigOfAStaticPodMayNameTheCAOfTheNode(t *testing.T) {
	for name, tt := range map[string]struct {
		hostFolder, ca, want, not string
	}{
		"CA known":             {"", "CA", "certificate-authority-data: Q0E=", "certificate-authority:"},
		"static pod":           {"/etc/kms", "", "certificate-authority: " + CredentialsFolder + "/client/ca.crt", "-data:"},
		"static pod, CA known": {"/etc/kms", "CA", "certificate-authority-data: Q0E=", "certificate-authority:"},
	} {
		t.Run(name, func(t *testing.T) {
			in := sidecarInput()
			in.HostFolder, in.CA = tt.hostFolder, []byte(tt.ca)
			raw := string(in.Kubeconfig())
			if !strings.Contains(raw, tt.want) || strings.Contains(raw, tt.not) {
				t.Error(raw)
			}
		})
	}
}

func TestSocketsThatPodsOfTheirOwnReach(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint, server string
		reached          bool
	}{
		"abstract, in the node's network": {"unix:///@kms", ofNode, true},
		"abstract, in the pod's network":  {"unix:///@kms", ofAll, false},
		"a path, in the pod's network":    {"unix:///run/kms/a.sock", ofAll, true},
		"a folder that holds much else":   {"unix:///run/kms.sock", ofNode, false},
		"no endpoint":                     {"tcp://x", ofAll, true},
	} {
		in := sidecarInput()
		in.Target.Connection.Server = tt.server
		if why := in.NotReachable(tt.endpoint); (why == "") != tt.reached {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestFileHasTheOperatorsUnchangedEveryAndItsOwnTLSSettings(t *testing.T) {
	const every, tls, profile = "  unchangedEvery: 1m0s\n", "minVersion: VersionTLS13", "of the profile"
	in := sidecarInput()
	in.TLS = v1alpha1.ServingTLS{MinVersion: v1alpha1.TLS12, CipherSuites: []string{profile}}
	in.Target.Serving = &v1alpha1.APIServerServing{Address: "0.0.0.0:8443", Secret: "serving"}
	if file := string(in.File(nil)); strings.Contains(file, "unchangedEvery") || !strings.Contains(file, profile) {
		t.Error(file)
	}
	in.Config.UnchangedEvery = v1alpha1.Duration{Duration: time.Minute}
	in.Target.Serving.TLS = &v1alpha1.TLSSettings{MinVersion: v1alpha1.TLS13} // plain Kubernetes has no profile
	if file := string(in.File(nil)); !strings.Contains(file, every) || !strings.Contains(file, tls) || strings.Contains(file, profile) {
		t.Error(file)
	}
}
