// Command openshiftapi compares the parts of openshift/api's CRDs on which this project relies with another version,
// by default the newest. It prints the changes, and fails if there are any. It needs the internet.
package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	module     = "github.com/openshift/api"
	repository = "https://" + module
)

// relied has the files, by pattern, and the paths in them that the project reads, writes or validates.
var relied = map[string][]string{
	"operator/v1/zz_generated.crd-manifests/*_kubeapiservers-*.crd.yaml":      operatorPaths,
	"operator/v1/zz_generated.crd-manifests/*_openshiftapiservers-*.crd.yaml": operatorPaths,
	"operator/v1/zz_generated.crd-manifests/*_authentications-*.crd.yaml":     operatorPaths,
	"config/v1/zz_generated.crd-manifests/*_apiservers-*.crd.yaml": {
		names, schema + "spec.encryption.type", schema + "spec.tlsSecurityProfile"},
	"config/v1/zz_generated.crd-manifests/*_clusteroperators*.crd.yaml": {names, schema + "status"},
}

const (
	names  = "spec.names"
	schema = "spec.versions.v1.schema."
)

var operatorPaths = []string{names, "spec.scope", schema + "spec.managementState", schema + "status.conditions",
	schema + "status.encryptionStatus", schema + "status.nodeStatuses"}

func main() {
	version := ""
	if len(os.Args) > 1 {
		version = os.Args[1]
	}
	changes, err := compare(version)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	for _, line := range changes {
		fmt.Println(line)
	}
	if len(changes) > 0 {
		fmt.Fprintf(os.Stderr, "%d differences: read them, adapt the code and the policies, then update go.mod\n", len(changes))
		os.Exit(1)
	}
}

func compare(version string) ([]string, error) {
	if version == "" {
		heads, err := exec.Command("git", "ls-remote", repository, "refs/heads/master").Output()
		if err != nil {
			return nil, fmt.Errorf("git ls-remote %s: %w", repository, err)
		}
		version, _, _ = strings.Cut(string(heads), "\t")
	}
	var values [2]map[string]string
	for i, of := range []string{module, module + "@" + version} {
		dir, err := program.ModuleDir(".", of)
		if err != nil {
			return nil, err
		}
		if values[i], err = read(dir); err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "read", filepath.Base(dir))
	}
	return difference(values[0], values[1]), nil
}

// read returns the values on which the project relies, by file and path.
func read(dir string) (map[string]string, error) {
	values := map[string]string{}
	for pattern, paths := range relied {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := flatten(data, filepath.Base(file), paths, values); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return values, nil
}

// flatten adds the values of a CRD below paths. In a schema, the path has only the names of fields.
func flatten(data []byte, file string, paths []string, values map[string]string) error {
	var crd any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				switch {
				case name == "description":
				case name == "openAPIV3Schema", name == "properties":
					walk(at, value)
				default:
					walk(at+"."+name, value)
				}
			}
		case []any:
			for i, value := range v {
				key := fmt.Sprint(i)
				if fields, is := value.(map[string]any); is && fields["name"] != nil {
					key = fmt.Sprint(fields["name"])
				}
				walk(at+"."+key, value)
			}
		default:
			at = strings.TrimPrefix(at, ".")
			if slices.ContainsFunc(paths, func(p string) bool { return at == p || strings.HasPrefix(at, p+".") }) {
				values[file+": "+at] = fmt.Sprint(v)
			}
		}
	}
	walk("", crd)
	return nil
}

// difference returns a line for each removed and each added value, in the order of their paths.
func difference(before, after map[string]string) (lines []string) {
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, had := before[path]
		is, has := after[path]
		if had && (!has || was != is) {
			lines = append(lines, "- "+path+" = "+was)
		}
		if has && (!had || was != is) {
			lines = append(lines, "+ "+path+" = "+is)
		}
	}
	return lines
}
