package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// module is this one.
const module = "github.com/kms-health/kms-health"

// newBOM is the software bill of materials of a program or an image that links these modules: CycloneDX
// 1.6, as JSON. It has no serial number, and its time is the commit's, so that equal programs have equal
// ones.
func (r *release) newBOM(kind, name, sha256, purl string, modules []linked) map[string]any {
	component := func(kind, name, version, purl string, licenses ...string) map[string]any {
		c := map[string]any{"bom-ref": purl, "type": kind, "name": name, "version": version, "purl": purl}
		var ids []any
		for _, id := range licenses {
			ids = append(ids, map[string]any{"license": map[string]any{"id": id}})
		}
		if len(ids) > 0 {
			c["licenses"] = ids
		}
		return c
	}
	subject := component(kind, name, r.version, purl, "Apache-2.0")
	subject["hashes"] = []any{map[string]any{"alg": "SHA-256", "content": sha256}}
	components, links := []any{}, []any{}
	for _, m := range modules {
		ref := "pkg:golang/" + m.path + "@" + strings.ReplaceAll(strings.TrimPrefix(m.version, "go"), "+", "%2B")
		components = append(components, component("library", m.path, m.version, ref, m.licenses...))
		links = append(links, ref)
	}
	return map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":     map[string]any{"timestamp": r.at.UTC().Format(time.RFC3339), "component": subject},
		"components":   components,
		"dependencies": []any{map[string]any{"ref": purl, "dependsOn": links}},
	}
}

// programBOM is the bill of a program, from the modules that the linker wrote into it.
func (r *release) programBOM(p program) ([]linked, map[string]any, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, nil, err
	}
	if info.GoVersion != r.goVersion {
		return nil, nil, fmt.Errorf("%s was built by %s, not by %s", p.path, info.GoVersion, r.goVersion)
	}
	modules, err := r.licenses.linked(info)
	if err != nil {
		return nil, nil, err
	}
	sum, err := digest(p.path)
	purl := "pkg:golang/" + module + "@" + r.version + "?goarch=" + p.arch + "&goos=" + p.os + "#cmd/" + p.name
	return modules, r.newBOM("application", p.name, sum, purl, modules), err
}

// imageBOM is the bill of an image: its program's, whose modules are the same for all architectures.
func (r *release) imageBOM(name, digest string, modules []linked) map[string]any {
	_, sum, _ := strings.Cut(digest, ":")
	return r.newBOM("container", name, sum, "pkg:oci/"+name+"@sha256%3A"+sum+"?tag="+r.version, modules)
}

// writeJSON writes a value for people too, with a line end.
func writeJSON(name string, value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
