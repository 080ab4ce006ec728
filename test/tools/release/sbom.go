package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// module is this one.
const module = "github.com/kms-health/kms-health"

// bom is a software bill of materials: CycloneDX 1.6, as JSON. It has no serial number, and its
// time is the commit's, so that equal programs have equal ones.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref      string    `json:"bom-ref"`
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// newBOM is the bill of a program or an image, which links these modules.
func newBOM(subject component, modules []linked, at time.Time) bom {
	subject.Ref = subject.PURL
	subject.Licenses = licensesOf("Apache-2.0")
	root := dependency{Ref: subject.Ref, DependsOn: []string{}}
	b := bom{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: bomMetadata{Timestamp: at.UTC().Format(time.RFC3339), Component: subject},
	}
	for _, m := range modules {
		purl := "pkg:golang/" + m.path + "@" + strings.ReplaceAll(strings.TrimPrefix(m.version, "go"), "+", "%2B")
		b.Components = append(b.Components, component{
			Ref: purl, Type: "library", Name: m.path, Version: m.version, Licenses: licensesOf(m.licenses...), PURL: purl,
		})
		root.DependsOn = append(root.DependsOn, purl)
	}
	b.Dependencies = []dependency{root}
	return b
}

func licensesOf(ids ...string) []license {
	var all []license
	for _, id := range ids {
		var l license
		l.License.ID = id
		all = append(all, l)
	}
	return all
}

// programBOM is the bill of a program, from the modules that the linker wrote into it.
func (r *release) programBOM(p program) ([]linked, bom, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, bom{}, err
	}
	if info.GoVersion != r.goVersion {
		return nil, bom{}, fmt.Errorf("%s was built by %s, not by %s", p.path, info.GoVersion, r.goVersion)
	}
	modules, err := r.licenses.linked(info)
	if err != nil {
		return nil, bom{}, err
	}
	raw, err := os.ReadFile(p.path)
	if err != nil {
		return nil, bom{}, err
	}
	digest := sha256.Sum256(raw)
	subject := component{
		Type: "application", Name: p.name, Version: r.version,
		Hashes: []hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(digest[:])}},
		PURL:   "pkg:golang/" + module + "@" + r.version + "?goarch=" + p.arch + "&goos=" + p.os + "#cmd/" + p.name,
	}
	return modules, newBOM(subject, modules, r.at), nil
}

// imageBOM is the bill of an image: its program's, whose modules are the same for all architectures.
func (r *release) imageBOM(name, digest string, modules []linked) bom {
	_, hexadecimal, _ := strings.Cut(digest, ":")
	return newBOM(component{
		Type: "container", Name: name, Version: r.version,
		Hashes: []hash{{Algorithm: "SHA-256", Content: hexadecimal}},
		PURL:   "pkg:oci/" + name + "@sha256%3A" + hexadecimal + "?tag=" + r.version,
	}, modules, r.at)
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
