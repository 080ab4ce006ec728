package v1alpha1

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// maxCost bounds what decoding a file may allocate altogether, in bytes.
const maxCost = 64 * MaxFileSize

// shape makes a file of n elements.
type shape func(n int) string

func list(element string) shape {
	return func(n int) string { return head + "plugins: [" + strings.Repeat(element, n) + "]\n" }
}

func block(begin, element string) shape {
	return func(n int) string { return head + begin + strings.Repeat(element, n) }
}

func each(begin, format, end string) shape {
	return func(n int) string {
		var b strings.Builder
		b.WriteString(head + begin)
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String() + end
	}
}

// entries fills a mapping of strings of a target with names that are no valid keys.
func entries(mapping string) shape {
	return func(n int) string {
		var b strings.Builder
		b.WriteString(operatorHead + "apiServers: [{" + mapping + ": {")
		for i := range n {
			fmt.Fprintf(&b, "'%x!': '!', ", i)
		}
		return b.String() + "}" + strings.Repeat("}", strings.Count(mapping, "{")) + "}]\n"
	}
}

// decodeAny decodes a file of either kind.
func decodeAny(file []byte) error {
	if bytes.HasPrefix(file, []byte(operatorHead)) {
		_, err := DecodeOperator(file)
		return err
	}
	_, err := DecodeReporter(file)
	return err
}

// shapes are files that need much memory for their size: invalid ones, and those with many
// or long values.
var shapes = map[string]shape{
	"scalars":        list("a,"),
	"floats":         list(".1,"),
	"empty mappings": list("{},"),
	"pairs":          list("a: ,"),
	"plugins":        list("{role: Read},"),
	"cipher suites": func(n int) string {
		return head + "plugins: []\nserving: {address: '127.0.0.1:1', tls: {certFile: /c, keyFile: /k, cipherSuites: [" + strings.Repeat("x,", n) + "]}}\n"
	},
	"servers": func(n int) string {
		return head + "plugins: []\ndestination: {servers: [" + strings.Repeat("{},", n) + "]}\n"
	},
	"apiServers": func(n int) string { return operatorHead + "apiServers: [" + strings.Repeat("{name: a},", n) + "]\n" },
	"labels":     entries("podSelector"),
	"keyIDs":     entries("encryptionConfig: {keyIDs"),
	"dashes":     block("plugins:\n", "-\n"),
	"deep lists": func(n int) string { return head + "plugins: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" },
	"deep mappings": func(n int) string {
		return head + "probe: " + strings.Repeat("{a: ", n) + strings.Repeat("}", n) + "\n"
	},
	"one key":          block("", "a:\n"),
	"keys":             each("", "a%x:\n", ""),
	"keys in one line": each("probe: {", "a%x,", "}\n"),
	"anchors":          each("", "a%x: &a%[1]x\n", ""),
	"aliases": func(n int) string {
		return head + "probe: &a {interval: 5s}\nplugins: [" + strings.Repeat("*a,", n) + "]\n"
	},
	"merges": func(n int) string {
		return head + "probe: &a {interval: 5s}\nplugins: [" + strings.Repeat("{<<: *a},", n) + "]\n"
	},
	"comments":        block("", "#\n"),
	"long scalar":     func(n int) string { return head + "plugins: " + strings.Repeat("x", n) + "\n" },
	"long quoted key": func(n int) string { return head + "? \"" + strings.Repeat("\\e", n) + "\"\n: 1\n" },
	"long binary":     func(n int) string { return head + "kind: !!binary " + strings.Repeat("AAAA", n) + "\n" },
	"block scalar":    block("plugins: |\n", " x\n"),
}

// worst returns the largest file of a shape that is parsed at all, and one that is not.
func (s shape) worst() (largest, beyond []byte) {
	parsed := func(n int) bool {
		file := []byte(s(n))
		if len(file) <= MaxFileSize && indicators(string(file)) <= maxIndicators {
			largest = file
			return true
		}
		beyond = file
		return false
	}
	low, high := 1, 2
	for parsed(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if n := (low + high) / 2; parsed(n) {
			low = n
		} else {
			high = n
		}
	}
	return largest, beyond
}

// cost is how much decoding a file allocates, altogether, in bytes.
func cost(file []byte) (uint64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := decodeAny(file)
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
