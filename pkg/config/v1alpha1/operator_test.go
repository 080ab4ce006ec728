package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/pkg/contract"
)

// operatorHead begins every file of the operator.
const operatorHead = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"

func TestOperatorSamplesAreValid(t *testing.T) {
	openShift := accepted(t, DecodeOperator, string(OperatorOpenShift)).APIServers
	if len(openShift) != len(contract.Resources) {
		t.Errorf("%d API servers", len(openShift))
	}
	for _, s := range openShift {
		row := contract.ResourceOf(string(s.Resource)).APIServer // the file has the resource only
		want := APIServer{Name: row.Name, Resource: s.Resource, Namespace: row.Namespace, PodSelector: row.PodSelector, Container: row.Container,
			EncryptionConfig: EncryptionConfig{Secret: DefaultEncryptionConfig, Key: DefaultEncryptionConfig}, Mode: ModeAuto,
			ConfigSource: ConfigSourceAnnotation, Connection: Connection{Server: DefaultLocalServer}}
		if diff := cmp.Diff(want, s); diff != "" || s.Name == "" {
			t.Error(diff)
		}
	}
	plain := accepted(t, DecodeOperator, string(OperatorKubernetes)).APIServers[0]
	if plain.Mode != ModeDaemonSet || plain.Plugins[0].Timeout.Duration != DefaultTimeout {
		t.Errorf("%+v", plain)
	}
}

func TestOperatorDefaultsFollowResourceAndMode(t *testing.T) {
	for _, c := range []struct {
		file   string
		source ConfigSource
		server string
	}{
		{operatorFile("configSource: ConfigMap"), ConfigSourceConfigMap, DefaultLocalServer},
		{operatorFile("mode: CompanionPod"), ConfigSourceAnnotation, DefaultLocalServer},
		{operatorFile("mode: Sidecar"), ConfigSourceConfigMap, DefaultClusterServer},
		{kmsHealth("a"), ConfigSourceConfigMap, DefaultLocalServer},
		{kmsHealth("a") + "  configSource: Annotation\n", ConfigSourceAnnotation, DefaultLocalServer},
	} {
		if got := accepted(t, DecodeOperator, c.file).APIServers[0]; got.ConfigSource != c.source || got.Connection.Server != c.server {
			t.Errorf("%s: %s, %s", c.file, got.ConfigSource, got.Connection.Server)
		}
	}
}

func operatorFile(lines ...string) string {
	text := operatorHead + `apiServers:
- resource: kubeapiservers
  namespace: ns
  podSelector: {app: a}
`
	for _, line := range lines {
		text += "  " + line + "\n"
	}
	return text
}

// kmsHealth returns a file with an API server whose reports go to a KMSHealth.
func kmsHealth(name string) string {
	return strings.Replace(operatorFile("plugins: []"), "resource: kubeapiservers", "name: "+name+"\n  resource: kmshealths", 1)
}

func TestOperatorMistakesAreReportedWithPathAndValue(t *testing.T) {
	const empty = operatorHead + "apiServers: []\n"
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"the reporter's file": {string(ReporterSample), []string{`apiVersion, kind: must be kmshealth.openshift.io/v1alpha1, OperatorConfiguration, and not "kmshealth.openshift.io/v1alpha1", "ReporterConfiguration"; kms-health-reporter --validate --config FILE checks that kind`}},
		"no plugins and no Secret": {operatorHead + "apiServers: [{name: a, resource: kmshealths, namespace: ns, podSelector: {a: b}}]\n", []string{
			"apiServers[0].encryptionConfig.secret: Required value: the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig",
		}},
		"kmshealths alone": {operatorHead + "apiServers: [{resource: kmshealths, plugins: []}]\n", []string{
			"apiServers[0].name: Required value: a DNS label", "apiServers[0].namespace: Required value: the namespace of the API server's pods", "apiServers[0].podSelector: Required value: the labels of the API server's pods",
		}},
		"no API servers": {operatorHead, []string{"apiServers: Required value"}},
		"outside of API servers": {empty + "foo: 1\nmanagementState: Gone\nprobe: {interval: 1ms, checks: {roundTrip: {requested: a}}}\nunchangedEvery: 0s\n", []string{
			`unknown field "foo"`, `managementState: Unsupported value: "Gone"`, `probe.interval: Invalid value: "1ms"`,
			"probe.checks.roundTrip.requested: Forbidden: the operator sets it, from the annotation kmshealth.openshift.io/probe-requested of the operator resource or KMSHealth",
			`unchangedEvery: Invalid value: "0s": must be a duration with its unit, from 1s to 10m0s`,
		}},
		"image with a space":     {empty + "image: registry/x y\n", []string{`image: Invalid value: "registry/x y": must be an image, as registry.example.com/kms-health-reporter:v1`}},
		"image that is a tag":    {empty + "image: ':v1'\n", []string{`image: Invalid value: ":v1": must be an image`}},
		"image that is a socket": {empty + "image: unix:///kms-1.sock\n", []string{`image: Invalid value: "unix:///kms-1.sock": must be an image`}},
		"plugins and encryptionConfig": {operatorFile("plugins: [{endpoint: 'unix:///a/../a.sock', role: Write}]", "encryptionConfig: {key: k}"), []string{
			`apiServers[0].encryptionConfig: Forbidden: must not be set together with plugins`, "apiServers[0].plugins[0].keyID: Required value",
			`apiServers[0].plugins[0].endpoint: Invalid value: "unix:///a/../a.sock": must be written without ..`,
		}},
		"bare API server": {operatorHead + "apiServers: [{}]\n", []string{`apiServers[0].resource: Required value`}},
		"labels": {operatorFile("nodeSelector: {a: 1, b: '?', \"a b\": c, \"a\\nerror: b\": c}"), []string{
			`apiServers[0].nodeSelector[a]: Invalid value: 1: must be a string`, `apiServers[0].nodeSelector[b]: Invalid value: "?"`,
			`apiServers[0].nodeSelector[a b]: Invalid value: "a b"`, `apiServers[0].nodeSelector[a\nerror: b]: Invalid value: "a\nerror: b"`,
		}},
		"selector that is no mapping": {operatorFile("nodeSelector: [a]"), []string{`apiServers[0].nodeSelector: Invalid value: ["a"]: must be a mapping`}},
		"long name":                   {kmsHealth(strings.Repeat("a", 41)), []string{"apiServers[0].name: Too long"}},
		"resource":                    {strings.Replace(operatorFile(), "kubeapiservers", "pods", 1), []string{`apiServers[0].resource: Unsupported value: "pods"`}},
		"mode, source and connection": {operatorFile("container: C", "mode: Webhook", "configSource: File", "deployment: A", "connection: {server: 'http://x', tlsServerName: A_B, fallbacks: [{url: 'https://a'}, {url: 'https://b'}, {url: 'https://c'}, {url: 'https://d'}]}"), []string{
			`apiServers[0].container: Invalid value: "C"`, `apiServers[0].mode: Unsupported value: "Webhook"`, `apiServers[0].configSource: Unsupported value: "File"`, `apiServers[0].deployment: Invalid value: "A": is for mode Sidecar only`,
			`apiServers[0].deployment: Invalid value: "A": a lowercase`, `apiServers[0].connection.server: Invalid value: "http://x"`, `apiServers[0].connection.tlsServerName: Invalid value: "A_B"`,
			"apiServers[0].connection.fallbacks: Too many: 4: must have at most 3 items",
		}},
		"mode Sidecar": {operatorFile("mode: Sidecar", "configSource: Annotation", "serving: {address: '0.0.0.0:1', secret: s}"), []string{
			`apiServers[0].configSource: Invalid value: "Annotation": cannot serve mode Sidecar`, `apiServers[0].serving.secret: Invalid value: "s"`,
		}},
		"serving without TLS": {operatorFile("serving: {address: '0.0.0.0:1', tls: {minVersion: VersionTLS13}}"), []string{
			`apiServers[0].serving.address: Invalid value: "0.0.0.0:1": must be a loopback address without secret`, `apiServers[0].serving.tls: Forbidden: must not be set without secret`,
		}},
		"serving TLS of another name": {operatorFile("serving: {address: '0.0.0.0:1', secret: S, tls: {minVersion: TLS13, cipherSuites: [x]}}"), []string{
			`apiServers[0].serving.secret: Invalid value: "S"`, `apiServers[0].serving.tls.minVersion: Unsupported value: "TLS13"`, `apiServers[0].serving.tls.cipherSuites[0]: Invalid value: "x"`,
		}},
		"endpoint in a shared folder": {operatorFile("plugins: [{keyID: a, endpoint: 'unix:///run//a.sock', role: Write}]"), []string{`apiServers[0].plugins[0].endpoint: Invalid value: "unix:///run//a.sock": the socket is in /run, which holds much else`}},
		"encryptionConfig": {operatorFile("encryptionConfig: {secret: S, key: k/k}"), []string{
			`apiServers[0].encryptionConfig.secret: Invalid value: "S"`, `apiServers[0].encryptionConfig.key: Invalid value: "k/k"`,
		}},
		"one resource twice": {operatorFile() + strings.TrimPrefix(operatorFile("name: api"), operatorHead+"apiServers:\n"), []string{
			`apiServers[1].resource: Duplicate value: "kubeapiservers"`, `apiServers[1].name: Invalid value: "api": must be kube-apiserver, the API server of kubeapiservers: remove the field`,
		}},
		"one name twice": {kmsHealth("a") + strings.TrimPrefix(kmsHealth("a"), operatorHead+"apiServers:\n"), []string{`apiServers[1].name: Duplicate value: "a"`}},
	} {
		t.Run(name, func(t *testing.T) { mistakes(t, DecodeOperator, c.file, c.want...) })
	}
	accepted(t, DecodeOperator, kmsHealth(strings.Repeat("a", 40))) // the longest name
}

func TestTheOwnerInjectsASidecarWithoutADeployment(t *testing.T) {
	for _, a := range []APIServer{{Mode: ModeSidecar}, {Mode: ModeSidecar, Deployment: "d"}, {Mode: ModeDaemonSet}} {
		if want := a.Mode == ModeSidecar && a.Deployment == ""; a.OwnerInjects() != want {
			t.Errorf("%+v", a)
		}
	}
}

func TestPluginSetHashIsOfSocketsAlone(t *testing.T) {
	set := []Plugin{{KeyID: "1", Endpoint: "unix:///1", Role: RoleWrite}, {KeyID: "2", Endpoint: "unix:///2", Role: RoleRead}}
	same := []Plugin{{KeyID: "2", Endpoint: "unix:///2", Role: RoleWrite}, {KeyID: "1", Endpoint: "unix:///1", Role: RoleRead}}
	if PluginSetHash(set) != PluginSetHash(same) {
		t.Error("order or role made another set")
	}
	for _, endpoint := range []string{"unix:/1", "UNIX:///1", "unix://localhost/1", "unix:///1?a", "unix:///./1", "unix:////1", "unix:///1/", "unix:///%31"} {
		if PluginSetHash([]Plugin{{KeyID: "1", Endpoint: endpoint}, set[1]}) != PluginSetHash(set) {
			t.Errorf("%s is another socket than unix:///1", endpoint)
		}
	}
	// Reporters delivered by earlier versions have this hash.
	if got, want := PluginSetHash(set), contract.FileHash([]byte(`[{"KeyID":"1","Endpoint":"unix:///1"},{"KeyID":"2","Endpoint":"unix:///2"}]`)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, other := range [][]Plugin{nil, set[:1], {set[0], {KeyID: "3", Endpoint: "unix:///2"}}, {set[0], {KeyID: "2", Endpoint: "unix:///3"}}} {
		if PluginSetHash(set) == PluginSetHash(other) {
			t.Errorf("%v has the same hash", other)
		}
	}
}

func TestImageOfTheReporter(t *testing.T) {
	const none = "image: Required value: the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE"
	for _, tt := range []struct{ file, flag, want, err string }{
		{"a:1", "", "a:1", "<nil>"}, {"", "b:1", "b:1", "<nil>"}, {"a:1", "b:1", "a:1", "<nil>"}, {"", "", "", none},
	} {
		c := &OperatorConfiguration{Image: tt.file}
		if err := fmt.Sprint(c.UseImage(tt.flag)); c.Image != tt.want || err != tt.err {
			t.Errorf("%+v: image %q, error %q", tt, c.Image, err)
		}
	}
}
