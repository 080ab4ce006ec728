// Command skeleton is a KMS v2 plugin on k8s.io/kms/pkg/service to begin with: skeleton SOCKET KEY-FILE. It is
// for authors of plugins: replace type local by calls to your KMS.
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

// limit bounds each request to the KMS: less than kube-apiserver's timeout, which is 3 s by default.
const limit = 2 * time.Second

// local encrypts with a key of 32 bytes.
type local struct {
	aead  cipher.AEAD
	keyID string // derived from the key, so that no other key ever has it
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

// Status must include the right to decrypt: ask your KMS, and return a gRPC code that names the cause.
func (l *local) Status(ctx context.Context) (*service.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := ctx.Err(); err != nil { // in the place of your request
		return nil, status.FromContextError(err).Err()
	}
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: l.keyID}, nil
}

// Encrypt must return the key ID of Status.
func (l *local) Encrypt(_ context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: l.aead.Seal(nil, nil, plaintext, nil), KeyID: l.keyID}, nil
}

// Decrypt gets also what a former key encrypted.
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
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash left it
		return err
	}
	syscall.Umask(0o007) // the API server's user or group connects, nobody else
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // the path may be the successor's by then
	own, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	// Not by its ListenAndServe, which removes the path and has no health service. Its timeout limits no call.
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
