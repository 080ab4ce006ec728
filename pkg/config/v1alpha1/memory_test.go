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

const operatorHead = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\n"

// maxCost bounds what decoding a file may allocate altogether, in bytes.
const maxCost = 40 * MaxFileSize

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
	"scalars":            list("a,"),
	"numbers":            list("1,"),
	"floats":             list(".1,"),
	"dates":              list("2001-01-01,"),
	"tagged scalars":     list("!a a,"),
	"empty lists":        list("[],"),
	"empty mappings":     list("{},"),
	"pairs":              list("a: ,"),
	"pairs without keys": list(": ,"),
	"questions":          list("? ,"),
	"plugins":            list("{role: Read},"),
	"unknown in plugins": list("{a: 1},"),
	"nulls in plugins":   list("{role: },"),
	"not UTF-8":          list("\"\\xff\","),
	"cipher suites": func(n int) string {
		return head + "plugins: []\nserving: {address: '127.0.0.1:1', tls: {certFile: /c, keyFile: /k, cipherSuites: [" + strings.Repeat("x,", n) + "]}}\n"
	},
	"servers": func(n int) string {
		return head + "plugins: []\ndestination: {servers: [" + strings.Repeat("{},", n) + "]}\n"
	},
	"apiServers":       func(n int) string { return operatorHead + "apiServers: [" + strings.Repeat("{name: a},", n) + "]\n" },
	"labels":           entries("podSelector"),
	"keyIDs":           entries("encryptionConfig: {keyIDs"),
	"dashes":           block("plugins:\n", "-\n"),
	"dashes in a line": block("plugins:\n", "- - - - - - - -\n"),
	"deep lists":       func(n int) string { return head + "plugins: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" },
	"deep blocks":      func(n int) string { return head + "plugins:\n" + strings.Repeat("- ", n) + "\n" },
	"deep mappings": func(n int) string {
		return head + "probe: " + strings.Repeat("{a: ", n) + strings.Repeat("}", n) + "\n"
	},
	"open lists":         block("plugins: ", "["),
	"one key":            block("", "a:\n"),
	"one known key":      block("probe:\n", " interval: 1s\n"),
	"keys":               each("", "a%x:\n", ""),
	"known keys, quoted": each("", "\"probe\" : %d\n", ""),
	"keys in one line":   each("probe: {", "a%x,", "}\n"),
	"numbers for keys":   each("", "%d:\n", ""),
	"anchors":            each("", "a%x: &a%[1]x\n", ""),
	"aliases": func(n int) string {
		return head + "probe: &a {interval: 5s}\nplugins: [" + strings.Repeat("*a,", n) + "]\n"
	},
	"merges": func(n int) string {
		return head + "probe: &a {interval: 5s}\nplugins: [" + strings.Repeat("{<<: *a},", n) + "]\n"
	},
	"stars in a comment": func(n int) string { return head + "#" + strings.Repeat(" &a *b", n) + "\nplugins: []\n" },
	"comments":           block("", "#\n"),
	"documents":          block("", "---\n"),
	"long scalar":        func(n int) string { return head + "plugins: " + strings.Repeat("x", n) + "\n" },
	"long key":           func(n int) string { return head + strings.Repeat("x", n) + ": 1\n" },
	"long quoted key":    func(n int) string { return head + "? \"" + strings.Repeat("\\e", n) + "\"\n: 1\n" },
	"escapes":            func(n int) string { return head + "plugins: \"" + strings.Repeat("\\u202e", n) + "\"\n" },
	"long binary":        func(n int) string { return head + "kind: !!binary " + strings.Repeat("AAAA", n) + "\n" },
	"lines of a scalar":  block("plugins:\n", " x\n"),
	"block scalar":       block("plugins: |\n", " x\n"),
}

// worst returns the largest file of a shape that is parsed at all.
func (s shape) worst() []byte {
	var largest []byte
	for low, high := 0, MaxFileSize; low < high; {
		n := (low + high + 1) / 2
		if file := []byte(s(n)); len(file) <= MaxFileSize && indicators(string(file)) <= maxIndicators {
			low, largest = n, file
		} else {
			high = n - 1
		}
	}
	return largest
}

func TestDecodingCostsABoundedMultipleOfTheLargestFile(t *testing.T) {
	for name, s := range shapes {
		file := s.worst()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = decodeAny(file) // accepted or not
		runtime.ReadMemStats(&after)
		cost := after.TotalAlloc - before.TotalAlloc
		if cost > maxCost {
			t.Errorf("%s: a file of %d bytes costs %d bytes, %d times MaxFileSize", name, len(file), cost, cost/MaxFileSize)
		}
		t.Logf("%-20s %7d bytes, cost %4.1f times MaxFileSize", name, len(file), float64(cost)/MaxFileSize)
	}
}

func TestFileWithTooManyValuesIsRejectedBeforeItIsParsed(t *testing.T) {
	for name, s := range shapes {
		n := 1
		for len(s(n)) <= MaxFileSize && indicators(s(n)) <= maxIndicators {
			n *= 2
		}
		file := []byte(s(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := decodeAny(file)
		runtime.ReadMemStats(&after)
		if err == nil || after.TotalAlloc-before.TotalAlloc > MaxFileSize {
			t.Errorf("%s: %d bytes cost %d: %v", name, len(file), after.TotalAlloc-before.TotalAlloc, err)
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
