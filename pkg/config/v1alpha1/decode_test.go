package v1alpha1

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kms/pkg/util"
	"sigs.k8s.io/yaml"
)

const head = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n"

const onePlugin = "plugins:\n- {endpoint: 'unix:///run/kms-2.sock', role: Write}\n"

func seconds(n int) Duration { return Duration{Duration: time.Duration(n) * time.Second} }

func TestUnsetFieldsGetTheirDefaults(t *testing.T) {
	got, err := DecodeReporter([]byte(head + onePlugin + "destination: {resource: authentications, writeTimeout: }\nserving: {address: '[::1]:80', tls: {certFile: /c, keyFile: /k}}\nprobe:\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &ReporterConfiguration{
		TypeMeta: TypeMeta{APIVersion: APIVersion, Kind: ReporterKind},
		Probe:    Probe{Interval: seconds(30), Checks: DefaultChecks()},
		Plugins:  []Plugin{{KeyID: "2", Endpoint: "unix:///run/kms-2.sock", Role: RoleWrite, Timeout: seconds(3)}},
		Destination: &Destination{
			Resource:   "authentications",
			Kubeconfig: DefaultKubeconfig, WriteTimeout: seconds(10),
		},
		Serving: &Serving{Address: "[::1]:80", TLS: &ServingTLS{CertFile: "/c", KeyFile: "/k", MinVersion: TLS12}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultTimeoutIsNotLongerThanTheInterval(t *testing.T) {
	got, err := DecodeReporter([]byte(head + "probe: {interval: 1s}\n" + onePlugin))
	if err != nil {
		t.Fatal(err)
	}
	if got.Plugins[0].Timeout != seconds(1) {
		t.Error(got.Plugins[0].Timeout)
	}
}

func TestSampleIsAValidFileThatStatesTheDefaults(t *testing.T) {
	sample, err := DecodeReporter(ReporterSample)
	if err != nil {
		t.Fatal(err)
	}
	minimal, err := DecodeReporter([]byte(head + "plugins:\n- {endpoint: 'unix:///var/run/kmsplugin/kms-2.sock', role: Write}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(minimal, sample); diff != "" {
		t.Error(diff)
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
	c, err := DecodeReporter([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatalf("%v in\n%s", err, strings.Join(lines, "\n"))
	}
	if c.Probe.Checks == nil || len(c.Destination.Servers) != 2 || len(c.Plugins) != 2 || c.Destination == nil || c.Serving == nil || len(c.Serving.TLS.CipherSuites) != 1 {
		t.Errorf("not all of it was commented in: %+v", c)
	}
}

func TestEveryMistakeIsReportedAtOnceWithPathAndValue(t *testing.T) {
	plugin := func(fields string) string {
		return head + "plugins:\n- {endpoint: 'unix:///run/kms-2.sock', role: Write, " + fields + "}\n"
	}
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"comments only":  {"# nothing\n", []string{"the file is empty"}},
		"NUL":            {head + "\x00", []string{`the file is not text: "\x00" in line 3`}},
		"too large":      {strings.Repeat("#", 10<<20), []string{"the file is 10485760 bytes, must be at most 131072"}},
		"a list":         {"- 1\n", []string{"the file must be a mapping, with apiVersion and kind"}},
		"wrong version":  {strings.Replace(head, "v1alpha1", "v1", 1), []string{`apiVersion: Invalid value: "kmshealth.openshift.io/v1": must be kmshealth.openshift.io/v1alpha1`}},
		"no type":        {onePlugin, []string{"apiVersion: Required value", "kind: Required value"}},
		"no plugins":     {head, []string{"plugins: Required value"}},
		"unknown fields": {plugin("timeOut: 3s") + "intervall: 5s\n", []string{"intervall: Forbidden: unknown field", "plugins[0].timeOut: Forbidden: unknown field"}},
		"doubled deep, unknown and invalid together": {plugin("role: Read, x: [1, 2], timeout: 1h"), []string{
			"plugins[0].role: Forbidden: duplicate field", "plugins[0].x: Forbidden: unknown field",
			`plugins[0].timeout: Invalid value: "1h0m0s": must be at most probe.interval, 30s`,
		}},
		"key no string":       {head + "1: 2\n" + onePlugin, []string{`1: Invalid value: "1": a key must be a string that can be printed`}},
		"null element":        {head + "plugins: [null]\n", []string{"plugins[0].keyID: Required value", "plugins[0].endpoint: Required value", "plugins[0].role: Required value"}},
		"merge without alias": {head + "plugins: []\nprobe:\n  ? <<\n  : {interval: 7s}\n", []string{"has a YAML merge key (<<)"}},
		"merge with comment":  {head + "plugins: []\nprobe:\n  ? << # all of it\n  : {interval: 7s}\n", []string{"has a YAML merge key (<<)"}},
		"too many values":     {head + "plugins: [" + strings.Repeat("a,", maxIndicators) + "]\n", []string{"the file holds too many values: "}},
		"long list":           {head + onePlugin + "destination: {resource: kubeapiservers, servers: [" + strings.Repeat("{},", 65) + "]}\n", []string{"destination.servers: Too many: 65: must have at most 64 items"}},
		"control characters": {head + "plugins: [{keyID: \"\\e[2J\", role: \"\\u202e\", endpoint: \"unix:///\\x9b\"}]\n\"a\\nb\": \"\\u2028\"\n", []string{
			`plugins[0].keyID: Invalid value: "\x1b[2J": must hold only`, `plugins[0].role: Invalid value: "\u202e": must hold only`, `plugins[0].endpoint: Invalid value: "unix:///\u009b": must hold only`,
			`a\nb: Invalid value: "a\nb": a key must be a string that can be printed`,
		}},
		"interval 100h": {head + onePlugin + "probe: {interval: 100h}\n", []string{`probe.interval: Invalid value: "100h0m0s": must be a duration with its unit, from`}},
		"round trip":    {head + onePlugin + "probe: {checks: {roundTrip: {interval: 59s}}}\n", []string{`probe.checks.roundTrip.interval: Invalid value: "59s": must be a duration with its unit, from 1m0s to 24h0m0s; 0s is off`}},
		"grpcHealth":    {head + onePlugin + "probe: {checks: {grpcHealth: 'yes'}}\n", []string{`probe.checks.grpcHealth: Invalid value: "yes": must be true or false`}},
		"servers": {head + onePlugin + "destination: {resource: kubeapiservers, servers: [{url: 'http://a'}, {url: 'https://u:secret@b'}, {}, {url: 'https://c', tlsServerName: 'x y'}, {url: 'https://c'}]}\n", []string{
			"destination.servers: Too many: 5: must have at most 4 items", `destination.servers[0].url: Invalid value: "http://a": must be a URL`, `destination.servers[1].url: Invalid value: "(not shown)": must not hold a user or password`,
			"destination.servers[2].url: Required value", `destination.servers[3].tlsServerName: Invalid value: "x y"`, `destination.servers[4].url: Duplicate value: "https://c"`,
		}},
		"keyID":               {plugin("keyID: 'a b'"), []string{`plugins[0].keyID: Invalid value: "a b": must be 1 to 63`}},
		"keyID not derivable": {head + "plugins: [{endpoint: 'unix:///run/kms.sock', role: Read}]\n", []string{`plugins[0].keyID: Required value: cannot be taken from the endpoint "unix:///run/kms.sock"`}},
		"no endpoint":         {head + "plugins: [{keyID: a, role: Read}]\n", []string{"plugins[0].endpoint: Required value"}},
		"long path":           {head + "plugins: [{keyID: a, role: Read, endpoint: 'unix:///" + strings.Repeat("x", 107) + "'}]\n", []string{"is a path of 108 bytes, must be at most 107: a socket's address has no room for more (sun_path, unix(7))"}},
		"no role":             {head + "plugins: [{endpoint: 'unix:///kms-1.sock'}]\n", []string{"plugins[0].role: Required value"}},
		"timeout above interval": {head + "probe: {interval: 3s}\nplugins: [{endpoint: 'unix:///kms-1.sock', role: Read, timeout: 4s}]\n", []string{
			`plugins[0].timeout: Invalid value: "4s": must be at most probe.interval, 3s`,
		}},
		"timeout 0":                    {plugin("timeout: 0s"), []string{`plugins[0].timeout: Invalid value: "0s": must be a duration with its unit, from 10ms`}},
		"no resource":                  {head + onePlugin + "destination: {}\n", []string{"destination.resource: Required value"}},
		"destination":                  {head + onePlugin + "destination: {resource: pods, kubeconfig: a/b, writeTimeout: 2h}\n", []string{`destination.resource: Unsupported value: "pods"`, `destination.kubeconfig: Invalid value: "a/b": must be an absolute path`, `destination.writeTimeout: Invalid value: "2h0m0s": must be a duration with its unit, from 100ms to 1m0s`}},
		"two destinations":             {head + onePlugin + "destination: {resource: kubeapiservers, " + object("") + "}\n", []string{"destination.object: Forbidden: must not be set beside destination.resource"}},
		"KMSHealths without an object": {head + onePlugin + "destination: {resource: kmshealths}\n", []string{"destination.resource: Invalid value: \"kmshealths\": has several objects: name one by destination.object"}},
		"an empty object": {head + onePlugin + "destination: {object: {}}\n", []string{
			"destination.object.version: Required value", "destination.object.resource: Required value", "destination.object.kind: Required value", "destination.object.name: Required value",
		}},
		"an object without its group": {head + onePlugin + "destination: {object: {version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: a}}\n", []string{"destination.object.group: Required value: without it the core group is meant, which has no version v1alpha1"}},
		"an object with capital letters": {head + onePlugin + "destination: {object: {group: Example.com, version: V1, resource: KMSHealths, kind: kmshealth, namespace: A, name: B}}\n", []string{
			`destination.object.group: Invalid value: "Example.com"`, `destination.object.version: Invalid value: "V1"`, `destination.object.resource: Invalid value: "KMSHealths"`,
			`destination.object.kind: Invalid value: "kmshealth": must begin with a capital letter`, `destination.object.namespace: Invalid value: "A"`, `destination.object.name: Invalid value: "B"`,
		}},
		"an object with a path in it": {head + onePlugin + "destination: {object: {group: ../x, version: v1/x, resource: pods/status, kind: K/x, namespace: a/b, name: ..}}\n", []string{
			"destination.object.group", "destination.object.version", "destination.object.resource", "destination.object.kind", "destination.object.namespace", "destination.object.name",
		}},
		"an object with an empty group": {head + onePlugin + "destination: {" + object("group: ''") + "}\n", []string{`destination.object.group: Invalid value: "": must not be empty`}},
		"no address":                    {head + onePlugin + "serving: {}\n", []string{"serving.address: Required value"}},
		"a name":                        {head + onePlugin + "serving: {address: 'localhost:80'}\n", []string{`serving.address: Invalid value: "localhost:80": must be an IP address and a port`}},
		"open to all":                   {head + onePlugin + "serving: {address: '0.0.0.0:80'}\n", []string{`serving.address: Invalid value: "0.0.0.0:80": must be a loopback address`}},
		"TLS files":                     {head + onePlugin + "serving: {address: '0.0.0.0:80', tls: {certFile: c, clientCAFile: d}}\n", []string{`serving.tls.certFile: Invalid value: "c"`, "serving.tls.keyFile: Required value", `serving.tls.clientCAFile: Invalid value: "d"`}},
		"TLS settings":                  {head + onePlugin + "serving: {address: '0.0.0.0:80', tls: {certFile: /c, keyFile: /k, minVersion: TLS1.2, cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256, TLS_AES_128_GCM_SHA256]}}\n", []string{`serving.tls.minVersion: Unsupported value: "TLS1.2"`, `serving.tls.cipherSuites[0]: Invalid value: "ECDHE-RSA-AES128-GCM-SHA256": is not the IANA name`, `serving.tls.cipherSuites[1]: Invalid value: "TLS_AES_128_GCM_SHA256": is a suite of TLS 1.3`}},
		"empty strings": {head + onePlugin + "destination: {resource: kubeapiservers, servers: [{url: 'https://a', tlsServerName: ''}]}\nserving: {address: '0.0.0.0:80', tls: {certFile: /c, keyFile: /k, clientCAFile: \"\"}}\n", []string{
			`destination.servers[0].tlsServerName: Invalid value: "": must not be empty: set a value, or remove the field if it is optional`,
			`serving.tls.clientCAFile: Invalid value: "": must not be empty: set a value, or remove the field if it is optional`,
		}},
		"suites with 1.3": {head + onePlugin + "serving: {address: '0.0.0.0:80', tls: {certFile: /c, keyFile: /k, minVersion: VersionTLS13, cipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]}}\n", []string{"serving.tls.cipherSuites: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := DecodeReporter([]byte(tt.file))
			if err == nil {
				t.Fatalf("was taken: %+v", c)
			}
			if c != nil {
				t.Error("an error, and yet a configuration")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Errorf("%d mistakes, want %d:\n%s", len(lines), len(tt.want), strings.Join(lines, "\n"))
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%s", want, strings.Join(lines, "\n"))
				}
			}
		})
	}
}

// Such characters can end a comment for the parser but not in a reviewer's editor, or the
// other way round.
func TestCharactersThatHideConfigurationAreRejected(t *testing.T) {
	before := head + onePlugin + "# as agreed"
	for _, hidden := range []string{
		"\u0085", "\u2028", "\u2029", // which end a YAML 1.1 line
		"\r", "\u0080", "\u009b", "\u009f", "\x7f",
		"\u202e", "\u2066", // which show text in another order
	} {
		_, err := DecodeReporter([]byte(before + hidden + "probe: {interval: 1h}\n"))
		if want := fmt.Sprintf("the file is not text: %q in line 5", hidden); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", hidden, err, want)
		}
	}
	for _, text := range []string{"\r\n", "\t", "\u00a0", "é\ufeff", "😀"} {
		if _, err := DecodeReporter([]byte(before + text + "\n")); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestOneServerTwiceIsADuplicate(t *testing.T) {
	err := decodeServers("https://a:6443", "https://a:6443")
	if want := `destination.servers[1].url: Duplicate value: "https://a:6443"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := decodeServers("https://a:6443", "https://a:6444", "https://a:6443/b", "https://[::1]:6443"); err != nil {
		t.Error(err)
	}
}

func decodeServers(urls ...string) error {
	var servers []string
	for _, u := range urls {
		servers = append(servers, fmt.Sprintf("{url: %q}", u))
	}
	_, err := DecodeReporter([]byte(head + onePlugin + "destination: {resource: kubeapiservers, servers: [" + strings.Join(servers, ", ") + "]}\n"))
	return err
}

func TestNoPasswordOfAServersURLIsShown(t *testing.T) {
	for _, server := range []string{
		"https://alice:s3cret@host:6443", "https://alice:s3cret%40host:6443", "https://host:6443/?token=s3cret", "https://host:6443?s3cret", "https://host:6443#s3cret", "https://host/%zzs3cret",
		"https://alice:s3cret\x1b@host:6443", "https://alice:" + strings.Repeat("s3cret", 20) + "@host:6443", "ftp://alice:s3cret@host",
	} {
		for name, text := range map[string]string{
			"url":           "servers: [{url: %q}]",
			"twice":         "servers: [{url: %[1]q}, {url: %[1]q}]",
			"unknown field": "servers: [{URL: %q}]",
			"unknown list":  "server: [{url: %q}]",
			"wrong type":    "servers: %q",
		} {
			if name != "url" && name != "twice" && !strings.Contains(server, "@") {
				continue // of what kind such a value is meant to be cannot be known
			}
			_, err := DecodeReporter([]byte(head + onePlugin + "destination: {resource: kubeapiservers, " + fmt.Sprintf(text, server) + "}\n"))
			if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(name, "unknown") && !strings.Contains(err.Error(), "(not shown)") {
				t.Errorf("%s: %s: %v", server, name, err)
			}
		}
	}
	for _, server := range []string{"https://a:6443#", "https://a:6443?"} {
		if err := decodeServers(server); err == nil {
			t.Errorf("%s was accepted", server)
		}
	}
}

func TestKeyIDIsTakenFromTheSocketsName(t *testing.T) {
	for plugin, want := range map[string]string{
		"{endpoint: 'unix:///run/kms-7.sock', role: Read}":           "7",
		"{endpoint: 'unix:///@kms-a.b.sock', role: Read}":            "a.b",
		"{endpoint: 'unix:///run/kms-7.sock', role: Read, keyID: x}": "x",
	} {
		c, err := DecodeReporter([]byte(head + "plugins: [" + plugin + "]\n"))
		if err != nil || c.Plugins[0].KeyID != want {
			t.Errorf("%s: %v, want %s", plugin, err, want)
		}
	}
}

func TestWordsThatLookLikeAliasesAreNoMistake(t *testing.T) {
	for _, line := range []string{"# R&D: *see* <<here>> & there * and that!", "# cat <<EOF", "# *t before *t"} {
		if _, err := DecodeReporter([]byte(head + onePlugin + line + "\n")); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// What a file costs must grow with its size and no faster; and errors about it
// must fit in a log.
func TestFileFullOfMistakesIsToldBriefly(t *testing.T) {
	for name, in := range map[string]struct{ list, element string }{ // 60 of each
		"wrong type":    {"plugins: [", "[],"},
		"empty":         {"plugins: [", "{},"},
		"unknown field": {"plugins: [", "{a: 1},"},
		"invalid":       {"plugins: []\nserving: {address: '127.0.0.1:1', tls: {certFile: /c, keyFile: /k, cipherSuites: [", "x,"},
	} {
		file := head + in.list + strings.Repeat(in.element, 60) + "]" + strings.Repeat("}", strings.Count(in.list, "{")) + "\n"
		_, err := DecodeReporter([]byte(file))
		if err == nil {
			t.Fatalf("%s: was taken", name)
		}
		if n := strings.Count(err.Error(), "\n") + 1; n > maxErrors+1 {
			t.Errorf("%s: %d lines", name, n)
		}
		if n := len(err.Error()); n > 20_000 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
	many := head + "plugins: []\n"
	for i := range maxErrors + 7 {
		many += fmt.Sprintf("f%d: 1\n", i)
	}
	if _, err := DecodeReporter([]byte(many)); err == nil || !strings.HasSuffix(err.Error(), "\nand 7 more errors") {
		t.Error(err)
	}
}

func TestEffectiveConfigurationIsAFileOfItsOwn(t *testing.T) {
	c, err := DecodeReporter([]byte(head + onePlugin + "destination: {resource: kubeapiservers}\n"))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeReporter(printed)
	if err != nil {
		t.Fatalf("%v in\n%s", err, printed)
	}
	if diff := cmp.Diff(c, again); diff != "" {
		t.Error(diff)
	}
}

// What is dialled is what kube-apiserver dials.
func TestSocketAddressesAreKubeAPIServersOwn(t *testing.T) {
	for _, endpoint := range []string{
		"unix:///var/run/kms.sock", "unix:///var//run/../kms.sock", "unix:///run/kms.sock/", "unix:////run/kms.sock", "unix:///@kms", "unix:////@kms",
		"unix:///@a/../b", "unix:///r%20un/k%C3%A9.sock", "unix:///%2e%2e/a", "unix:///" + strings.Repeat("x", 106),
	} {
		want, err := util.ParseEndpoint(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := SocketAddress(endpoint); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:/run/kms.sock": "must be an absolute path after unix://", "unix:run": "must be an absolute path", "unix://host/run": "must be an absolute path",
		"unix:///a?": "must be a path and nothing else", "unix:///a#b": "must be a path and nothing else", "unix:///%zz": "must be a path and nothing else",
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

func TestOneSocketUnderTwoSpellingsIsADuplicate(t *testing.T) {
	for _, spelling := range []string{"unix:////run/kms.sock", "unix:///run/./kms.sock", "unix:///run/kms.sock/", "unix:///run/x/../kms.sock", "unix:///run/%6bms.sock"} {
		_, err := DecodeReporter([]byte(head + "plugins: [{keyID: a, role: Write, endpoint: 'unix:///run/kms.sock'}, {keyID: b, role: Read, endpoint: '" + spelling + "'}]\n"))
		if err == nil || err.Error() != "plugins[1].endpoint: Duplicate value: \""+spelling+"\"" {
			t.Errorf("%s: %v", spelling, err)
		}
	}
}

// The words that an installer of static pods replaces in every file it writes
// must not stand in a file of ours.
func TestSampleHoldsNoWordThatInstallersReplace(t *testing.T) {
	for _, word := range []string{"NODE_NAME", "REVISION"} {
		if bytes.Contains(ReporterSample, []byte(word)) {
			t.Errorf("sample holds %s", word)
		}
	}
}

func FuzzDecodeReporter(f *testing.F) {
	sample, err := os.ReadFile("reporter-sample.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add([]byte(head + onePlugin))
	f.Add([]byte(head + "probe: {<<: &a {interval: 1s}, checks: *a}\nplugins: !!binary aa\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeReporter(data)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Fatalf("configuration %v with error %q", c, err)
			}
			return
		}
		printed, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeReporter(printed)
		if err != nil {
			t.Fatalf("the effective configuration is refused: %v\n%s", err, printed)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// object is a destination's, with other fields in place of its own.
func object(group string) string {
	if group == "" {
		group = "group: kmshealth.openshift.io"
	}
	return "object: {" + group + ", version: v1, resource: kmshealths, kind: KMSHealth, name: kube-apiserver}"
}

func TestDestinationMayBeAnyObject(t *testing.T) {
	for text, want := range map[string]ObjectReference{
		"{group: kmshealth.openshift.io, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: kube-apiserver}": {Group: "kmshealth.openshift.io", Version: "v1alpha1", Resource: "kmshealths", Kind: "KMSHealth", Name: "kube-apiserver"},
		"{group: example.com, version: v1, resource: things, kind: Thing, namespace: ns, name: a.b}":                      {Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespace: "ns", Name: "a.b"},
		"{version: v1, resource: nodes, kind: Node, name: master-0}":                                                      {Version: "v1", Resource: "nodes", Kind: "Node", Name: "master-0"},
	} {
		c, err := DecodeReporter([]byte(head + onePlugin + "destination: {object: " + text + "}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if *c.Destination.Object != want {
			t.Errorf("%+v", c.Destination)
		}
	}
}
