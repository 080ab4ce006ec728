#!/usr/bin/env bash
# containerd v1.7.27: a capability that is added as CAP_DAC_OVERRIDE becomes CAP_CAP_DAC_OVERRIDE in the container's
# spec.
#
# The API server accepts both spellings in securityContext.capabilities.add, and the pod starts. CRI-O accepts both,
# too. containerd prefixes each name, so the container gets a capability that no kernel knows, and lacks the requested
# one. A capability that is added and dropped is dropped: additions are applied first.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/containerd/containerd/containers"
	"github.com/containerd/containerd/oci"
	"github.com/containerd/containerd/pkg/cri/opts"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	for _, c := range []*cri.Capability{
		{AddCapabilities: []string{"DAC_OVERRIDE"}},
		{AddCapabilities: []string{"CAP_DAC_OVERRIDE"}},
		{AddCapabilities: []string{"DAC_OVERRIDE"}, DropCapabilities: []string{"DAC_OVERRIDE"}},
	} {
		var spec oci.Spec
		apply := opts.WithCapabilities(&cri.LinuxContainerSecurityContext{Capabilities: c}, nil)
		if err := apply(context.Background(), nil, &containers.Container{}, &spec); err != nil {
			log.Fatal(err)
		}
		fmt.Println("add", c.AddCapabilities, "drop", c.DropCapabilities, "gives", spec.Process.Capabilities.Effective)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/containerd/containerd@v1.7.27 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run .)
want='add [DAC_OVERRIDE] drop [] gives [CAP_DAC_OVERRIDE]
add [CAP_DAC_OVERRIDE] drop [] gives [CAP_CAP_DAC_OVERRIDE]
add [DAC_OVERRIDE] drop [DAC_OVERRIDE] gives []'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
