package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
)

func plugins(fields string) string { return head + "plugins: [{" + fields + "}]\n" }

const kubeconfig = "apiVersion: v1\nkind: Config\nclusters: []\n"

const encryptionConfiguration = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: []\n"

func manyPlugins() string {
	file := head + "plugins:\n"
	for i := range MaxPlugins + 1 {
		file += fmt.Sprintf("- {endpoint: 'unix:///kms-%d.sock', role: Read}\n", i)
	}
	return file
}

// rejected are mistakes that people make, with exactly what they read.
var rejected = []struct{ name, file, want string }{
	{"empty file", "", `the file is empty, must hold kind ReporterConfiguration`},
	{"tab", head + "plugins:\n- endpoint: unix:///kms-1.sock\n\trole: Write\n", `invalid YAML: line 5: found a tab character that violates indentation (check indentation and quotes, also in the lines before and after)`},
	{"missing quote", head + "plugins:\n- endpoint: 'unix:///kms-1.sock\n  role: Write\n", `invalid YAML: line 6: found unexpected end of stream (check indentation and quotes, also in the lines before and after)`},
	{"missing quote before another", head + "plugins:\n- endpoint: \"unix:///kms-1.sock\n  role: \"Write\"\n", `invalid YAML: line 4: did not find expected key (check indentation and quotes, also in the lines before and after)`},
	{"wrong indent", head + "plugins:\n- endpoint: unix:///kms-1.sock\n role: Write\n", `invalid YAML: line 4: did not find expected key (check indentation and quotes, also in the lines before and after)`},
	{"indent too deep", head + "plugins:\n- endpoint: unix:///kms-1.sock\n   role: Write\n", `invalid YAML: line 5: mapping values are not allowed in this context (check indentation and quotes, also in the lines before and after)`},
	{"UTF-16", "\xff\xfea\x00", `the file is not text: it must be UTF-8`},
	{"second document", head + onePlugin + "---\n" + head + onePlugin, `the file must hold one YAML document: remove what follows ---`},
	{"alias", head + "probe: {interval: &t 7s}\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read, timeout: *t}]\n", `line 3 has a YAML anchor or tag (&): write plain values`},
	{"merge key", head + "plugins: []\nprobe: {<<: {interval: 7s}}\n", `line 4 has a YAML merge key (<<): write the fields out`},
	{"unknown field", head + onePlugin + "probes: {}\n", `probes: Forbidden: unknown field`},
	{"duplicate field", head + onePlugin + "probe: {interval: 5s, interval: 6s}\n", `probe.interval: Forbidden: duplicate field`},
	{"number for a duration", head + onePlugin + "probe: {interval: 30}\n", `probe.interval: Invalid value: "30": must be a duration with its unit, from 1s to 1h0m0s`},
	{"zero", head + onePlugin + "probe: {interval: 0s}\n", `probe.interval: Invalid value: "0s": must be a duration with its unit, from 1s to 1h0m0s`},
	{"y without quotes", plugins("keyID: y, endpoint: 'unix:///a', role: Write"), `plugins[0].keyID: Invalid value: "true": must be a string in quotes: y, yes, on, n, no and off without quotes are booleans`},
	{"number for a keyID", plugins("keyID: 1, endpoint: 'unix:///a', role: Write"), `plugins[0].keyID: Invalid value: "1": must be a string in quotes`},
	{"role: write", plugins("keyID: a, endpoint: 'unix:///a', role: write"), `plugins[0].role: Unsupported value: "write": supported values: "Write", "Read"`},
	{"two plugins with one keyID", head + "plugins:\n- {keyID: a, endpoint: 'unix:///1', role: Write}\n- {keyID: a, endpoint: 'unix:///2', role: Read}\n", `plugins[1].keyID: Duplicate value: "a"`},
	{"17 plugins", manyPlugins(), `plugins: Too many: 17: must have at most 16 items`},
	{"relative path", plugins("keyID: a, endpoint: 'unix://run/kms.sock', role: Write"), `plugins[0].endpoint: Invalid value: "unix://run/kms.sock": must be an absolute path after unix://, as in unix:///run/kms.sock`},
	{"trailing blank", plugins("keyID: a, endpoint: 'unix:///run/kms.sock ', role: Write"), `plugins[0].endpoint: Invalid value: "unix:///run/kms.sock ": must not begin or end with a blank`},
	{"control characters", "apiVersion: \x1b[2J\n", `the file is not text: "\x1b" in line 1`},
	{"the operator's file", string(OperatorOpenShift), `kind: Invalid value: "OperatorConfiguration": must be ReporterConfiguration; this is kms-health-operator's file: kms-health-operator validate FILE`},
	{"EncryptionConfiguration", encryptionConfiguration, `kind: Invalid value: "EncryptionConfiguration": must be ReporterConfiguration; this is kube-apiserver's file, which kms-health-operator render reads by --encryption-config`},
	{"kubeconfig", kubeconfig, `kind: Invalid value: "Config": must be ReporterConfiguration; this is a kubeconfig: destination.kubeconfig of the reporter's file names it`},
	{"ConfigMap", "apiVersion: v1\nkind: ConfigMap\ndata: {config.yaml: 'a: 1'}\n", `kind: Invalid value: "ConfigMap": must be ReporterConfiguration; a program reads the file in its data; validate reads the ConfigMap itself, too`},
	{"smart quotes", head + "plugins: [{keyID: “1”, endpoint: “unix:///run/kms.sock”, role: Write}]\nprobe: {interval: “30s”}\n", `plugins[0].keyID: Invalid value: "“1”": must not have curly quotes: write straight ones` + "\n" +
		`plugins[0].endpoint: Invalid value: "“unix:///run/kms.sock”": must not have curly quotes: write straight ones` + "\n" +
		`probe.interval: Invalid value: "“30s”": must not have curly quotes: write straight ones`},
	{"several", head + "plugins: [{keyID: 1, endpoint: [a], role: write, timeout: 5}]\nprobe: {interval: 0s, timeout: 1s}\n", `plugins[0].keyID: Invalid value: "1": must be a string in quotes` + "\n" +
		`plugins[0].endpoint: Invalid value: "[…]": must be a string in quotes` + "\n" +
		`probe.timeout: Forbidden: unknown field` + "\n" +
		`probe.interval: Invalid value: "0s": must be a duration with its unit, from 1s to 1h0m0s` + "\n" +
		`plugins[0].role: Unsupported value: "write": supported values: "Write", "Read"` + "\n" +
		`plugins[0].timeout: Invalid value: "5": must be a duration with its unit, from 10ms to 1h0m0s`},
}

func TestRejectedInputs(t *testing.T) {
	for _, tt := range rejected {
		_, err := DecodeReporter([]byte(tt.file))
		if err == nil {
			t.Errorf("%s: accepted", tt.name)
			continue
		}
		if got := err.Error(); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

var rejectedByOperator = []struct{ name, file, want string }{
	{"the reporter's file", string(ReporterSample), `kind: Invalid value: "ReporterConfiguration": must be OperatorConfiguration; this is kms-health-reporter's file: kms-health-reporter --validate --config FILE`},
	{"a kubeconfig", kubeconfig, `kind: Invalid value: "Config": must be OperatorConfiguration; this is a kubeconfig: destination.kubeconfig of the reporter's file names it`},
	{"an EncryptionConfiguration", encryptionConfiguration, `kind: Invalid value: "EncryptionConfiguration": must be OperatorConfiguration; this is kube-apiserver's file, which kms-health-operator render reads by --encryption-config`},
	{"kmshealths without plugins and Secret", operatorHead + "apiServers: [{name: a, resource: kmshealths, namespace: ns, podSelector: {a: b}}]\n",
		`apiServers[0].encryptionConfig.secret: Required value: the Secret that holds the API server's EncryptionConfiguration; or set plugins, in place of encryptionConfig`},
	{"kmshealths alone", operatorHead + "apiServers: [{resource: kmshealths, plugins: []}]\n", `apiServers[0].name: Required value: a DNS label` + "\n" +
		`apiServers[0].namespace: Required value: the namespace of the API server's pods` + "\n" +
		`apiServers[0].podSelector: Required value: the labels of the API server's pods`},
}

func TestRejectedInputsOfTheOperator(t *testing.T) {
	for _, tt := range rejectedByOperator {
		_, err := DecodeOperator([]byte(tt.file))
		if err == nil {
			t.Errorf("%s: accepted", tt.name)
			continue
		}
		if got := err.Error(); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestAcceptedInputs(t *testing.T) {
	for name, file := range map[string]string{
		"JSON":                 `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"ReporterConfiguration","plugins":[{"endpoint":"unix:///kms-1.sock","role":"Write"}]}`,
		"CRLF":                 strings.ReplaceAll(head+onePlugin, "\n", "\r\n"),
		"byte order mark":      "\ufeff" + head + onePlugin,
		".. in a path":         plugins("keyID: a, endpoint: 'unix:///run/../a.sock', role: Write"),
		"round trip off":       head + onePlugin + "probe: {checks: {roundTrip: {interval: 0s}}}\n",
		"no plugins":           head + "plugins: []\n",
		"no Write plugin":      plugins("keyID: a, endpoint: 'unix:///a.sock', role: Read"),
		"sections without any": head + onePlugin + "probe:\ndestination:\n",
	} {
		c, err := DecodeReporter([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if every := c.Probe.Checks.RoundTrip.Interval.Duration; (every == 0) != (name == "round trip off") {
			t.Errorf("%s: a round trip each %s", name, every)
		}
	}
}

func TestFileOfAConfigMap(t *testing.T) {
	indented := "    " + strings.ReplaceAll(head+onePlugin, "\n", "\n    ")
	file, err := Unwrap([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config.yaml: |\n" + indented + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeReporter(file); err != nil {
		t.Error(err)
	}
	_, err = Unwrap([]byte("apiVersion: v1\nkind: ConfigMap\ndata: {other: a}\n"))
	if want := "data[config.yaml]: Required value: the configuration file, where the file is a ConfigMap"; err == nil || err.Error() != want {
		t.Error(err)
	}
	if other, err := Unwrap([]byte(head)); err != nil || string(other) != head {
		t.Errorf("%q, %v", other, err)
	}
}

func TestAResourceOfOpenShiftIsEnough(t *testing.T) {
	c, err := DecodeOperator([]byte(operatorHead + "apiServers: [{resource: authentications}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := c.APIServers[0]
	if got.Name != "oauth-apiserver" || got.Namespace != "openshift-oauth-apiserver" || got.PodSelector["apiserver"] != "true" ||
		got.Container != "oauth-apiserver" || got.EncryptionConfig.Secret != DefaultEncryptionConfig {
		t.Errorf("%+v", got)
	}
}
