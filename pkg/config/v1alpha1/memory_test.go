package v1alpha1

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// maxCost bounds what decoding a file may allocate altogether, in bytes.
const maxCost = 64 * MaxFileSize

// shape is a file with an element many times. In the element, %d is its number.
type shape struct{ begin, element, end string }

// file has n elements.
func (s shape) file(n int) []byte {
	elements := strings.Repeat(s.element, n)
	if strings.Contains(s.element, "%") {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, s.element, i)
		}
		elements = b.String()
	}
	return []byte(s.begin + elements + s.end + strings.Repeat("]", n*strings.Count(s.element, "[")) +
		strings.Repeat("}", n*(strings.Count(s.element, "{")-strings.Count(s.element, "}"))) + "\n")
}

const (
	inPlugins    = head + "plugins: ["
	inAPIServers = operatorHead + "apiServers: ["
)

// shapes are files that need much memory for their size: invalid ones, and those with many
// or long values.
var shapes = map[string]shape{
	"scalars":          {inPlugins, "a,", "]"},
	"floats":           {inPlugins, ".1,", "]"},
	"empty mappings":   {inPlugins, "{},", "]"},
	"pairs":            {inPlugins, "a: ,", "]"},
	"plugins":          {inPlugins, "{role: Read},", "]"},
	"cipher suites":    {head + onePlugin + servedByTLS + "cipherSuites: [", "x,", "]}}"},
	"servers":          {head + onePlugin + "destination: {servers: [", "{},", "]}"},
	"apiServers":       {inAPIServers, "{name: a},", "]"},
	"labels":           {inAPIServers + "{podSelector: {", "'%x!': '!', ", "}}]"},
	"keyIDs":           {inAPIServers + "{encryptionConfig: {keyIDs: {", "'%x!': '!', ", "}}}]"},
	"dashes":           {head + "plugins:\n", "-\n", ""},
	"deep lists":       {head + "plugins: ", "[", ""},
	"deep mappings":    {head + "probe: ", "{a: ", ""},
	"one key":          {head, "a:\n", ""},
	"keys":             {head, "a%x:\n", ""},
	"keys in one line": {head + "probe: {", "a%x,", "}"},
	"anchors":          {head, "a%x: &a%[1]x\n", ""},
	"aliases":          {head + "probe: &a {interval: 5s}\nplugins: [", "*a,", "]"},
	"comments":         {head, "#\n", ""},
	"long scalar":      {head + "plugins: ", "x", ""},
	"long quoted key":  {head + "? \"", "\\e", "\"\n: 1"},
	"long binary":      {head + "kind: !!binary ", "AAAA", ""},
	"block scalar":     {head + "plugins: |\n", " x\n", ""},
}

// worst returns the largest file of a shape that is parsed at all, and one that is not.
func (s shape) worst() (largest, beyond []byte) {
	n := sort.Search(MaxFileSize, func(n int) bool {
		file := s.file(n + 1)
		return len(file) > MaxFileSize || indicators(string(file)) > maxIndicators
	})
	return s.file(n), s.file(n + 1)
}

// cost is how much decoding a file of either kind allocates, altogether, in bytes.
func cost(file []byte) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var err error
	if bytes.HasPrefix(file, []byte(operatorHead)) {
		_, err = DecodeOperator(file)
	} else {
		_, err = DecodeReporter(file)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func TestDecodingCostsABoundedMultipleOfTheLargestFile(t *testing.T) {
	for name, s := range shapes {
		largest, beyond := s.worst()
		n, _ := cost(largest) // accepted or not
		if n > maxCost {
			t.Errorf("%s: a file of %d bytes costs %d bytes, %d times MaxFileSize", name, len(largest), n, n/MaxFileSize)
		}
		t.Logf("%-20s %7d bytes, cost %4.1f times MaxFileSize", name, len(largest), float64(n)/MaxFileSize)
		if n, err := cost(beyond); err == nil || n > MaxFileSize { // rejected before it is parsed
			t.Errorf("%s: one that is too large costs %d: %v", name, n, err)
		}
	}
}

// The bounds must not reject a valid file.
func TestLargestValidFileIsWithinTheBounds(t *testing.T) {
	c, err := DecodeOperator([]byte(operatorFile("serving: {address: '127.0.0.1:65535'}", "container: kube-apiserver")))
	if err != nil {
		t.Fatal(err)
	}
	target := c.APIServers[0]
	target.EncryptionConfig = EncryptionConfig{} // plugins are the larger of the two
	for i := range MaxPlugins {
		endpoint := fmt.Sprintf("unix:///var/run/kmsplugin/%s/kms-%d.sock", strings.Repeat("x", 60), i)
		target.Plugins = append(target.Plugins, Plugin{KeyID: fmt.Sprint(i), Endpoint: endpoint, Role: RoleRead, Timeout: Duration{Duration: DefaultInterval}})
	}
	target.Resource = ResourceKMSHealths // the only one of which there may be several
	c.APIServers = slices.Repeat([]APIServer{target}, MaxAPIServers)
	for i := range c.APIServers {
		c.APIServers[i].Name = fmt.Sprintf("%s-%d", strings.Repeat("a", maxAPIServerName-3), i)
	}
	file, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = DecodeOperator(file); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes, %d indicators", len(file), indicators(string(file)))
}
