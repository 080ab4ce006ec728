package v1alpha1

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kms/pkg/util"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

const head = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n"

const onePlugin = "plugins:\n- {endpoint: 'unix:///run/kms-2.sock', role: Write}\n"

func seconds(n int) Duration { return Duration{Duration: time.Duration(n) * time.Second} }

// Endpoints get the plain spelling, which reporters of earlier versions read: unix:// and the path, without the other
// parts of a URL.
func TestUnsetFieldsGetTheirDefaults(t *testing.T) {
	got := accepted(t, DecodeReporter, head+onePlugin+"- {endpoint: 'unix:/@kms-a.b.sock', role: Read}\n"+
		"- {endpoint: 'UNIX://user:s3cret@host/r un/kms-7.sock?s3cret#s3cret', role: Read, keyID: x}\n- {endpoint: 'unix:////@/kms-1.sock', role: Read}\n"+
		"destination: {resource: authentications, writeTimeout: }\nserving: {address: '[::1]:80', tls: {certFile: /c, keyFile: /k}}\nprobe:\n")
	want := &ReporterConfiguration{
		TypeMeta: TypeMeta{APIVersion: APIVersion, Kind: ReporterKind},
		Probe:    DefaultProbe(), // the sample states it
		Plugins: []Plugin{
			{KeyID: "2", Endpoint: "unix:///run/kms-2.sock", Role: RoleWrite, Timeout: seconds(3)},
			{KeyID: "a.b", Endpoint: "unix:///@kms-a.b.sock", Role: RoleRead, Timeout: seconds(3)},
			{KeyID: "x", Endpoint: "unix:///r%20un/kms-7.sock", Role: RoleRead, Timeout: seconds(3)},
			{KeyID: "1", Endpoint: "unix:////@/kms-1.sock", Role: RoleRead, Timeout: seconds(3)},
		},
		Destination: &Destination{Resource: "authentications", Kubeconfig: DefaultKubeconfig, WriteTimeout: seconds(10)},
		Serving:     &Serving{Address: "[::1]:80", TLS: &ServingTLS{CertFile: "/c", KeyFile: "/k", MinVersion: TLS12}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSampleIsAValidFileThatStatesTheDefaults(t *testing.T) {
	minimal := accepted(t, DecodeReporter, plugins("endpoint: 'unix:///var/run/kmsplugin/kms-2.sock', role: Write"))
	if diff := cmp.Diff(minimal, accepted(t, DecodeReporter, string(ReporterSample))); diff != "" {
		t.Error(diff)
	}
	// OpenShift's installer of static pods replaces these words in every file that it writes.
	if bytes.Contains(ReporterSample, []byte("NODE_NAME")) || bytes.Contains(ReporterSample, []byte("REVISION")) {
		t.Error("the sample has a word that installers replace")
	}
}

// The fields that the sample has commented out must be valid once they are commented in.
func TestSampleCommentedInIsValid(t *testing.T) {
	var lines []string
	for _, line := range strings.Split(string(ReporterSample), "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		text, comment := strings.CutPrefix(line[indent:], "#")
		prose := strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "  ")
		if comment && !prose {
			line = line[:indent] + text
		}
		lines = append(lines, line)
	}
	c := accepted(t, DecodeReporter, strings.Join(lines, "\n"))
	if len(c.Destination.Servers) != 2 || len(c.Plugins) != 2 || len(c.Serving.TLS.CipherSuites) != 1 ||
		c.Destination.UnchangedEvery.Duration == 0 || c.Probe.Checks.RoundTrip.Requested == "" {
		t.Errorf("not all of it was commented in: %+v", c)
	}
}

// plugins returns a file with one plugin that has these fields.
func plugins(fields string) string { return head + "plugins: [{" + fields + "}]\n" }

// with returns a valid file with one plugin, and more lines.
func with(more string) string { return head + onePlugin + more + "\n" }

const (
	notReporters            = "apiVersion, kind: must be kmshealth.openshift.io/v1alpha1, ReporterConfiguration, and not "
	encryptionConfiguration = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: []\n"
	hints                   = " (check indentation and quotes, also in the lines before and after)"
	servedByTLS             = "serving: {address: '0.0.0.0:80', tls: {certFile: /c, keyFile: /k, "
)

// rejected are mistakes that people make, and the beginning of each line of the error.
var rejected = map[string]struct {
	file string
	want []string
}{
	"empty file":      {"", []string{"the file is empty, must hold kind ReporterConfiguration"}},
	"comments only":   {"# nothing\n", []string{"the file is empty"}},
	"a list":          {"- 1\n", []string{"the file must be a mapping, with apiVersion and kind"}},
	"second document": {head + onePlugin + "---\n" + head + onePlugin, []string{"the file must hold one YAML document: remove what follows ---"}},
	"UTF-16":          {"\xff\xfea\x00", []string{"the file is not text: it must be UTF-8"}},
	"NUL":             {head + "\x00", []string{`hidden character "\x00" in line 3`}},
	"too large by 1":  {strings.Repeat("#", MaxFileSize+1), []string{"the file is 131073 bytes, must be at most 131072"}},
	"alias":           {head + "probe: {interval: &t 7s}\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read, timeout: *t}]\n", []string{"line 3 has a YAML anchor (&): write plain values"}},
	"tab":             {head + "plugins:\n- endpoint: unix:///kms-1.sock\n\trole: Write\n", []string{"invalid YAML: line 5: found a tab character that violates indentation" + hints}},
	"template":        {head + "plugins: {{ .Values.plugins }}\n", []string{`invalid YAML: invalid map key: map[interface {}]interface {}{".Values.plugins":interface {}(nil)} ({{ }} belongs to a template: use the file that it renders)`}},
	"wrong indent":    {head + "plugins:\n- endpoint: unix:///kms-1.sock\n role: Write\n", []string{"invalid YAML: line 4: did not find expected key" + hints}},

	"no type":                 {onePlugin, []string{notReporters + `"", ""`}},
	"wrong version":           {strings.Replace(head, "v1alpha1", "v1", 1), []string{notReporters + `"kmshealth.openshift.io/v1", "ReporterConfiguration"`}},
	"the operator's file":     {string(OperatorOpenShift), []string{notReporters + `"kmshealth.openshift.io/v1alpha1", "OperatorConfiguration"; kms-health-operator validate --config FILE checks that kind`}},
	"EncryptionConfiguration": {encryptionConfiguration, []string{notReporters + `"apiserver.config.k8s.io/v1", "EncryptionConfiguration"; this is kube-apiserver's file, which kms-health-operator render reads by --encryption-config`}},

	"no plugins":            {head, []string{"plugins: Required value"}},
	"17 plugins":            {manyPlugins(MaxPlugins + 1), []string{"plugins: Too many: 17: must have at most 16 items"}},
	"unknown fields":        {plugins("endpoint: 'unix:///kms-2.sock', role: Write, timeOut: 3s") + "intervall: 5s\n1: 2\n\"a\\nb\": 3\n", []string{`unknown field "plugins[0].timeOut"`, `unknown field "intervall"`, `unknown field "1"`, `unknown field "a\nb"`}},
	"field of another case": {with("Probe: {interval: 5s}"), []string{`unknown field "Probe"`}},
	"duplicate, unknown and invalid together": {plugins("endpoint: 'unix:///kms-2.sock', role: Write, role: Read, x: [1, 2], timeout: 1h"), []string{
		`line 3: key "role" already set in map`, `unknown field "plugins[0].x"`, `plugins[0].timeout: Invalid value: "1h0m0s": must be a duration with its unit, from 10ms to 30s`,
	}},
	"null element": {head + "plugins: [null]\n", []string{"plugins[0].keyID: Required value", "plugins[0].endpoint: Required value", `plugins[0].role: Required value: one of [Write Read]`}},
	"number for a keyID": {plugins("keyID: 1, endpoint: 'unix:///a', role: write"), []string{
		`plugins[0].keyID: Invalid value: 1: must be a string: numbers, and words such as y, no and off, need quotes`, `plugins[0].role: Unsupported value: "write": supported values: "Write", "Read"`,
	}},
	"wrong types, an unknown field and a wrong value together": {
		head + "probe: {interval: 1h, timeout: 1s}\nplugins:\n- {endpoint: 'unix:///kms-1.sock', role: Read}\n- {endpoint: 'unix:///kms-2.sock', role: 7, x: 1}\n- [1]\n" +
			"- {keyID: no, endpoint: {a: b}, role: Read, timeout: 2h}\ndestination: {resource: authentications, name: [5], servers: [{url: 'http://a'}]}\n", []string{
			`unknown field "probe.timeout"`, `plugins[1].role: Invalid value: 7: must be a string`, `unknown field "plugins[1].x"`, `plugins[2]: Invalid value: [1]: must be a mapping`,
			`plugins[3].keyID: Invalid value: false: must be a string`, `plugins[3].endpoint: Invalid value: {"a":"b"}: must be a string`,
			`plugins[3].timeout: Invalid value: "2h0m0s": must be a duration`, "destination.name: Invalid value: [5]: must be a string",
			`destination.servers[0].url: Invalid value: "http://a": must be a URL`,
		},
	},
	"wrong types, and what is missing": {head + "plugins: [{role: 1}]\ndestination: {servers: [{url: 1}, {}]}\nserving: {address: 80, tls: {certFile: /c, keyFile: /k, cipherSuites: {}}}\n", []string{
		"serving.address: Invalid value: 80: must be a string", "serving.tls.cipherSuites: Invalid value: {}: must be a list",
		"plugins[0].role: Invalid value: 1", "plugins[0].endpoint: Required value", "plugins[0].keyID: Required value", "destination.servers[0].url: Invalid value: 1",
		"destination.servers[1].url: Required value", `destination.resource: Required value`,
	}},
	"a large number":                   {plugins("keyID: 12345678901234567890, endpoint: 'unix:///a', role: Read"), []string{`plugins[0].keyID: Invalid value: 12345678901234567890: must be a string`}},
	"a value that controls a terminal": {with("destination: [\"\\e[2J\\u202e\\u009b\\nerror: x\"]"), []string{`destination: Invalid value: ["\u001b[2J\u202e\u009b\nerror: x"]: must be a mapping`}},
	"control characters": {plugins("keyID: \"\\e[2J\", role: \"\\u202e\", endpoint: \"unix:///\\x9b\""), []string{
		`plugins[0].keyID: Invalid value: "\x1b[2J": must hold only characters that can be printed`, `plugins[0].endpoint: Invalid value: "unix:///\u009b": must hold only`, `plugins[0].role: Unsupported value: "\u202e"`,
	}},

	"durations without a unit, or that are none": {with("probe: {interval: 30, checks: {roundTrip: {interval: “0s”}}}\ndestination: {resource: kubeapiservers, writeTimeout: []}"), []string{
		`probe.interval: Invalid value: "30": must be a duration with its unit, from 1s to 1h0m0s`, `probe.checks.roundTrip.interval: Invalid value: "“0s”": must be a duration`, `destination.writeTimeout: Invalid value: "[]"`,
	}},
	"durations of 0": {plugins("endpoint: 'unix:///kms-2.sock', role: Write, timeout: 0s") + "probe: {interval: 0s}\ndestination: {resource: kubeapiservers, unchangedEvery: 0s}\n", []string{
		`probe.interval: Invalid value: "0s"`, `plugins[0].timeout: Invalid value: "0s": must be a duration with its unit, from 10ms`, `destination.unchangedEvery: Invalid value: "0s": must be a duration with its unit, from 1s to 10m0s`,
	}},
	"durations over their bounds": {with("probe: {interval: 100h, checks: {roundTrip: {interval: 25h}}}\ndestination: {resource: kubeapiservers, unchangedEvery: 11m, writeTimeout: 2h}"), []string{
		`probe.interval: Invalid value: "100h0m0s"`, `probe.checks.roundTrip.interval: Invalid value: "25h0m0s": must be a duration with its unit, from 1m0s to 24h0m0s`, `destination.unchangedEvery: Invalid value: "11m0s"`,
		`destination.writeTimeout: Invalid value: "2h0m0s": must be a duration with its unit, from 100ms to 1m0s`,
	}},
	"a request with a space, a round trip too often": {with("probe: {checks: {roundTrip: {requested: 'a b', interval: 59s}}}"), []string{
		`probe.checks.roundTrip.requested: Invalid value: "a b": must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit`, `probe.checks.roundTrip.interval: Invalid value: "59s"`,
	}},
	"timeout above interval": {head + "probe: {interval: 1s}\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read, timeout: 2s}]\n", []string{`plugins[0].timeout: Invalid value: "2s": must be a duration with its unit, from 10ms to 1s, which is probe.interval`}},
	"keyID":                  {plugins("endpoint: 'unix:///a', role: Write, keyID: 'a b'"), []string{`plugins[0].keyID: Invalid value: "a b": must be 1 to 63`}},
	"keyID not derivable":    {plugins("endpoint: 'unix:///run/kms.sock', role: Read"), []string{`plugins[0].keyID: Required value: cannot be taken from the endpoint "unix:///run/kms.sock"`}},
	"two plugins with one keyID and one socket": {head + "plugins: [{keyID: a, endpoint: 'unix:///1', role: Write}, {keyID: a, endpoint: 'unix:///2', role: Read}, {keyID: b, endpoint: 'unix:/./1?a', role: Read}]\n", []string{
		`plugins[1].keyID: Duplicate value: "a"`, `plugins[2].endpoint: Duplicate value: "unix:///./1"`,
	}},
	".. in a path": {plugins("keyID: a, endpoint: 'unix:///run/../a.sock', role: Write"), []string{`plugins[0].endpoint: Invalid value: "unix:///run/../a.sock": must be written without ..`}},

	"servers": {with("destination: {resource: kubeapiservers, servers: [{url: 'http://a'}, {url: 'https://u:secret@b'}, {}, {url: 'https://c', tlsServerName: 'x y'}, {url: 'https://c'}]}"), []string{
		"destination.servers: Too many: 5: must have at most 4 items", `destination.servers[0].url: Invalid value: "http://a": must be a URL`, `destination.servers[1].url: Invalid value: "(not shown)": must be a URL`,
		"destination.servers[2].url: Required value", `destination.servers[3].tlsServerName: Invalid value: "x y"`,
	}},
	"another resource":           {with("destination: {resource: nodes}"), []string{`destination.resource: Unsupported value: "nodes": supported values: "kubeapiservers", "openshiftapiservers", "authentications", "kmshealths"`}},
	"relative kubeconfig":        {with("destination: {resource: authentications, kubeconfig: a/b}"), []string{`destination.kubeconfig: Invalid value: "a/b": must be an absolute path`}},
	"a KMSHealth without a name": {with("destination: {resource: kmshealths}"), []string{"destination.name: Required value: the API server's, such as kube-apiserver"}},
	"a KMSHealth with a path":    {with("destination: {resource: kmshealths, name: ../a}"), []string{`destination.name: Invalid value: "../a"`}},
	"a name on OpenShift":        {with("destination: {resource: kubeapiservers, name: cluster}"), []string{"destination.name: Forbidden: must be set with resource kmshealths alone"}},

	"a name":       {with("serving: {address: 'localhost:80'}"), []string{`serving.address: Invalid value: "localhost:80": must be an IP address and a port`}},
	"open to all":  {with("serving: {address: '0.0.0.0:80'}"), []string{`serving.address: Invalid value: "0.0.0.0:80": must be a loopback address without serving.tls`}},
	"TLS files":    {with("serving: {address: '0.0.0.0:80', tls: {certFile: c, clientCAFile: d}}"), []string{`serving.tls.certFile: Invalid value: "c"`, "serving.tls.keyFile: Required value", `serving.tls.clientCAFile: Invalid value: "d"`}},
	"TLS settings": {with(servedByTLS + "minVersion: TLS1.2, cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256, TLS_AES_128_GCM_SHA256]}}"), []string{`serving.tls.minVersion: Unsupported value: "TLS1.2"`, `serving.tls.cipherSuites[0]: Invalid value: "ECDHE-RSA-AES128-GCM-SHA256": is not the IANA name`, `serving.tls.cipherSuites[1]: Invalid value: "TLS_AES_128_GCM_SHA256": is not the IANA name`}},
}

func manyPlugins(n int) string {
	file := head + "plugins:\n"
	for i := range n {
		file += fmt.Sprintf("- {endpoint: 'unix:///kms-%d.sock', role: Read}\n", i)
	}
	return file
}

func TestEveryMistakeIsReportedAtOnceWithPathAndValue(t *testing.T) {
	for name, tt := range rejected {
		t.Run(name, func(t *testing.T) { mistakes(t, DecodeReporter, tt.file, tt.want...) })
	}
}

// mistakes checks that a file is rejected, and that each line of the error begins with one of these texts.
func mistakes[T any](t *testing.T, decode func([]byte) (*T, error), file string, want ...string) {
	t.Helper()
	c, err := decode([]byte(file))
	if err == nil || c != nil {
		t.Fatalf("accepted: %+v", c)
	}
	lines := strings.Split(err.Error(), "\n")
	for _, begin := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) }) {
			t.Errorf("no %q", begin)
		}
	}
	if t.Failed() || len(lines) != len(want) {
		t.Errorf("%d mistakes, want %d:\n%s", len(lines), len(want), err)
	}
}

// accepted returns the configuration of a valid file.
func accepted[T any](t *testing.T, decode func([]byte) (*T, error), file string) *T {
	t.Helper()
	c, err := decode([]byte(file))
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	return c
}

func TestAcceptedInputs(t *testing.T) {
	for name, file := range map[string]string{
		"JSON":                 `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"ReporterConfiguration","plugins":[{"endpoint":"unix:///kms-1.sock","role":"Write"}]}`,
		"CRLF":                 strings.ReplaceAll(head+onePlugin, "\n", "\r\n"),
		"byte order mark":      "\ufeff" + head + onePlugin,
		"separator at first":   "---\n" + head + onePlugin,
		"longest intervals":    with("probe: {interval: 1h, checks: {roundTrip: {interval: 24h}}}"),
		"shortest intervals":   head + "probe: {interval: 1s, checks: {roundTrip: {interval: 1m}}}\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read, timeout: 10ms}]\n",
		"largest file":         with("#" + strings.Repeat("x", MaxFileSize-len(head+onePlugin)-2)),
		"round trip off":       with("probe: {checks: {roundTrip: {interval: 0s}}}"),
		"no plugins":           head + "plugins: []\n",
		"16 plugins":           manyPlugins(MaxPlugins),
		"no Write plugin":      plugins("keyID: a, endpoint: 'unix:///a.sock', role: Read"),
		"sections without any": with("probe:\ndestination:"),
		"empty strings":        with("destination: {resource: kubeapiservers, servers: [{url: 'https://a', tlsServerName: ''}]}"),
		"servers that differ":  with("destination: {resource: kubeapiservers, servers: [{url: 'https://a:6443'}, {url: 'https://a:6444'}, {url: 'https://a:6443/b'}, {url: 'https://[::1]:6443'}]}"),
		"no alias":             with("# R&D: *see* <<here>> & there * and that! cat <<EOF *t before *t"),
		"other characters":     with("# as agreed\t\u00a0é\ufeff😀"),
		"a KMSHealth":          with("destination: {resource: kmshealths, name: kube-apiserver}"),
	} {
		c := accepted(t, DecodeReporter, file)
		if every := c.Probe.Checks.RoundTrip.Interval.Duration; (every == 0) != (name == "round trip off") {
			t.Errorf("%s: a round trip each %s", name, every)
		}
	}
}

func TestFileOfAConfigMap(t *testing.T) {
	const configMap = "apiVersion: v1\nkind: ConfigMap\n"
	indented := strings.ReplaceAll(head+onePlugin, "\n", "\n    ")
	accepted(t, DecodeReporter, configMap+"metadata: {name: a}\ndata:\n  config.yaml: |\n    "+indented+"\n")
	for _, keys := range []string{"", "data: {other.yaml: a}", "data: {config.yaml: {a: b}}", "binaryData: {config.yaml: YTogYg==}", "data: [a]"} {
		mistakes(t, DecodeReporter, configMap+keys+"\n", notReporters+`"v1", "ConfigMap"; of a ConfigMap data["config.yaml"] is read, as text`)
	}
}

// A reporter of an earlier version rejects a file with a field that it does not know, and keeps its last file.
func TestOptionalFieldsAreWrittenWhereTheyAreSetOnly(t *testing.T) {
	for name, tt := range map[string]struct{ fields, printed string }{
		"not set":         {"destination: {resource: kubeapiservers, unchangedEvery: }", ""},
		"a request":       {"probe: {checks: {roundTrip: {requested: 2026-05-08_a.1}}}", "      requested: 2026-05-08_a.1\n"},
		"unchanged, low":  {"destination: {resource: kubeapiservers, unchangedEvery: 1s}", "  unchangedEvery: 1s\n"},
		"unchanged, high": {"destination: {resource: kubeapiservers, unchangedEvery: 10m}", "  unchangedEvery: 10m0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.Marshal(accepted(t, DecodeReporter, with(tt.fields)))
			must.Succeed(t, err)
			set := strings.Contains(string(raw), "requested") || strings.Contains(string(raw), "unchangedEvery")
			if set != (tt.printed != "") || !strings.Contains(string(raw), tt.printed) {
				t.Errorf("got\n%s\nwant %q", raw, tt.printed)
			}
		})
	}
}

// With such characters the parser and a reviewer's editor can disagree on where a comment ends.
func TestCharactersThatHideConfigurationAreRejected(t *testing.T) {
	before := head + onePlugin + "# as agreed"
	for _, hidden := range []string{
		"\u0085", "\u2028", "\u2029", // which end a YAML 1.1 line
		"\r", "\u0080", "\u009b", "\u009f", "\x7f",
		"\u202e", "\u2066", // which show text in another order
	} {
		mistakes(t, DecodeReporter, before+hidden+"probe: {interval: 1h}\n", fmt.Sprintf("hidden character %q in line 5", hidden))
	}
}

func TestNoPasswordOfAServersURLIsShown(t *testing.T) {
	for _, server := range []string{
		"https://alice:s3cret@host:6443", "https://alice:s3cret%40host:6443", "https://host:6443/?token=s3cret", "https://host:6443?s3cret", "https://host:6443#s3cret", "https://host/%zzs3cret",
		"https://alice:s3cret\x1b@host:6443", "https://alice:" + strings.Repeat("s3cret", 20) + "@host:6443", "ftp://alice:s3cret@host",
	} {
		for _, text := range []string{
			"servers: [{url: %q}]", "servers: [{url: %[1]q}, {url: %[1]q}]", "servers: [{URL: %q}]", "server: [{url: %q}]", "servers: %q",
			"resource: kubeapiservers, kubeconfig: %q",
		} {
			_, err := DecodeReporter([]byte(with("destination: {" + fmt.Sprintf(text, server) + "}")))
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// An error about a file must fit in a log.
func TestFileFullOfMistakesIsReportedBriefly(t *testing.T) {
	fields := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("a%02d: 1\n", i)
		}
		return head + "plugins: []\n" + text
	}
	for file, want := range map[string]string{
		fields(maxErrors):     `unknown field "a49"`,
		fields(maxErrors + 1): "and 1 more errors",
		head + "plugins: [" + strings.Repeat("{a: 1},", 60) + "]\n":              "more errors",
		with(servedByTLS + "cipherSuites: [" + strings.Repeat("x,", 60) + "]}}"): "more errors",
		head + "plugins: []\n" + strings.Repeat("plugins: []\n", 60):             "more errors",
	} {
		_, err := DecodeReporter([]byte(file))
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), "\n") > maxErrors || len(err.Error()) > 20_000 {
			t.Errorf("%v, want at most %d lines, and then %s", err, maxErrors, want)
		}
	}
}

// The versions have the names of the constants in crypto/tls.
func TestTLSVersionsAreGosOwn(t *testing.T) {
	for version, want := range map[TLSVersion]uint16{
		TLS10: tls.VersionTLS10, TLS11: tls.VersionTLS11, TLS12: tls.VersionTLS12, TLS13: tls.VersionTLS13, "": 0,
	} {
		if got := version.Version(); got != want {
			t.Errorf("%s: %d", version, got)
		}
	}
}

// FuzzSocketAddress compares with kube-apiserver. What kube-apiserver rejects is rejected. What it accepts gives the
// same address, or is rejected as unfit: no socket, too long, not printable, or with "..".
func FuzzSocketAddress(f *testing.F) {
	// kube-apiserver's validation accepts any URL with the scheme unix (validateKMSEndpoint of
	// k8s.io/apiserver/pkg/apis/apiserver/validation).
	for _, endpoint := range []string{
		"unix:///var/run/kms.sock", "unix:/run/kms.sock", "UNIX:///run/kms.sock", "unix://localhost/run/kms.sock", "unix://run/kms.sock", "unix://u:p@h:80/a",
		"unix:///a?b=c", "unix:///a?", "unix:///a#b", "unix:/@kms", "unix://h/@kms", "unix:///var//run/./kms.sock", "unix:///run/kms.sock/", "unix:////run/kms.sock",
		"unix:///@kms", "unix:////@kms", "unix:///@a/../b", "unix:///r%20un/k%C3%A9.sock", "unix:///%2e/a", "unix:///" + strings.Repeat("x", 106),
	} {
		if _, err := SocketAddress(endpoint); err != nil {
			f.Errorf("%s: %v", endpoint, err)
		}
		f.Add(endpoint)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		theirs, refused := util.ParseEndpoint(endpoint)
		got, err := SocketAddress(endpoint)
		unfit := theirs == "" || theirs == "@" || CleanSocket(theirs) == "/" || len(theirs) > contract.MaxSocket || contract.Clean(theirs) != theirs ||
			theirs[0] == '/' && slices.Contains(strings.Split(theirs, "/"), "..")
		if (err != nil) != (refused != nil || unfit) {
			t.Fatalf("%q: %v, kube-apiserver: %q, %v", endpoint, err, theirs, refused)
		}
		if err != nil {
			return
		}
		if again, err := SocketAddress(Endpoint(got)); got != theirs || again != got || err != nil {
			t.Fatalf("%q: %q, kube-apiserver: %q; %q: %q, %v", endpoint, got, theirs, Endpoint(got), again, err)
		}
		set := func(endpoint string) string { return PluginSetHash([]Plugin{{KeyID: "1", Endpoint: endpoint}}) }
		if set(endpoint) != set(Endpoint(CleanSocket(got))) {
			t.Fatalf("%q and %q are two plugin sets", endpoint, Endpoint(CleanSocket(got)))
		}
	})
}

func TestEndpointsThatAreRefused(t *testing.T) {
	for endpoint, want := range map[string]string{
		"": "must be an absolute path after unix://", "unix:run": "must be an absolute path", "unix://host": "must be an absolute path", "unix:?/a": "must be an absolute path",
		"/run/kms.sock": "must be an absolute path", "tcp://host/run": "must be an absolute path", "\tunix:///a": "must be an absolute path", "unix:///%zz": "must be an absolute path",
		"unix:///a/../b": "must be written without ..", "unix:///%2e%2e/a": "must be written without ..",
		"unix:///run/kms.sock%00a": "characters that can be printed", "unix:///%0A": "characters that can be printed", "unix:///%1b[2J": "characters that can be printed",
		"unix:///%ff": "characters that can be printed", "unix:///%7F": "characters that can be printed", "unix:///%E2%80%AE": "characters that can be printed", "unix:///@%00": "characters that can be printed",
		"unix:///": "must name a socket", "unix:///.": "must name a socket", "unix:///@": "must name a socket",
		"unix:///" + strings.Repeat("%78", 107): "is a path of 108 bytes, must be at most 107",
	} {
		if address, err := SocketAddress(endpoint); err == nil || address != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", endpoint, address, err)
		}
	}
}

func FuzzDecodeReporter(f *testing.F) {
	sample := disk.Read(f, "reporter-sample.yaml")
	f.Add(sample)
	f.Add([]byte(with("destination: {resource: kubeapiservers}")))
	f.Add([]byte(with("destination: {resource: kubeapiservers, servers: [{url: 1}], Servers: 2}\nkind: a")))
	f.Add([]byte(head + "probe: {<<: &a {interval: 1s}, checks: *a}\nplugins: !!binary aa\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeReporter(data)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Fatalf("configuration %v with error %q", c, err)
			}
			return
		}
		document, err := yaml.YAMLToJSON(data)
		must.Succeed(t, err)
		if bytes.Contains(document, []byte(`"kind":"ConfigMap"`)) {
			return
		}
		if unknown, err := strictjson.UnmarshalStrict(document, new(ReporterConfiguration)); err != nil || len(unknown) > 0 {
			t.Fatalf("accepted, with %v, %v", unknown, err)
		}
		printed, err := yaml.Marshal(c)
		must.Succeed(t, err)
		if diff := cmp.Diff(c, accepted(t, DecodeReporter, string(printed))); diff != "" {
			t.Fatal(diff)
		}
	})
}
