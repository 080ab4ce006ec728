package v1alpha1

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// operatorHead begins every file of the operator.
const operatorHead = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"

func TestOperatorSamplesAreValid(t *testing.T) {
	openShift, err := DecodeOperator(OperatorOpenShift)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(openShift.APIServers); n != len(contract.Resources) {
		t.Errorf("%d targets", n)
	}
	for _, target := range openShift.APIServers {
		if target.Mode != ModeAuto || target.Connection.Server != DefaultLocalServer {
			t.Errorf("%s: %s, %s", target.Name, target.Mode, target.Connection.Server)
		}
		if e := target.EncryptionConfig; e.Secret != DefaultEncryptionConfig || e.Key != DefaultEncryptionConfig {
			t.Errorf("%s: %+v", target.Name, target.EncryptionConfig)
		}
	}
	oauth := openShift.APIServers[2] // the file has its resource only
	if oauth.Name != "oauth-apiserver" || oauth.Namespace != "openshift-oauth-apiserver" || oauth.PodSelector["apiserver"] != "true" ||
		oauth.Container != "oauth-apiserver" {
		t.Errorf("%+v", oauth)
	}
	plain, err := DecodeOperator(OperatorKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	target := plain.APIServers[0]
	if target.Mode != ModeDaemonSet || target.Plugins[0].Timeout.Duration != DefaultTimeout {
		t.Errorf("%+v", target)
	}
}

func TestOperatorDefaultsFollowResourceAndMode(t *testing.T) {
	for _, c := range []struct {
		resource, rest string
		source         ConfigSource
		server         string
	}{
		{"kubeapiservers", "", ConfigSourceAnnotation, DefaultLocalServer},
		{"kubeapiservers", "configSource: ConfigMap", ConfigSourceConfigMap, DefaultLocalServer},
		{"kubeapiservers", "mode: CompanionPod", ConfigSourceAnnotation, DefaultLocalServer},
		{"openshiftapiservers", "mode: DaemonSet", ConfigSourceAnnotation, DefaultLocalServer},
		{"authentications", "mode: Sidecar", ConfigSourceConfigMap, DefaultClusterServer},
		{"kmshealths", "plugins: []", ConfigSourceConfigMap, DefaultLocalServer},
		{"kmshealths", "plugins: []\n  configSource: Annotation", ConfigSourceAnnotation, DefaultLocalServer},
	} {
		name := cmp.Or(contract.ResourceOf(c.resource).APIServer.Name, "a")
		file := strings.Replace(operatorFile(c.rest), "resource: kubeapiservers", "name: "+name+"\n  resource: "+c.resource, 1)
		config, err := DecodeOperator([]byte(file))
		if err != nil {
			t.Fatalf("%s, %q: %v", c.resource, c.rest, err)
		}
		if got := config.APIServers[0]; got.ConfigSource != c.source || got.Connection.Server != c.server {
			t.Errorf("%s, %q: %s, %s", c.resource, c.rest, got.ConfigSource, got.Connection.Server)
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
	const head = operatorHead
	for name, c := range map[string]struct{ file, want string }{
		"the reporter's file":            {string(ReporterSample), `apiVersion, kind: must be kmshealth.openshift.io/v1alpha1, OperatorConfiguration, and not "kmshealth.openshift.io/v1alpha1", "ReporterConfiguration"; kms-health-reporter --validate --config FILE checks that kind`},
		"no plugins and no Secret":       {head + "apiServers: [{name: a, resource: kmshealths, namespace: ns, podSelector: {a: b}}]\n", "apiServers[0].encryptionConfig.secret: Required value: the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig"},
		"kmshealths alone":               {head + "apiServers: [{resource: kmshealths, plugins: []}]\n", "apiServers[0].name: Required value: a DNS label\napiServers[0].namespace: Required value: the namespace of the API server's pods\napiServers[0].podSelector: Required value: the labels of the API server's pods"},
		"no targets":                     {head, "apiServers: Required value"},
		"unknown field":                  {head + "apiServers: []\nfoo: 1\n", `unknown field "foo"`},
		"management state":               {head + "apiServers: []\nmanagementState: Gone\n", `managementState: Unsupported value: "Gone"`},
		"interval":                       {head + "apiServers: []\nprobe: {interval: 1ms}\n", `probe.interval: Invalid value: "1ms"`},
		"a request of the file":          {head + "apiServers: []\nprobe: {checks: {roundTrip: {requested: a}}}\n", "probe.checks.roundTrip.requested: Forbidden: the operator sets it, from the annotation kmshealth.openshift.io/probe-requested of the operator resource or KMSHealth"},
		"image with a space":             {head + "apiServers: []\nimage: registry/x y\n", `image: Invalid value: "registry/x y": must be an image, as registry.example.com/kms-health-reporter:v1`},
		"image that is a tag":            {head + "apiServers: []\nimage: ':v1'\n", `image: Invalid value: ":v1": must be an image`},
		"image that is a socket":         {head + "apiServers: []\nimage: unix:///kms-1.sock\n", `image: Invalid value: "unix:///kms-1.sock": must be an image`},
		"unchanged reports, each 0s":     {head + "apiServers: []\nunchangedEvery: 0s\n", `unchangedEvery: Invalid value: "0s": must be a duration with its unit, from 1s to 10m0s`},
		"unchanged reports, each 11m":    {head + "apiServers: []\nunchangedEvery: 11m\n", `unchangedEvery: Invalid value: "11m0s": must be a duration with its unit, from 1s to 10m0s`},
		"plugins and encryptionConfig":   {operatorFile("plugins: []", "encryptionConfig: {key: k}"), `apiServers[0].encryptionConfig: Forbidden: must not be set together with plugins`},
		"bare target":                    {head + "apiServers: [{}]\n", `apiServers[0].resource: Required value`},
		"no selector":                    {head + "apiServers: [{name: a, resource: kmshealths, namespace: b}]\n", "apiServers[0].podSelector: Required value"},
		"selector that is no string":     {operatorFile("container: c", "nodeSelector: {a: 1}"), `apiServers[0].nodeSelector[a]: Invalid value: 1: must be a string`},
		"selector that is no mapping":    {operatorFile("nodeSelector: [a]"), `apiServers[0].nodeSelector: Invalid value: ["a"]: must be a mapping`},
		"selector that is no label":      {operatorFile(`nodeSelector: {"a b": c}`), `apiServers[0].nodeSelector[a b]: Invalid value: "a b"`},
		"label with a line of its own":   {operatorFile(`nodeSelector: {"a\nerror: b": c}`), `apiServers[0].nodeSelector[a\nerror: b]: Invalid value: "a\nerror: b"`},
		"long name":                      {kmsHealth(strings.Repeat("a", 41)), "apiServers[0].name: Too long"},
		"resource":                       {strings.Replace(operatorFile(), "kubeapiservers", "pods", 1), `apiServers[0].resource: Unsupported value: "pods"`},
		"mode":                           {operatorFile("mode: Webhook"), `apiServers[0].mode: Unsupported value: "Webhook"`},
		"a name without Deployment":      {operatorFile("deployment: x"), `apiServers[0].deployment: Invalid value: "x"`},
		"source of a sidecar's file":     {operatorFile("mode: Sidecar", "configSource: Annotation"), `apiServers[0].configSource: Invalid value: "Annotation": cannot serve mode Sidecar`},
		"Deployment's name":              {operatorFile("mode: Sidecar", "deployment: A"), `apiServers[0].deployment: Invalid value: "A"`},
		"server":                         {operatorFile("connection: {server: 'http://x'}"), `apiServers[0].connection.server: Invalid value: "http://x"`},
		"fallbacks":                      {operatorFile("connection: {fallbacks: [{url: 'https://a'}, {url: 'https://b'}, {url: 'https://c'}, {url: 'https://d'}]}"), "apiServers[0].connection.fallbacks: Too many: 4: must have at most 3 items"},
		"server name":                    {operatorFile("connection: {tlsServerName: A_B}"), `apiServers[0].connection.tlsServerName: Invalid value: "A_B"`},
		"serving without TLS":            {operatorFile("serving: {address: '0.0.0.0:1'}"), `apiServers[0].serving.address: Invalid value: "0.0.0.0:1": must be a loopback address without secret`},
		"serving TLS without a Secret":   {operatorFile("serving: {address: '127.0.0.1:1', tls: {minVersion: VersionTLS13}}"), `apiServers[0].serving.tls: Forbidden: must not be set without secret`},
		"serving TLS of another name":    {operatorFile("serving: {address: '0.0.0.0:1', secret: s, tls: {minVersion: TLS13, cipherSuites: [x]}}"), `apiServers[0].serving.tls.minVersion: Unsupported value: "TLS13"`},
		"serving secret in others' pods": {operatorFile("mode: Sidecar", "serving: {address: '0.0.0.0:1', secret: s}"), `apiServers[0].serving.secret: Invalid value: "s"`},
		"endpoint with ..":               {operatorFile("plugins: [{keyID: a, endpoint: 'unix:///run/x/../a.sock', role: Write}]"), `apiServers[0].plugins[0].endpoint: Invalid value: "unix:///run/x/../a.sock": must be written without ..`},
		"endpoint in a shared folder":    {operatorFile("plugins: [{keyID: a, endpoint: 'unix:///run//a.sock', role: Write}]"), `apiServers[0].plugins[0].endpoint: Invalid value: "unix:///run//a.sock": the socket is in /run, which holds much else`},
		"plugin":                         {operatorFile("plugins: [{endpoint: 'unix:///a.sock', role: Write}]"), "apiServers[0].plugins[0].keyID: Required value"},
		"keyID":                          {operatorFile("encryptionConfig: {keyIDs: {'unix:///a.sock': '!'}}"), `apiServers[0].encryptionConfig.keyIDs[unix:///a.sock]: Invalid value: "!"`},
		"endpoint of a keyID":            {operatorFile("encryptionConfig: {keyIDs: {'/a.sock': '1'}}"), `apiServers[0].encryptionConfig.keyIDs[/a.sock]: Invalid value: "/a.sock"`},
		"two keyIDs of one socket":       {operatorFile("encryptionConfig: {keyIDs: {'unix:///a.sock': '1', 'unix:/a.sock': '2'}}"), `apiServers[0].encryptionConfig.keyIDs[unix:/a.sock]: Duplicate value: "unix:/a.sock"`},
		"one resource twice":             {operatorFile() + strings.TrimPrefix(operatorFile(), head+"apiServers:\n"), `apiServers[1].resource: Duplicate value: "kubeapiservers"`},
		"one name twice":                 {kmsHealth("a") + strings.TrimPrefix(kmsHealth("a"), head+"apiServers:\n"), `apiServers[1].name: Duplicate value: "a"`},
		"another name":                   {operatorFile("name: api"), `apiServers[0].name: Invalid value: "api": must be kube-apiserver, the API server of kubeapiservers: remove the field`},
	} {
		got, err := DecodeOperator([]byte(c.file))
		if err == nil || got != nil {
			t.Errorf("%s: taken", name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nmust hold %s", name, err, c.want)
		}
	}
}

func TestTheOwnerInjectsASidecarWithoutADeployment(t *testing.T) {
	for _, a := range []APIServer{{Mode: ModeSidecar}, {Mode: ModeSidecar, Deployment: "d"}, {Mode: ModeDaemonSet}} {
		if want := a.Mode == ModeSidecar && a.Deployment == ""; a.OwnerInjects() != want {
			t.Errorf("%+v", a)
		}
	}
}

func TestAnAPIServersNameHasAtMost40Characters(t *testing.T) {
	for n, valid := range map[int]bool{40: true, 41: false} {
		if _, err := DecodeOperator([]byte(kmsHealth(strings.Repeat("a", n)))); (err == nil) != valid {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestPluginSetHashIsOfSocketsAlone(t *testing.T) {
	set := []Plugin{{KeyID: "1", Endpoint: "unix:///1", Role: RoleWrite}, {KeyID: "2", Endpoint: "unix:///2", Role: RoleRead}}
	same := []Plugin{{KeyID: "2", Endpoint: "unix:///2", Role: RoleWrite}, {KeyID: "1", Endpoint: "unix:///1", Role: RoleRead}}
	if PluginSetHash(set) != PluginSetHash(same) {
		t.Error("order or role made another set")
	}
	for _, endpoint := range []string{"unix:/1", "UNIX:///1", "unix://localhost/1", "unix:///1?a", "unix:///./1"} {
		if PluginSetHash([]Plugin{{KeyID: "1", Endpoint: endpoint}, set[1]}) != PluginSetHash(set) {
			t.Errorf("%s is another socket than unix:///1", endpoint)
		}
	}
	// Reporters delivered by earlier versions have this hash.
	if got, want := PluginSetHash(set), contract.FileHash([]byte(`[{"KeyID":"1","Endpoint":"unix:///1"},{"KeyID":"2","Endpoint":"unix:///2"}]`)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for name, other := range map[string][]Plugin{
		"empty":            nil,
		"one less":         set[:1],
		"another keyID":    {set[0], {KeyID: "3", Endpoint: "unix:///2"}},
		"another endpoint": {set[0], {KeyID: "2", Endpoint: "unix:///3"}},
	} {
		if PluginSetHash(set) == PluginSetHash(other) {
			t.Errorf("%s: the same hash", name)
		}
	}
}

func TestImageOfTheReporter(t *testing.T) {
	for name, tt := range map[string]struct{ file, flag, want, err string }{
		"the file's":          {"a:1", "", "a:1", ""},
		"the flag's":          {"", "b:1", "b:1", ""},
		"the file's, of both": {"a:1", "b:1", "a:1", ""},
		"none":                {"", "", "", "image: Required value: the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE"},
	} {
		c := &OperatorConfiguration{Image: tt.file}
		err := ""
		if e := c.UseImage(tt.flag); e != nil {
			err = e.Error()
		}
		if c.Image != tt.want || err != tt.err {
			t.Errorf("%s: image %q, error %q", name, c.Image, err)
		}
	}
}
