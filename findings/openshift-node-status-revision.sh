#!/usr/bin/env bash
# openshift/api of 2026-08-05, CRD kubeapiservers: an apply that adds a node with its revision to status.nodeStatuses is
# refused, but the same two fields in two applies are accepted.
#
# Rules of the CRD (CEL, optionalOldSelf) refuse currentRevision and targetRevision in a new element. So a program that
# restores or simulates a status must first add the nodes, and then write their revisions with a second request.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

func status(node map[string]any) map[string]any {
	var nodes []any
	if node != nil {
		nodes = append(nodes, node)
	}
	return map[string]any{"apiVersion": "operator.openshift.io/v1", "kind": "KubeAPIServer", "metadata": map[string]any{"name": "cluster"},
		"spec": map[string]any{}, "status": map[string]any{"nodeStatuses": nodes}}
}

func main() {
	raw, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var crd v1.CustomResourceDefinition
	var props apiextensions.JSONSchemaProps
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		panic(err)
	}
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		panic(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		panic(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	none, listed := status(nil), status(map[string]any{"nodeName": "n"})
	revised := status(map[string]any{"nodeName": "n", "currentRevision": int64(1)})
	for _, change := range []struct {
		what     string
		was, now map[string]any
	}{{"node and revision at once", none, revised}, {"the node", none, listed}, {"then its revision", listed, revised}} {
		errs, _ := rules.Validate(context.Background(), nil, structural, change.now, change.was, celconfig.RuntimeCELCostBudget)
		fmt.Printf("%s: %d errors\n", change.what, len(errs))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/openshift/api@v0.0.0-20260805215214-cfb63858e9d7 k8s.io/apiextensions-apiserver@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go get github.com/openshift/api@v0.0.0-20260805215214-cfb63858e9d7 >/dev/null 2>&1
folder=$(go list -m -f '{{.Dir}}' github.com/openshift/api)/operator/v1/zz_generated.crd-manifests
got=$(go run . "$folder/0000_20_kube-apiserver_01_kubeapiservers-Default.crd.yaml")
want='node and revision at once: 1 errors
the node: 0 errors
then its revision: 0 errors'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
