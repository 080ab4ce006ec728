package kmsplugin

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// Call names a remote procedure that the plugin serves.
type Call string

// The calls that are counted and that a fault can name.
const (
	CallStatus  Call = "Status"
	CallEncrypt Call = "Encrypt"
	CallDecrypt Call = "Decrypt"
	CallHealth  Call = "Check" // of grpc.health.v1
)

var allCalls = []Call{CallStatus, CallEncrypt, CallDecrypt, CallHealth}

type (
	behaviourKey struct{}
	formerKey    struct{} // an atomic.Pointer[string]: the key_id at a connection's last call to Status
)

// behaviourOf returns the behaviour that intercept put into the context.
func behaviourOf(ctx context.Context) *behaviour { return ctx.Value(behaviourKey{}).(*behaviour) }

// intercept handles a call as a whole: it counts it, delays or refuses it, or pads its answer. crypt decides the
// answer's content.
func (p *Plugin) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	call := Call(path.Base(info.FullMethod))
	p.record(call)
	b, err := p.await(ctx, call)
	if err != nil {
		return nil, err
	}
	if b.ends(call, req, p.KeyID()) {
		p.end(b.restart)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if refused := b.refused[call]; refused != nil {
		return nil, refused.Err()
	}
	if call == CallStatus && b.headers > 0 {
		_ = grpc.SetHeader(ctx, metadata.Pairs("padding", strings.Repeat("x", b.headers)))
	}
	resp, err := handler(context.WithValue(ctx, behaviourKey{}, b), req)
	if answer, ok := resp.(*kmsapi.StatusResponse); ok && err == nil && b.padding > 0 {
		pad(answer, b.padding)
	}
	return resp, err
}

// await waits until a call may be answered, and returns the behaviour for the answer. It checks again when the faults
// change, so that the end of a fault releases the call.
func (p *Plugin) await(ctx context.Context, call Call) (*behaviour, error) {
	arrived := time.Now()
	for {
		p.mu.Lock()
		b, changed := p.behaviour, p.changed
		p.mu.Unlock()
		rest := b.delay[call] - time.Since(arrived)
		if rest <= 0 {
			return b, nil
		}
		select {
		case <-time.After(rest):
			return b, nil
		case <-changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// pad makes an answer n bytes longer, with an unknown field.
func pad(answer *kmsapi.StatusResponse, n int) {
	field := protowire.AppendTag(nil, 1000, protowire.BytesType)
	answer.ProtoReflect().SetUnknown(protowire.AppendBytes(field, make([]byte, n)))
}

// crypt is the key management service.
type crypt struct{ keys *keyring }

func (c crypt) Status(ctx context.Context) (*service.StatusResponse, error) {
	b, keyID := behaviourOf(ctx), c.keys.current()
	former := ctx.Value(formerKey{}).(*atomic.Pointer[string]).Swap(&keyID)
	answer := &service.StatusResponse{Version: b.version, Healthz: b.healthz, KeyID: keyID}
	if former != nil && b.on["lagging-status"] {
		answer.KeyID = *former
	}
	if b.statusKeyID != nil {
		answer.KeyID = *b.statusKeyID
	}
	return answer, nil
}

func (c crypt) Encrypt(ctx context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	b := behaviourOf(ctx)
	sealed := c.keys.encrypt(plaintext, b.encryptKeyID)
	if b.on[FaultReplacedKey] {
		sealed.Ciphertext = otherThan(sealed.Ciphertext)
	}
	return sealed, nil
}

func (c crypt) Decrypt(ctx context.Context, _ string, req *service.DecryptRequest) ([]byte, error) {
	b, ciphertext := behaviourOf(ctx), req.Ciphertext
	if b.on[FaultReplacedKey] {
		ciphertext = otherThan(ciphertext)
	}
	plaintext, err := c.keys.decrypt(ciphertext, req.KeyID, string(req.Annotations[usedKeyAnnotation]), b.versions)
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case b.on["wrong-decrypt"]:
		return otherThan(plaintext), nil
	case b.on["short-decrypt"] && len(plaintext) > 0:
		return plaintext[:len(plaintext)-1], nil
	}
	return plaintext, nil
}

// otherThan returns different bytes of the same length, or one byte if there are none.
func otherThan(plaintext []byte) []byte {
	other := make([]byte, max(1, len(plaintext)))
	for i := range plaintext {
		other[i] = ^plaintext[i]
	}
	return other
}

// connections counts the connections, and gives each a formerKey.
type connections struct{ plugin *Plugin }

func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, formerKey{}, &atomic.Pointer[string]{})
}

func (c connections) HandleConn(_ context.Context, event stats.ConnStats) {
	c.plugin.mu.Lock()
	defer c.plugin.mu.Unlock()
	switch event.(type) {
	case *stats.ConnBegin:
		c.plugin.connections.Accepted++
		c.plugin.connections.Open++
	case *stats.ConnEnd:
		c.plugin.connections.Open--
	}
}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (connections) HandleRPC(context.Context, stats.RPCStats) {}
