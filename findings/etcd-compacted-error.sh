#!/usr/bin/env bash
# go.etcd.io/etcd/client/v3 v3.6.8: the client's error for a compacted revision is not a gRPC status any more.
#
# The server answers a Range of a compacted revision with OutOfRange. The client converts that to its own type: grpc's
# status.FromError says that it is no status, and status.Code returns Unknown. A program that reads pages and checks for
# codes.OutOfRange never starts again. errors.Is(err, rpctypes.ErrCompacted) finds the error.
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kv answers as etcd does: with etcd's own error for the server's side.
type kv struct{ pb.UnimplementedKVServer }

func (*kv) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, rpctypes.ErrGRPCCompacted
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer()
	pb.RegisterKVServer(s, &kv{})
	go func() { _ = s.Serve(listener) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}})
	if err != nil {
		panic(err)
	}
	_, sent := status.FromError(rpctypes.ErrGRPCCompacted)
	_, err = client.Get(context.Background(), "key", clientv3.WithRev(1))
	_, received := status.FromError(err)
	fmt.Printf("a status when sent: %t, when received: %t, OutOfRange: %t, ErrCompacted: %t\n", sent, received,
		status.Code(err) == codes.OutOfRange, errors.Is(err, rpctypes.ErrCompacted))
}
GO
go mod init finding >/dev/null 2>&1
go get go.etcd.io/etcd/client/v3@v3.6.8 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . 2>/dev/null)
want='a status when sent: true, when received: false, OutOfRange: false, ErrCompacted: true'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
