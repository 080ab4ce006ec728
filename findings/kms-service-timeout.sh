#!/usr/bin/env bash
# k8s.io/kms v0.36.3: the timeout of pkg/service.NewGRPCService does not limit a call.
#
# The plugin's service has a timeout of 1 s, and its Encrypt takes 3 s. The caller waits up to 10 s. The answer comes
# after 3 s, without an error: the timeout only limits the handshake of a connection (grpc.ConnectionTimeout).
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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

type slow struct{}

func (slow) Decrypt(context.Context, string, *service.DecryptRequest) ([]byte, error) { return nil, nil }
func (slow) Encrypt(context.Context, string, []byte) (*service.EncryptResponse, error) {
	time.Sleep(3 * time.Second)
	return &service.EncryptResponse{KeyID: "1", Ciphertext: []byte("x")}, nil
}
func (slow) Status(context.Context) (*service.StatusResponse, error) { return nil, nil }

func main() {
	socket := os.Args[1]
	s := service.NewGRPCService(socket, time.Second, slow{})
	go func() { _ = s.ListenAndServe() }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	_, err = api.NewKeyManagementServiceClient(conn).Encrypt(ctx, &api.EncryptRequest{Plaintext: []byte("y")}, grpc.WaitForReady(true))
	fmt.Printf("Encrypt after %d s: %v\n", int(time.Since(began).Seconds()), err)
	s.Shutdown()
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/kms@v0.36.3 google.golang.org/grpc@v1.79.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . "$dir/kms.sock")
want='Encrypt after 3 s: <nil>'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: a service with a timeout of 1 s: $got"
