#!/usr/bin/env bash
# client-go v0.36.3: one GET that is answered by 429 with Retry-After becomes eleven requests, with ten silent waits.
#
# kube-apiserver answers so while it cannot decrypt the requested objects, and while a CRD is not served yet (503). The
# caller gets no error, no log line and no event until the last answer. A watch or a write is retried as well. Only the
# context ends the retries earlier.
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
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func main() {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client := dynamic.NewForConfigOrDie(&rest.Config{Host: server.URL})
	began := time.Now()
	_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("ns").
		Get(context.Background(), "name", metav1.GetOptions{})
	fmt.Printf("one Get: %d requests in %d s, an error: %t\n", requests.Load(), int(time.Since(began).Seconds()), err != nil)
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run .)
want='one Get: 11 requests in 10 s, an error: true'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
