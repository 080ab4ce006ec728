package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
)

func TestOperatorSamplesAreValid(t *testing.T) {
	openShift, err := DecodeOperator(OperatorOpenShift)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(openShift.Targets); n != 3 {
		t.Errorf("%d targets", n)
	}
	for _, target := range openShift.Targets {
		if target.Delivery != DeliveryAuto || target.Credentials != CredentialsBoundToken || target.APIServer.Server != DefaultLocalServer {
			t.Errorf("%s: %s, %s, %s", target.Name, target.Delivery, target.Credentials, target.APIServer.Server)
		}
		if e := target.EncryptionConfig; e.Secret != DefaultEncryptionConfig || e.Key != DefaultEncryptionConfig {
			t.Errorf("%s: %+v", target.Name, target.EncryptionConfig)
		}
	}
	plain, err := DecodeOperator(OperatorKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	target := plain.Targets[0]
	if target.Delivery != DeliveryDaemonSet || target.Plugins[0].Timeout.Duration != DefaultTimeout {
		t.Errorf("%+v", target)
	}
}

func TestOperatorDefaultsFollowTheDelivery(t *testing.T) {
	for delivery, want := range map[Delivery]struct {
		credentials Credentials
		server      string
	}{
		DeliveryAuto:      {CredentialsBoundToken, DefaultLocalServer},
		DeliveryCompanion: {CredentialsBoundToken, DefaultLocalServer},
		DeliveryDaemonSet: {CredentialsBoundToken, DefaultLocalServer},
		DeliveryExternal:  {CredentialsMintedToken, DefaultClusterServer},
	} {
		c, err := DecodeOperator([]byte(operatorFile("delivery: " + string(delivery))))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Targets[0]; got.Credentials != want.credentials || got.APIServer.Server != want.server {
			t.Errorf("%s: %s and %s", delivery, got.Credentials, got.APIServer.Server)
		}
	}
}

func operatorFile(lines ...string) string {
	text := `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
targets:
- name: a
  resource: kubeapiservers
  namespace: ns
  podSelector: {app: a}
`
	for _, line := range lines {
		text += "  " + line + "\n"
	}
	return text
}

func TestOperatorMistakesAreReportedWithPathAndValue(t *testing.T) {
	const head = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"
	for name, c := range map[string]struct{ file, want string }{
		"another kind":                   {string(ReporterSample), `kind: Unsupported value: "ReporterConfiguration"`},
		"no targets":                     {head, "targets: Required value"},
		"unknown field":                  {head + "targets: []\nfoo: 1\n", "foo: Invalid value: \"1\": unknown field"},
		"management state":               {head + "targets: []\nmanagementState: Gone\n", `managementState: Unsupported value: "Gone"`},
		"rollout":                        {head + "targets: []\nrollout: Never\n", `rollout: Unsupported value: "Never"`},
		"interval":                       {head + "targets: []\nprobe: {interval: 1ms}\n", `probe.interval: Invalid value: "1ms"`},
		"image":                          {head + "targets: []\nimage: a b\n", `image: Invalid value: "a b"`},
		"image in capitals":              {head + "targets: []\nimage: Reporter:1\n", `image: Invalid value: "Reporter:1": must be the reference of an image`},
		"plugins and encryptionConfig":   {operatorFile("plugins: []", "encryptionConfig: {key: k}"), `targets[0].encryptionConfig: Forbidden: must be left out where targets[0].plugins gives the plugins`},
		"bare target":                    {head + "targets: [{}]\n", "targets[0].name: Required value"},
		"no selector":                    {head + "targets: [{name: a, resource: kubeapiservers, namespace: b}]\n", "targets[0].podSelector: Required value"},
		"selector that is no string":     {operatorFile("container: c", "nodeSelector: {a: 1}"), "targets[0].nodeSelector[a]: Invalid value"},
		"selector that is no mapping":    {operatorFile("nodeSelector: [a]"), "targets[0].nodeSelector: Invalid value"},
		"selector that is no label":      {operatorFile(`nodeSelector: {"a b": c}`), `targets[0].nodeSelector: Invalid value: "a b"`},
		"long name":                      {strings.Replace(operatorFile(), "name: a", "name: "+strings.Repeat("a", 41), 1), "targets[0].name: Too long"},
		"resource":                       {strings.Replace(operatorFile(), "kubeapiservers", "pods", 1), `targets[0].resource: Unsupported value: "pods"`},
		"delivery":                       {operatorFile("delivery: Sidecar"), `targets[0].delivery: Unsupported value: "Sidecar"`},
		"Deployment without a name":      {operatorFile("delivery: Deployment"), "targets[0].deployment: Required value"},
		"a name without Deployment":      {operatorFile("deployment: x"), `targets[0].deployment: Invalid value: "x"`},
		"Deployment's name":              {operatorFile("delivery: Deployment", "deployment: A"), `targets[0].deployment: Invalid value: "A"`},
		"credentials":                    {operatorFile("credentials: Password"), `targets[0].credentials: Unsupported value: "Password"`},
		"bound token for External":       {operatorFile("delivery: External", "credentials: BoundToken"), `targets[0].credentials: Invalid value: "BoundToken"`},
		"minted token for Companion":     {operatorFile("delivery: Companion", "credentials: MintedToken"), `targets[0].credentials: Invalid value: "MintedToken"`},
		"server":                         {operatorFile("apiServer: {server: 'http://x'}"), `targets[0].apiServer.server: Invalid value: "http://x"`},
		"server name":                    {operatorFile("apiServer: {tlsServerName: A_B}"), `targets[0].apiServer.tlsServerName: Invalid value: "A_B"`},
		"serving without TLS":            {operatorFile("serving: {address: '0.0.0.0:1'}"), `targets[0].serving.address: Invalid value: "0.0.0.0:1": must be a loopback address where secret is left out`},
		"serving secret in others' pods": {operatorFile("delivery: External", "serving: {address: '0.0.0.0:1', secret: s}"), `targets[0].serving.secret: Invalid value: "s"`},
		"typed form, interval":           {head + "targets: []\nformat: HealthReports\nprobe: {interval: 31s}\n", `probe.interval: Invalid value: "31s": must be at most 30s with format HealthReports`},
		"both forms, interval":           {head + "targets: []\nformat: Both\nprobe: {interval: 1m}\n", `probe.interval: Invalid value: "1m0s": must be at most 30s with format Both`},
		"endpoint with ..":               {operatorFile("plugins: [{keyID: a, endpoint: 'unix:///run/x/../a.sock', role: Write}]"), `targets[0].plugins[0].endpoint: Invalid value: "unix:///run/x/../a.sock": must be written without ..`},
		"too many labels":                {operatorFile("nodeSelector: {" + manyLabels() + "}"), "targets[0].nodeSelector: Too many: 65: must have at most 64 items"},
		"plugin":                         {operatorFile("plugins: [{endpoint: 'unix:///a.sock', role: Write}]"), "targets[0].plugins[0].keyID: Required value"},
		"keyID":                          {operatorFile("encryptionConfig: {keyIDs: {'unix:///a.sock': '!'}}"), `targets[0].encryptionConfig.keyIDs[unix:///a.sock]: Invalid value: "!"`},
		"endpoint of a keyID":            {operatorFile("encryptionConfig: {keyIDs: {'/a.sock': '1'}}"), `targets[0].encryptionConfig.keyIDs[/a.sock]: Invalid value: "/a.sock"`},
		"typed reports of KMSHealths":    {strings.Replace(operatorFile(), "kubeapiservers", "kmshealths", 1) + "format: Both\n", `targets[0].resource: Invalid value: "kmshealths": has no healthReports, which format Both writes`},
		"one resource twice":             {operatorFile() + strings.TrimPrefix(strings.Replace(operatorFile(), "name: a", "name: b", 1), head+"targets:\n"), `targets[1].resource: Duplicate value: "kubeapiservers"`},
		"one name twice":                 {operatorFile() + strings.TrimPrefix(strings.Replace(operatorFile(), "kubeapiservers", "authentications", 1), head+"targets:\n"), `targets[1].name: Duplicate value: "a"`},
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

func TestPluginSetHashIsOfSocketsAlone(t *testing.T) {
	set := []Plugin{{KeyID: "1", Endpoint: "unix:///1", Role: RoleWrite}, {KeyID: "2", Endpoint: "unix:///2", Role: RoleRead}}
	same := []Plugin{{KeyID: "2", Endpoint: "unix:///2", Role: RoleWrite}, {KeyID: "1", Endpoint: "unix:///1", Role: RoleRead}}
	if PluginSetHash(set) != PluginSetHash(same) {
		t.Error("order or role made another set")
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

func manyLabels() string {
	var b strings.Builder
	for i := range maxElements + 1 {
		fmt.Fprintf(&b, "l%d: '', ", i)
	}
	return b.String()
}

func TestImageOfTheReporter(t *testing.T) {
	for name, tt := range map[string]struct{ file, flag, want, err string }{
		"the file's":           {"a:1", "", "a:1", ""},
		"the flag's":           {"", "registry.example.com:5000/a/b_c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "registry.example.com:5000/a/b_c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ""},
		"the file's, of both":  {"a:1", "b:1", "a:1", ""},
		"none":                 {"", "", "", "image: Required value: the reporter's image: in the file, by --image, or by the environment variable REPORTER_IMAGE"},
		"no reference":         {"", "BAD IMAGE", "BAD IMAGE", `--image: Invalid value: "BAD IMAGE": must be the reference of an image, as in registry.example.com/kms-health-reporter:v1`},
		"no reference, unused": {"a:1", "BAD IMAGE", "a:1", ""},
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

func TestEachTargetHasAKMSHealthOfItsOwn(t *testing.T) {
	file := strings.Replace(operatorFile(), "kubeapiservers", "kmshealths", 1)
	_, target, _ := strings.Cut(file, "targets:\n")
	both := file + strings.Replace(target, "name: a", "name: b", 1)
	if _, err := DecodeOperator([]byte(both)); err != nil {
		t.Error(err)
	}
}
