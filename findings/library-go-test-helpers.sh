#!/usr/bin/env bash
# library-go v0.0.0-20260213153706-03f1709971c5 with client-go v0.36.3: a helper of tests keeps operators from compiling.
#
# pkg/operator/v1helpers has fakes for tests in a file that is no _test.go, and one of them lacks a method that
# client-go 0.36 added to SharedIndexInformer. So neither v1helpers nor what imports it (controller/factory,
# operator/status, resourceapply) compiles, while config/leaderelection, which does not import it, does.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	_ "github.com/openshift/library-go/pkg/config/leaderelection"
	_ "github.com/openshift/library-go/pkg/operator/v1helpers"
)

func main() {}
GO
go mod init finding >/dev/null 2>&1
go get github.com/openshift/library-go@v0.0.0-20260213153706-03f1709971c5 github.com/openshift/api@v0.0.0-20260213155647-8fe9fe363807 \
	k8s.io/{api,apimachinery,client-go,apiserver,component-base,apiextensions-apiserver}@v0.36.3 >/dev/null 2>&1 ||
	go get github.com/openshift/library-go@v0.0.0-20260213153706-03f1709971c5 \
		k8s.io/{api,apimachinery,client-go,apiserver,component-base,apiextensions-apiserver}@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go build github.com/openshift/library-go/pkg/config/leaderelection
got=$(go build github.com/openshift/library-go/pkg/operator/v1helpers 2>&1 | grep -o 'fakeSharedIndexInformer.*missing method HasSyncedChecker' | sort -u || true)
want='missing method HasSyncedChecker'
if [[ $got != *"$want" ]]; then echo "changed: got '$got', want $want" >&2; exit 1; fi
echo "as described: $got"
