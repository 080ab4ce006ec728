package encryptionconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"

// v2 returns a KMS v2 provider as YAML.
func v2(name, endpoint string) string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: %q, endpoint: %q}}", name, endpoint)
}

// entryOf returns the file's entry for one resource as YAML.
func entryOf(resource string, providers ...string) string {
	return fmt.Sprintf("- {resources: [%q], providers: [%s]}\n", resource, strings.Join(providers, ", "))
}

const (
	identity = "{identity: {}}"
	aescbc   = "{aescbc: {keys: [{name: '1', secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}"
)

func ignored(resource, provider, reason string) string {
	return fmt.Sprintf("provider %s of %s is not probed: %s", provider, resource, reason)
}

func writer(keyID, endpoint string) v1alpha1.Plugin {
	return within(v1alpha1.Plugin{KeyID: keyID, Endpoint: endpoint, Role: v1alpha1.RoleWrite}, 3*time.Second)
}

func reader(keyID, endpoint string) v1alpha1.Plugin {
	p := writer(keyID, endpoint)
	p.Role = v1alpha1.RoleRead
	return p
}

func within(p v1alpha1.Plugin, timeout time.Duration) v1alpha1.Plugin {
	p.Timeout.Duration = timeout
	return p
}

// configured passes plugins through the reporter's own decoding.
func configured(t *testing.T, plugins []v1alpha1.Plugin) *v1alpha1.ReporterConfiguration {
	t.Helper()
	printed, err := yaml.Marshal(v1alpha1.ReporterConfiguration{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    v1alpha1.Probe{Interval: v1alpha1.Duration{Duration: time.Hour}},
		Plugins:  plugins,
	})
	must.Succeed(t, err)
	c, err := v1alpha1.DecodeReporter(printed)
	if err != nil {
		t.Fatalf("the reporter refuses it: %v\n%s", err, printed)
	}
	if diff := cmp.Diff(plugins, c.Plugins); diff != "" {
		t.Fatal(diff)
	}
	return c
}

const (
	sock1 = "unix:///var/run/kmsplugin/kms-1.sock"
	sock2 = "unix:///var/run/kmsplugin/kms-2.sock"
	tp    = "unix:///var/run/kmsplugin/kms.sock"
)

type set = []v1alpha1.Plugin

var fileCases = []struct {
	name, entries string
	plugins       set
	ignored       []string
}{
	{"one plugin for several resources, each with its name",
		entryOf("secrets", v2("2_secrets", sock2), identity) + entryOf("configmaps", v2("2_configmaps", sock2), identity),
		set{writer("2", sock2)}, nil},
	{"no KMS", entryOf("secrets", aescbc, identity), set{}, nil},
	{"before a migration, the plugin reads", entryOf("secrets", identity, v2("2_secrets", sock2)),
		set{reader("2", sock2)}, nil},
	{"local keys in any place",
		entryOf("secrets", aescbc, v2("2_secrets", sock2), "{secretbox: {keys: []}}", v2("1_secrets", sock1),
			"{aesgcm: {}}", identity),
		set{reader("2", sock2), reader("1", sock1)}, nil},
	{"writers first, each kind in order of appearance",
		entryOf("secrets", v2("a", "unix:///a"), v2("r1", "unix:///r1"), v2("r2", "unix:///r2")) +
			entryOf("configmaps", v2("b", "unix:///b"), v2("r0", "unix:///r0")),
		set{writer("a", "unix:///a"), writer("b", "unix:///b"), reader("r1", "unix:///r1"), reader("r2", "unix:///r2"),
			reader("r0", "unix:///r0")},
		nil},
	{"first for one resource is a writer, though it reads another",
		entryOf("secrets", v2("2_secrets", sock2), v2("1_secrets", sock1)) +
			entryOf("routes", v2("1_routes", sock1), v2("2_routes", sock2)),
		set{writer("2", sock2), writer("1", sock1)}, nil},
	{"first for a resource that an earlier entry names is a reader",
		entryOf("secrets", identity) + entryOf("secrets", v2("2_secrets", sock2)), set{reader("2", sock2)}, nil},
	{"an unknown provider is first", entryOf("secrets", "{quantum: {level: 9}}", v2("2_secrets", sock2)),
		set{reader("2", sock2)}, nil},
	{"two spellings of one socket",
		entryOf("secrets", v2("2_secrets", "unix:///var/run/./kms-2.sock")) +
			entryOf("configmaps", identity, v2("2_configmaps", "unix:///var/run/kms-2.sock")),
		set{writer("2", "unix:///var/run/./kms-2.sock")}, nil},
	{"spellings of one socket that kube-apiserver accepts",
		entryOf("secrets", v2("2_secrets", "unix:/var/run/kms-2.sock")) +
			entryOf("configmaps", identity, v2("2_configmaps", "UNIX://user:s3cret@localhost/var/run/kms-2.sock?a=b")),
		set{writer("2", "unix:///var/run/kms-2.sock")}, nil},
	{"a host, which is no part of the path", entryOf("secrets", v2("1", "unix://kms.sock/a")), set{writer("1", "unix:///a")}, nil},
	{"timeouts",
		entryOf("secrets", "{kms: {apiVersion: v2, name: own, endpoint: 'unix:///own', timeout: 7s}}",
			"{kms: {apiVersion: v2, name: short, endpoint: 'unix:///short', timeout: 1ms}}",
			"{kms: {apiVersion: v2, name: long, endpoint: 'unix:///long', timeout: 100h}}",
			"{kms: {apiVersion: v2, name: empty, endpoint: 'unix:///empty', timeout: }}",
			"{kms: {apiVersion: v2, name: several, endpoint: 'unix:///several', timeout: 2s}}",
			"{kms: {apiVersion: v2, name: several-2, endpoint: 'unix:///several', timeout: 1s}}",
			"{kms: {apiVersion: v2, name: several-3, endpoint: 'unix:///several', timeout: 2s}}",
			"{kms: {apiVersion: v2, name: unit, endpoint: 'unix:///unit', timeout: '3'}}",
			"{kms: {apiVersion: v2, name: zero, endpoint: 'unix:///zero', timeout: 0s}}"),
		set{within(writer("own", "unix:///own"), 7*time.Second),
			within(reader("short", "unix:///short"), v1alpha1.MinTimeout),
			within(reader("long", "unix:///long"), contract.MaxInterval), reader("empty", "unix:///empty"),
			within(reader("several", "unix:///several"), time.Second),
			reader("unit", "unix:///unit"), reader("zero", "unix:///zero")},
		nil},
	{"KMS v1, explicit and by default",
		entryOf("secrets", "{kms: {apiVersion: v1, name: old, endpoint: 'unix:///old', cachesize: 10}}",
			"{kms: {name: older, endpoint: 'unix:///older'}}", "{kms: {}}", v2("new", "unix:///new")),
		set{reader("new", "unix:///new")},
		[]string{ignored("secrets", "old", reasonVersion), ignored("secrets", "older", reasonVersion),
			ignored("secrets", "", reasonVersion)}},
	{"KMS v1 at a v2 plugin's socket does not make it a writer",
		entryOf("secrets", "{kms: {name: old, endpoint: 'unix:///both'}}", v2("new", "unix:///both")),
		set{reader("new", "unix:///both")}, []string{ignored("secrets", "old", reasonVersion)}},
	{"what cannot be probed",
		entryOf("*.*", v2("tcp", "tcp://user:password@1.2.3.4:5"), v2("relative", "unix://kms.sock"),
			v2("up", "unix:///run/x/../kms.sock"), v2("nowhere", ""), v2("long", "unix:///"+strings.Repeat("x", 107)),
			"{kms: {apiVersion: v3, name: future, endpoint: 'unix:///future'}}"),
		set{},
		[]string{ignored("*.*", "tcp", "its endpoint must be an absolute path after unix://, as in unix:///run/kms.sock"),
			ignored("*.*", "relative", "its endpoint must be an absolute path after unix://, as in unix:///run/kms.sock"),
			ignored("*.*", "up", "its endpoint must be written without .., which can lead elsewhere from another container"),
			ignored("*.*", "nowhere", "its endpoint must be an absolute path after unix://, as in unix:///run/kms.sock"),
			ignored("*.*", "long",
				"its endpoint is a path of 108 bytes, must be at most 107: a socket's address has no room "+
					"for more (sun_path, unix(7))"), ignored("*.*", "future", reasonVersion)}},
	{"names that are not shown",
		entryOf("a b", "{kms: {name: \"x\\ny\"}}") +
			entryOf(strings.Repeat("r", 129), "{kms: {name: "+strings.Repeat("p", 128)+"}}") +
			"- {providers: [{kms: {name: lost}}]}\n",
		set{},
		[]string{ignored("(not shown)", "(not shown)", reasonVersion),
			ignored("(not shown)", strings.Repeat("p", 128), reasonVersion), ignored("", "lost", reasonVersion)}},
	{"a newer API server's fields, and an entry without providers",
		"- {resources: [secrets], mode: strict, providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', " +
			"retries: [1]}}]}\n- null\n- {resources: [configmaps]}\nseal: {x: 1}\n",
		set{writer("a", "unix:///a")}, nil},
	{"names of fields are case-sensitive",
		"- {resources: [secrets], providers: [{KMS: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}]}\n", set{},
		nil},
	{"keyID from an abstract socket", entryOf("secrets", v2("x", "unix:///@kms-7.sock")),
		set{writer("7", "unix:///@kms-7.sock")}, nil},
	{"keyID is the provider's name",
		entryOf("secrets", v2("my_plugin", "unix:///1"), v2("vault", "unix:///2"), v2("3_secrets", "unix:///kms--.sock")),
		set{writer("my_plugin", "unix:///1"), reader("vault", "unix:///2"), reader("3_secrets", "unix:///kms--.sock")},
		nil},
	{"keyID of two names is the same in any order",
		entryOf("secrets", v2("vault_secrets", tp)) + entryOf("configmaps", v2("vault_configmaps", tp)),
		set{writer("vault_configmaps", tp)}, nil},
	{"keyID is the first valid name of several",
		entryOf("secrets", v2("-", tp)) + entryOf("configmaps", v2("plugin", tp)), set{writer("plugin", tp)}, nil},
	{"two sockets of one keyID",
		entryOf("secrets", v2("a", "unix:///a/kms-1.sock"), v2("2_secrets", "unix:///b/kms-1.sock"),
			v2("d", "unix:///c/kms-1.sock")),
		set{writer("1", "unix:///a/kms-1.sock"), reader("2_secrets", "unix:///b/kms-1.sock"), reader("d", "unix:///c/kms-1.sock")},
		nil},
	{"of two sockets of one keyID the writer has it",
		entryOf("secrets", identity, v2("old", "unix:///a/kms-1.sock")) +
			entryOf("configmaps", v2("new", "unix:///b/kms-1.sock")),
		set{writer("1", "unix:///b/kms-1.sock"), reader("old", "unix:///a/kms-1.sock")}, nil},
	{"a name yields to another's socket", entryOf("secrets", v2("2", tp), v2("b", sock2)),
		set{writer("socket-cc1c0c1513", tp), reader("2", sock2)}, nil},
	{"no keyID to be had: a hash of the socket's address",
		entryOf("secrets", v2("1", sock2), v2("a b", "unix:///x"), v2("2", "unix:///y"),
			v2(strings.Repeat("a", 64), "unix:///z")),
		set{writer("2", sock2), reader("socket-b3d1db3186", "unix:///x"), reader("socket-3c46b5381c", "unix:///y"),
			reader("socket-c2f38b42de", "unix:///z")},
		nil},
}

func TestPluginsOfAFile(t *testing.T) {
	for _, tt := range fileCases {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(head + tt.entries))
			must.Succeed(t, err)
			if diff := cmp.Diff(Config{Plugins: tt.plugins, Ignored: tt.ignored, Encrypted: got.Encrypted, Mixed: got.Mixed}, got); diff != "" {
				t.Fatal(diff)
			}
			configured(t, got.Plugins)
			if want, some := strings.Contains(tt.entries, "{kms: "), len(got.Plugins)+len(got.Ignored) > 0; some != want {
				t.Errorf("a kms provider: %v", some)
			}
			asJSON, err := yaml.YAMLToJSON([]byte(head + tt.entries))
			must.Succeed(t, err)
			again, err := Parse(asJSON)
			if diff := cmp.Diff(got, again); diff != "" || err != nil {
				t.Errorf("as JSON: %v %s", err, diff)
			}
		})
	}
}

func TestMorePluginsThanAReporterProbesAreIgnoredReadersFirst(t *testing.T) {
	entries := ""
	for i := range v1alpha1.MaxPlugins {
		entries += entryOf(fmt.Sprintf("r%d", i), v2(fmt.Sprintf("w%d", i), fmt.Sprintf("unix:///w%d", i)),
			v2(fmt.Sprintf("r%d", i), fmt.Sprintf("unix:///r%d", i)))
	}
	c, err := Parse([]byte(head + entries))
	must.Succeed(t, err)
	configured(t, c.Plugins)
	if len(c.Plugins) != v1alpha1.MaxPlugins ||
		slices.ContainsFunc(c.Plugins, func(p v1alpha1.Plugin) bool { return p.Role != v1alpha1.RoleWrite }) {
		t.Errorf("%+v", c.Plugins)
	}
	if len(c.Ignored) != v1alpha1.MaxPlugins || c.Ignored[3] != ignored("r3", "r3", reasonTooMany) {
		t.Errorf("%+v", c.Ignored)
	}
}

func TestResourcesThatNeedAPlugin(t *testing.T) {
	kms, first := v2("1", sock1), contract.Resources[0]
	var openShifts, none []string
	for _, r := range contract.Resources {
		openShifts = append(openShifts, r.GVR().GroupResource().String())
	}
	core := []string{"configmaps"}
	all := slices.Concat(core, []string{contract.KMSHealths.GVR().GroupResource().String()}, openShifts)
	for name, c := range map[string]struct {
		entries string
		want    []string
	}{
		"named":                          {entryOf("configmaps", kms), core},
		"named with a dot at the end":    {entryOf("configmaps.", kms), core},
		"not named":                      {entryOf("secrets", kms), none},
		"core group":                     {entryOf("*.", kms), core},
		"all groups":                     {entryOf("*.*", kms), all},
		"another group":                  {entryOf("*.apps", kms), none},
		"the group of reports":           {entryOf("*."+first.Group, kms), openShifts},
		"a resource of another group":    {entryOf("configmaps.example.com", kms), none},
		"read only":                      {entryOf("configmaps", identity, kms), core},
		"KMS v1":                         {entryOf("configmaps", "{kms: {name: one, endpoint: 'unix:///a'}}"), core},
		"local keys":                     {entryOf("configmaps", aescbc, identity), none},
		"named without KMS, before all":  {entryOf("configmaps", aescbc) + entryOf("*.*", kms), all[1:]},
		"core group without, before all": {entryOf("*.", identity) + entryOf("*.*", kms), all[1:]},
		"one of reports without":         {entryOf(openShifts[0], identity) + entryOf("*.*", kms), slices.Concat(all[:2], all[3:])},
		"named twice, once with KMS":     {entryOf("configmaps", aescbc) + entryOf("configmaps", kms), core},
		"named twice in one entry":       {"- {resources: [configmaps, configmaps], providers: [" + kms + "]}\n", core},
		"named beside others":            {"- {resources: [secrets, configmaps], providers: [" + kms + "]}\n", core},
		"a plugin that cannot be probed": {entryOf("configmaps", v2("1", "tcp://x")), core},
	} {
		got, err := Parse([]byte(head + c.entries))
		var names []string
		for _, r := range got.Encrypted {
			names = append(names, r.String())
		}
		if err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, names, err, c.want)
		}
	}
}

func TestIgnoredProvidersAreListedUpToABound(t *testing.T) {
	var all []string
	for i := range maxIgnored + 2 {
		text := IgnoredText(append(all, all...)) // duplicates are listed once
		parts := strings.FieldsFunc(text, func(r rune) bool { return r == ';' })
		if n := min(i, maxIgnored+1); len(parts) != n || strings.HasSuffix(text, "and 1 more") != (i > maxIgnored) {
			t.Errorf("%d ignored providers: %s", i, text)
		}
		all = append(all, fmt.Sprint("p", i))
	}
}

func TestResourcesThatAnotherProviderEncryptsAreMixed(t *testing.T) {
	const v1 = "{kms: {name: old, endpoint: 'unix:///old.sock'}}"
	two, one := v2("2_x", sock2), v2("1_x", sock1)
	const second = ", configmaps by the plugin at /var/run/kmsplugin/kms-2.sock"
	for name, c := range map[string]struct{ entries, want string }{
		"one key":                     {entryOf("secrets", two, identity) + entryOf("configmaps", two, identity), ""},
		"aescbc first":                {entryOf("secrets", aescbc, two) + entryOf("configmaps", two), "secrets by aescbc" + second},
		"identity first":              {entryOf("secrets", identity, two) + entryOf("configmaps", two), "secrets by identity" + second},
		"KMS v1 first":                {entryOf("secrets", v1, two) + entryOf("configmaps", two), "secrets by a KMS v1 plugin" + second},
		"another key":                 {entryOf("secrets", one, two) + entryOf("configmaps", two), "secrets by the plugin at /var/run/kmsplugin/kms-1.sock" + second},
		"an unknown provider":         {entryOf("secrets", "{quantum: {}}", two) + entryOf("configmaps", two), "secrets by an unknown provider" + second},
		"a resource without a plugin": {entryOf("secrets", aescbc) + entryOf("configmaps", two), ""},
		"no plugin writes":            {entryOf("secrets", aescbc, two) + entryOf("configmaps", identity, two), ""},
		"named again with a plugin":   {entryOf("secrets", aescbc) + entryOf("secrets.", two) + entryOf("configmaps", two), "secrets by aescbc" + second},
		"named again with another":    {entryOf("secrets", two) + entryOf("configmaps", two) + entryOf("secrets", one), ""},
	} {
		got, err := Parse([]byte(head + c.entries))
		if is, _ := strings.CutPrefix(got.Mixed, "encrypts by several providers: "); err != nil || is != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, got.Mixed, c.want, err)
		}
	}
}
