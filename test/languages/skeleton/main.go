// Command skeleton is an example of a KMS v2 plugin with k8s.io/kms/pkg/service, for authors of plugins: skeleton
// SOCKET KEY-FILE. Replace the type local by calls to your KMS.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// limit bounds each request to the KMS. It must be less than kube-apiserver's timeout, which is 3 s by default.
const limit = 2 * time.Second

// local encrypts with a key of 32 bytes.
type local struct {
	aead  cipher.AEAD
	keyID string // derived from the key, so that no other key ever has this ID
}

func open(keyFile string) (*local, error) {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &local{aead, fmt.Sprintf("%x", sha256.Sum256(key))}, err
}

// Status must check that the plugin may decrypt: send a request to your KMS. Return a gRPC code that names the cause.
func (l *local) Status(ctx context.Context) (*service.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := ctx.Err(); err != nil { // put your request here
		return nil, status.FromContextError(err).Err()
	}
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: l.keyID}, nil
}

// Encrypt must return the same key ID as Status.
func (l *local) Encrypt(_ context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: l.aead.Seal(nil, nil, plaintext, nil), KeyID: l.keyID}, nil
}

// Decrypt also gets data that an earlier key encrypted.
func (l *local) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	if r.KeyID != l.keyID {
		return nil, status.Errorf(codes.NotFound, "no key %.64q", r.KeyID)
	}
	plaintext, err := l.aead.Open(nil, nil, r.Ciphertext, nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return plaintext, nil
}

// serve serves until ctx ends.
func serve(ctx context.Context, socket string, kms service.Service) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash may have left the socket
		return err
	}
	syscall.Umask(0o007) // only the user and the group of the API server may connect
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // the next process may already use the path
	own, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	// Do not use ListenAndServe: it removes the path and has no health service, and its timeout does not limit calls.
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService("", 0, kms))
	healthpb.RegisterHealthServer(server, health.NewServer())
	context.AfterFunc(ctx, server.GracefulStop)
	err = server.Serve(listener)
	if now, missing := os.Lstat(socket); missing == nil && os.SameFile(own, now) {
		err = errors.Join(err, os.Remove(socket))
	}
	return err
}

func run(socket, keyFile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kms, err := open(keyFile)
	if err != nil {
		return err
	}
	return serve(ctx, socket, kms)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: skeleton SOCKET KEY-FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
