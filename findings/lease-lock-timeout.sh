#!/usr/bin/env bash
# client-go v0.36.3: resourcelock.NewFromKubeconfig halves its last argument.
#
# That argument is called renewDeadline. If it is 4 s, a request to an API server that does not answer fails after 2 s:
# the client's timeout is half of renewDeadline, and at least 1 s. With the usual 107 s, one hanging request takes 53 s
# of the time in which the lease must be renewed.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "ns", "name",
		resourcelock.ResourceLockConfig{Identity: "me"}, &rest.Config{Host: server.URL}, 4*time.Second)
	if err != nil {
		panic(err)
	}
	began := time.Now()
	_, _, err = lock.Get(context.Background())
	fmt.Printf("gave up after %d s: %t\n", int(time.Since(began).Seconds()), err != nil)
	close(release)
	server.Close()
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run .)
want='gave up after 2 s: true'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: a lock with a renewDeadline of 4 s $got"
