package kmsplugin

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// usedKeyAnnotation carries the key that encrypted from Encrypt to Decrypt.
// kube-apiserver wants a fully qualified domain name, and stores it.
const usedKeyAnnotation = "key.kmsplugin.kms-health.dev"

// paddingField is the number of a protobuf field that StatusResponse has not.
const paddingField = 1000

type (
	behaviourKey  struct{}
	connectionKey struct{}
)

// connection is the plugin's state of one connection.
type connection struct {
	// versions counts the answers given under changing-version.
	versions atomic.Int64
	// named is the key that was current at the last call to Status.
	named atomic.Pointer[string]
}

// behaviourOf returns the behaviour with which intercept let a call through.
func behaviourOf(ctx context.Context) *behaviour {
	return ctx.Value(behaviourKey{}).(*behaviour)
}

// intercept does what concerns a call as a whole: count it, hold it, refuse
// it, pad its answer. What an answer reports is up to crypt and health.
func (p *Plugin) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call := callOf(info.FullMethod)
	if call == "" {
		return handler(ctx, req)
	}
	p.counters.record(call, time.Now())
	b, err := p.conduct.await(ctx, call)
	if err != nil {
		return nil, err
	}
	if refused := b.refused[call]; refused != nil {
		return nil, refused.Err()
	}
	if call == CallStatus && b.headers > 0 {
		if err := grpc.SetHeader(ctx, metadata.Pairs("padding", strings.Repeat("x", b.headers))); err != nil {
			return nil, err
		}
	}
	resp, err := handler(context.WithValue(ctx, behaviourKey{}, b), req)
	if answer, ok := resp.(*kmsapi.StatusResponse); ok && err == nil && b.padding > 0 {
		pad(answer, b.padding)
	}
	return resp, err
}

// pad makes an answer n bytes longer without changing what it reports.
func pad(answer *kmsapi.StatusResponse, n int) {
	const lengthDelimited = 2
	raw := binary.AppendUvarint(nil, paddingField<<3|lengthDelimited)
	raw = binary.AppendUvarint(raw, uint64(n))
	answer.ProtoReflect().SetUnknown(append(raw, make([]byte, n)...))
}

// crypt is the key management service proper.
type crypt struct{ keys *keyring }

var _ service.Service = crypt{}

func (c crypt) Status(ctx context.Context) (*service.StatusResponse, error) {
	b := behaviourOf(ctx)
	answer := &service.StatusResponse{Version: b.version, Healthz: b.healthz, KeyID: c.keys.current()}
	current := answer.KeyID
	if former := ctx.Value(connectionKey{}).(*connection).named.Swap(&current); former != nil && b.laggingStatus {
		answer.KeyID = *former
	}
	if b.statusKeyID != nil {
		answer.KeyID = *b.statusKeyID
	}
	if b.changingVersion {
		// Turns are kept per connection: with two clients that call by turns,
		// a turn for all would show each of them one and the same version.
		conn := ctx.Value(connectionKey{}).(*connection)
		answer.Version = versionV2beta1
		if conn.versions.Add(1)%2 == 0 {
			answer.Version = versionV2
		}
	}
	return answer, nil
}

func (c crypt) Encrypt(ctx context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	b := behaviourOf(ctx)
	sealed, err := c.keys.encrypt(plaintext, b.encryptKeyID)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if b.replacedKey {
		sealed.ciphertext = otherThan(sealed.ciphertext)
	}
	return &service.EncryptResponse{
		Ciphertext:  sealed.ciphertext,
		KeyID:       sealed.keyID,
		Annotations: map[string][]byte{usedKeyAnnotation: []byte(sealed.usedKey)},
	}, nil
}

func (c crypt) Decrypt(ctx context.Context, _ string, req *service.DecryptRequest) ([]byte, error) {
	usedKey, ok := req.Annotations[usedKeyAnnotation]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "annotation %q of Encrypt was not given back", usedKeyAnnotation)
	}
	b := behaviourOf(ctx)
	ciphertext := req.Ciphertext
	if b.replacedKey {
		ciphertext = otherThan(ciphertext)
	}
	plaintext, err := c.keys.decrypt(sealed{ciphertext, req.KeyID, string(usedKey)})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	switch {
	case b.wrongDecrypt:
		return otherThan(plaintext), nil
	case b.shortDecrypt && len(plaintext) > 0:
		return plaintext[:len(plaintext)-1], nil
	}
	return plaintext, nil
}

// otherThan returns as many other bytes, and one byte for none.
func otherThan(plaintext []byte) []byte {
	other := make([]byte, max(1, len(plaintext)))
	for i := range plaintext {
		other[i] = ^plaintext[i]
	}
	return other
}

// health is grpc.health.v1. While it is off it is as if it were not there.
type health struct {
	healthpb.UnimplementedHealthServer
	on *atomic.Bool
}

func (h health) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	b := behaviourOf(ctx)
	if !h.on.Load() && !b.notServing {
		return h.UnimplementedHealthServer.Check(ctx, req)
	}
	if name := req.GetService(); name != "" && name != kmsapi.KeyManagementService_ServiceDesc.ServiceName {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", name)
	}
	if b.notServing {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// connections distinguishes connections, and counts them.
type connections struct{ counters *counters }

var _ stats.Handler = connections{}

func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

func (c connections) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		c.counters.connection(+1)
	case *stats.ConnEnd:
		c.counters.connection(-1)
	}
}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (connections) HandleRPC(context.Context, stats.RPCStats) {}
