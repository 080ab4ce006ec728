#!/usr/bin/env bash
# go.etcd.io/etcd/client/v3 v3.6.8: a client with endpoints of two clusters sends requests to both in turn.
#
# Two servers answer with different cluster IDs, like kube-apiserver's main etcd and an etcd of
# --etcd-servers-overrides. The client does not compare them: eight reads come from both, so a list in pages is a
# mixture. Only the header of each answer names the cluster. Even the IDs may be equal: the ID is a hash of the token
# and of the peers' URLs, so each etcd with default flags has cdf818194e3a8c32.
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
	"time"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
)

// kv answers with its cluster's ID.
type kv struct {
	pb.UnimplementedKVServer
	cluster uint64
}

func (s *kv) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: s.cluster, Revision: 1}}, nil
}

func main() {
	var endpoints []string
	for cluster := range uint64(2) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		s := grpc.NewServer()
		pb.RegisterKVServer(s, &kv{cluster: cluster + 1})
		go func() { _ = s.Serve(listener) }()
		endpoints = append(endpoints, listener.Addr().String())
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		panic(err)
	}
	clusters := map[uint64]bool{}
	for range 8 {
		answer, err := client.Get(context.Background(), "key")
		if err != nil {
			panic(err)
		}
		clusters[answer.Header.ClusterId] = true
		time.Sleep(100 * time.Millisecond) // until both are connected
	}
	peers, err := types.NewURLsMap("default=http://localhost:2380") // --name and --initial-advertise-peer-urls
	if err != nil {
		panic(err)
	}
	byDefault, err := membership.NewClusterFromURLsMap(zap.NewNop(), "etcd-cluster", peers)
	if err != nil {
		panic(err)
	}
	fmt.Printf("clusters read: %d, ID by default: %s\n", len(clusters), byDefault.ID())
}
GO
go mod init finding >/dev/null 2>&1
go get go.etcd.io/etcd/client/v3@v3.6.8 go.etcd.io/etcd/server/v3@v3.6.8 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . 2>/dev/null)
want='clusters read: 2, ID by default: cdf818194e3a8c32'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
