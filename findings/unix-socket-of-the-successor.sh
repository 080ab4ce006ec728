#!/usr/bin/env bash
# Go's net package and grpc v1.79.3: a server that stops removes the socket of its successor.
#
# Two servers share the path of a unix socket, for example if a plugin's old process ends after the new one has started.
# The new one removes the file and listens. When the old one stops, it removes the path by name. The new server still
# runs, but no client can connect to it. ListenConfig has no option for this; UnixListener.SetUnlinkOnClose(false)
# prevents it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
)

func serve(path string) *grpc.Server {
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer()
	go func() { _ = s.Serve(listener) }()
	for s.GetServiceInfo() == nil {
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		panic(err)
	}
	_ = c.Close()
	return s
}

func main() {
	path := os.Args[1]
	old := serve(path)
	successor := serve(path)
	defer successor.Stop()
	old.GracefulStop()
	_, err := os.Lstat(path)
	fmt.Println("the successor's socket exists:", err == nil)
}
GO
go mod init finding >/dev/null 2>&1
go get google.golang.org/grpc@v1.79.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . "$dir/kms.sock")
want="the successor's socket exists: false"
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
