package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

const crd = `
spec:
  names: {kind: KubeAPIServer}
  group: operator.openshift.io
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          status:
            properties:
              conditions:
                description: A list.
                x-kubernetes-list-type: map
                items: {properties: {type: {type: string, maxLength: 316}}}
              other: {type: string}
`

func TestChangesThatTheProjectReliesOnAreFound(t *testing.T) {
	lines := func(old, new string) []string {
		before, after := map[string]string{}, map[string]string{}
		for data, values := range map[string]map[string]string{crd: before, strings.Replace(crd, old, new, 1): after} {
			must.Succeed(t, flatten([]byte(data), "f", operatorPaths, values))
		}
		return difference(before, after)
	}
	const list = "f: spec.versions.v1.schema.status.conditions."
	for name, tt := range map[string]struct {
		old, new string
		want     []string
	}{
		"a list that becomes atomic": {"list-type: map", "list-type: atomic",
			[]string{"- " + list + "x-kubernetes-list-type = map", "+ " + list + "x-kubernetes-list-type = atomic"}},
		"a bound that goes": {", maxLength: 316", "", []string{"- " + list + "items.type.maxLength = 316"}},
		"another kind":      {"KubeAPIServer", "X", []string{"- f: spec.names.kind = KubeAPIServer", "+ f: spec.names.kind = X"}},
		"a description":     {"A list.", "The list.", nil},
		"another field":     {"other: {type: string}", "other: {type: integer}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, "changes", lines(tt.old, tt.new), tt.want)
		})
	}
}

// absent are paths that do not exist yet. The test fails when one is added.
var absent = map[string][]string{
	"operator/v1/zz_generated.crd-manifests/*_openshiftapiservers-*.crd.yaml": {schema + "status.nodeStatuses"},
	"operator/v1/zz_generated.crd-manifests/*_authentications-*.crd.yaml": {
		schema + "status.nodeStatuses", schema + "status.encryptionStatus"},
}

// The paths must exist in the version in go.mod.
func TestEachPathIsThere(t *testing.T) {
	dir, err := program.ModuleDir(".", module)
	must.Succeed(t, err)
	values, err := read(dir)
	must.Succeed(t, err)
	found := func(pattern, path string) bool {
		for at := range values {
			file, below, _ := strings.Cut(at, ": ")
			if is, _ := filepath.Match(filepath.Base(pattern), file); is && strings.HasPrefix(below, path) {
				return true
			}
		}
		return false
	}
	for pattern, paths := range relied {
		for _, path := range paths {
			must.Equal(t, pattern+": "+path+" is there", found(pattern, path), !slices.Contains(absent[pattern], path))
		}
	}
}
