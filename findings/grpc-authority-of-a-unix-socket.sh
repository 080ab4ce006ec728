#!/usr/bin/env bash
# grpc v1.79.3: the :authority that a server gets depends on how the client writes the same unix socket.
#
# With the target unix:///path it is "localhost". With passthrough:///path and a custom dialer, as in kube-apiserver
# until 1.31, it is the path of the socket, with escaped slashes. Servers that check the authority refuse that.
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
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

func main() {
	path := os.Args[1]
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		fmt.Println(strings.ReplaceAll(strings.Join(md.Get(":authority"), " "), strings.ReplaceAll(path, "/", "%2F"), "SOCKET"))
		return h(ctx, r)
	}))
	pb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(listener) }()
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	for _, target := range []string{"unix://" + path, "passthrough:///" + path} {
		options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if strings.HasPrefix(target, "passthrough") {
			options = append(options, dial)
		}
		conn, err := grpc.NewClient(target, options...)
		if err != nil {
			panic(err)
		}
		if _, err := pb.NewHealthClient(conn).Check(context.Background(), &pb.HealthCheckRequest{}); err != nil {
			fmt.Println(err)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get google.golang.org/grpc@v1.79.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . "$dir/kms.sock" | paste -sd' ')
want='localhost SOCKET'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
