#!/usr/bin/env bash
# github.com/k3s-io/kine v0.14.0 (k3s' etcd, on SQLite): a Range omits its first key, if it ends at the end of a folder.
#
# In etcd's API, a Range includes its first key. kine treats it as the last key of the previous page, unless it is the
# folder itself: kube-apiserver's lists begin at the folder or after a page's last key. If another client reads [a,
# folder's end), the answer begins with b, and the count matches: nothing shows that a is missing.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"path"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	_, backend, err := sqlite.New(ctx, &drivers.Config{CompactInterval: time.Hour, CompactTimeout: time.Second,
		CompactMinRetain: 1000, CompactBatchSize: 1000, PollBatchSize: 500})
	must(err)
	must(backend.Start(ctx))
	s := grpc.NewServer()
	server.New(backend, "http", time.Second, "3.5.13").Register(s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() { _ = s.Serve(listener) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}})
	must(err)
	const folder, end = "/registry/secrets/", "/registry/secrets0"
	for _, name := range []string{"a", "b", "c"} { // as kube-apiserver creates
		key := folder + name
		_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "value")).Else(clientv3.OpGet(key)).Commit()
		must(err)
	}
	for _, from := range []string{folder, folder + "a", folder + "b"} {
		answer, err := client.Get(ctx, from, clientv3.WithRange(end))
		must(err)
		fmt.Printf("[%s, end): %d:", from[len("/registry/"):], answer.Count)
		for _, kv := range answer.Kvs {
			fmt.Print(" ", path.Base(string(kv.Key)))
		}
		fmt.Print("; ")
	}
	fmt.Println()
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/k3s-io/kine/pkg/drivers/sqlite@v0.14.0 github.com/k3s-io/kine/pkg/server@v0.14.0 >/dev/null 2>&1
got=$(CGO_ENABLED=1 CGO_CFLAGS=-O0 go run -mod=mod . 2>/dev/null) # -O0: to compile SQLite optimised takes a minute
want='[secrets/, end): 3: a b c; [secrets/a, end): 2: b c; [secrets/b, end): 1: c; '
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
