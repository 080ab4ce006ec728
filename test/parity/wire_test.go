//go:build integration

package parity

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/test/harness/must"
)

// wire listens in front of a plugin. It simulates faults that a plugin with gRPC's Go library cannot have. At first it
// only forwards.
type wire struct {
	socket, plugin string // the paths of its socket and of the plugin's socket

	mu   sync.Mutex
	stop []func()
}

// becomes changes the mode and the plugin's socket, and breaks all connections.
func (w *wire) becomes(t *testing.T, mode, plugin string) {
	w.close()
	listener, err := net.Listen("unix", w.socket)
	must.Succeed(t, err)
	if strings.HasSuffix(mode, "by-turns") || mode == "gzip" {
		w.serve(t, listener, mode, plugin)
		return
	}
	w.onClose(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			w.onClose(func() { _ = client.Close() })
			go answer(client, mode, plugin)
		}
	}()
}

func (w *wire) onClose(stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = append(w.stop, stop)
}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stop := range w.stop {
		stop()
	}
	w.stop = nil
}

// answer serves one connection.
func answer(client net.Conn, mode, socket string) {
	defer func() { _ = client.Close() }()
	fixed := map[string]string{
		"http1":  "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
		"tls":    "\x15\x03\x01\x00\x02\x02\x46", // alert: fatal, protocol_version
		"random": "\xde\xad\xbe\xef\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99",
	}
	if answer, ok := fixed[mode]; ok {
		_, _ = client.Read(make([]byte, len(http2.ClientPreface)))
		_, _ = io.WriteString(client, answer)
		return
	}
	plugin, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = plugin.Close() }()
	go func() {
		defer func() { _ = plugin.Close() }()
		_, _ = io.CopyN(plugin, client, int64(len(http2.ClientPreface)))
		headers := hpack.NewDecoder(4096, nil)
		copyFrames(plugin, client, func(h http2.FrameHeader, payload []byte) (before, after []byte, ok bool) {
			method, cut := strings.CutPrefix(mode, "cut-")
			if h.Type != http2.FrameHeaders {
				return nil, nil, true
			}
			fields, err := headers.DecodeFull(payload)
			for _, field := range fields {
				if cut && field.Name == ":path" && strings.HasSuffix(field.Value, "/"+method) {
					return nil, nil, false
				}
			}
			return nil, nil, err == nil
		})
	}()
	copyFrames(client, plugin, func(h http2.FrameHeader, _ []byte) (before, after []byte, ok bool) {
		end := h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream)
		switch {
		case end && mode == "settings":
			before = bytes.Repeat([]byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}, 2000)
		case end && mode == "goaway":
			after = binary.BigEndian.AppendUint32([]byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0}, h.StreamID)
			after = append(after, 0, 0, 0, 0) // the error code NO_ERROR
		}
		return before, after, true
	})
}

// copyFrames copies frames of HTTP/2 until see returns false. It writes the other results of see before and after the
// frame.
func copyFrames(to io.Writer, from io.Reader,
	see func(h http2.FrameHeader, payload []byte) (before, after []byte, ok bool)) {
	for {
		raw := make([]byte, 9)
		if _, err := io.ReadFull(from, raw); err != nil {
			return
		}
		h, err := http2.ReadFrameHeader(bytes.NewReader(raw))
		if err != nil {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		before, after, ok := see(h, payload)
		if !ok {
			return
		}
		if _, err := to.Write(bytes.Join([][]byte{before, raw, payload, after}, nil)); err != nil {
			return
		}
	}
}

// serve answers calls with the plugin's answers, changed by the mode.
func (w *wire) serve(t *testing.T, listener net.Listener, mode, socket string) {
	plugin, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		if mode == "gzip" {
			if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
				return nil, err // the client does not accept gzip
			}
		}
		return handle(ctx, request)
	}))
	kmsapi.RegisterKeyManagementServiceServer(server, &forwarder{
		KeyManagementServiceClient: kmsapi.NewKeyManagementServiceClient(plugin), mode: mode,
	})
	go func() { _ = server.Serve(listener) }()
	w.onClose(func() {
		server.Stop()
		_ = plugin.Close()
	})
}

// forwarder forwards calls to a plugin.
type forwarder struct {
	kmsapi.KeyManagementServiceClient
	kmsapi.UnsafeKeyManagementServiceServer
	mode  string
	calls atomic.Int64
}

func (f *forwarder) Status(ctx context.Context, r *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	answer, err := f.KeyManagementServiceClient.Status(ctx, r)
	if err != nil || f.calls.Add(1)%2 == 0 {
		return answer, err
	}
	switch f.mode {
	case "healthz-by-turns":
		answer.Healthz = "by turns"
	case "key-id-by-turns":
		answer.KeyId = "by-turns"
	}
	return answer, nil
}

func (f *forwarder) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	return f.KeyManagementServiceClient.Encrypt(ctx, r)
}

func (f *forwarder) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	return f.KeyManagementServiceClient.Decrypt(ctx, r)
}
