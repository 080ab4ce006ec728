// A KMS v2 plugin with k8s.io/kms/pkg/service, and with typical mistakes of authors: go SOCKET FAULT
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kms/apis/v1beta1"
	"k8s.io/kms/pkg/service"
)

const sealed = "sealed"

type plugin struct {
	fault string
	slots chan struct{} // connections to the KMS
}

func (p plugin) Status(context.Context) (*service.StatusResponse, error) {
	answer := &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "key-1"}
	switch p.fault {
	case "throw":
		panic("vault: permission denied")
	case "abort":
		return nil, status.Error(codes.PermissionDenied, "vault: permission denied")
	case "hang": // the pool never has a free connection
		<-p.slots
	case "limit":
		select {
		case p.slots <- struct{}{}:
			select {}
		default:
			return nil, status.Error(codes.ResourceExhausted, "vault: too many requests")
		}
	case "slow": // longer than the timeout of the service below
		time.Sleep(4 * time.Second)
	case "large":
		answer.Healthz = strings.Repeat("x", 5<<20)
	}
	return answer, nil
}

func (p plugin) Encrypt(_ context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	answer := &service.EncryptResponse{Ciphertext: append([]byte(sealed), plaintext...), KeyID: "key-1"}
	if p.fault == "key_id" {
		answer.KeyID = ""
	}
	return answer, nil
}

func (plugin) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	return request.Ciphertext[len(sealed):], nil
}

// v1 serves the API of KMS v1.
func v1(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterKeyManagementServiceServer(server, v1beta1.UnimplementedKeyManagementServiceServer{})
	return server.Serve(listener)
}

func run(socket, fault string) error {
	_ = os.Remove(socket)
	if fault == "message" {
		return v1(socket)
	}
	s := service.NewGRPCService(socket, time.Second, plugin{fault, make(chan struct{}, 1)})
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		s.Shutdown()
	}()
	return s.ListenAndServe()
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
