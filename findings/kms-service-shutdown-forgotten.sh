#!/usr/bin/env bash
# k8s.io/kms v0.36.3: if Shutdown of pkg/service.GRPCService is called before ListenAndServe has created its server, it
# has no effect, and the plugin continues to serve.
#
# A plugin starts `go s.ListenAndServe()`, and calls s.Shutdown() on SIGTERM. ListenAndServe creates the server after
# the socket, and Shutdown without a server does nothing. So a plugin that gets SIGTERM in its first moments does not
# end until SIGKILL. Close has the same problem. If a plugin creates the grpc.Server itself, an early GracefulStop is
# not lost: Serve then returns ErrServerStopped.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

type plugin struct{}

func (plugin) Decrypt(context.Context, string, *service.DecryptRequest) ([]byte, error) { return nil, nil }
func (plugin) Encrypt(context.Context, string, []byte) (*service.EncryptResponse, error) { return nil, nil }
func (plugin) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "1"}, nil
}

func main() {
	socket := os.Args[1]
	s := service.NewGRPCService(socket, time.Second, plugin{})
	s.Shutdown()
	go func() { _ = s.ListenAndServe() }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewKeyManagementServiceClient(conn).Status(ctx, &api.StatusRequest{}, grpc.WaitForReady(true))
	fmt.Println("a call after Shutdown:", err)

	listener, err := net.Listen("unix", socket+"-2")
	if err != nil {
		panic(err)
	}
	own := grpc.NewServer()
	own.GracefulStop()
	fmt.Println("grpc.Server after GracefulStop is stopped:", errors.Is(own.Serve(listener), grpc.ErrServerStopped))
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/kms@v0.36.3 google.golang.org/grpc@v1.79.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . "$dir/kms.sock")
want='a call after Shutdown: <nil>
grpc.Server after GracefulStop is stopped: true'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
