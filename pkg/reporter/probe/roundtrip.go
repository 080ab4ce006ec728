package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

// sampleSize is the size of the sample of a round trip, in bytes: the size of the
// seed that kube-apiserver has encrypted.
const sampleSize = 32

// kube-apiserver's limits for the answer to such an Encrypt, in bytes
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2).
const (
	maxCiphertext  = 1024
	maxAnnotations = 32 << 10 // names and values together
)

// Trip is the result of one round trip.
type Trip struct {
	// Made is false when no verdict is possible: without a connection, or when it was
	// lost meanwhile; when the reporter itself did not run; or for a Read plugin that has
	// encrypted nothing. Nothing else is set then but Stalled: that the reporter did not run.
	Made    bool
	Stalled bool
	// Status, Reason and Detail are the verdict, as in the contract.
	Status health.Status
	Reason health.Reason
	Detail string
	// Took is the duration of all its calls.
	Took time.Duration
}

// ciphertext is a sample that a plugin encrypted, with the data needed to check its
// decryption.
type ciphertext struct {
	plain   []byte
	at      time.Time
	request *kmsapi.DecryptRequest
}

// keySamples are samples under one key id. Decrypting the first one detects a key that
// was replaced under the same key id.
type keySamples struct{ first, last *ciphertext }

// maxKeys is the number of key ids that are kept. A plugin has one, and another after a
// rotation.
const maxKeys = 4

// samples are those of a plugin by key id. They are kept in memory only.
type samples struct {
	byKey    map[string]*keySamples
	keys     []string // the oldest first
	rejected string   // the key id under which a Read plugin rejected Encrypt
}

func (s *samples) add(c *ciphertext) *keySamples {
	keyID := c.request.KeyId
	if s.byKey == nil {
		s.byKey = map[string]*keySamples{}
	}
	of := s.byKey[keyID]
	if of == nil {
		of = &keySamples{first: c}
		s.byKey[keyID] = of
		if s.keys = append(s.keys, keyID); len(s.keys) > maxKeys {
			delete(s.byKey, s.keys[0])
			s.keys = s.keys[1:]
		}
	}
	of.last = c
	return of
}

// latest returns the samples of a key id, or else the newest ones.
func (s *samples) latest(keyID string) *keySamples {
	if of := s.byKey[keyID]; of != nil || len(s.keys) == 0 {
		return of
	}
	return s.byKey[s.keys[len(s.keys)-1]]
}

// RoundTrip lets a Write plugin encrypt a new sample, decrypt it, and decrypt the first
// sample under the same key id. kube-apiserver's rules for an Encrypt answer apply: 1 to
// 1,024 bytes, under the key that Status returned (keyID, empty if none), and its rules
// for annotations. A Read plugin may reject Encrypt: that is tried once for each key id,
// and after that only existing samples are decrypted. RoundTrip makes at most four calls,
// each bounded by the Timeout.
func (p *Plugin) RoundTrip(ctx context.Context, s Settings, keyID string) Trip {
	p.mu.Lock()
	conn, dialer := p.conn, p.dialer
	p.mu.Unlock()
	if conn == nil {
		return Trip{}
	}
	connection, began := p.connections.Load(), time.Now()
	kms := kmsapi.NewKeyManagementServiceClient(conn)
	made, v := p.roundTrip(withTimeout(ctx, s.Timeout), kms, s.Writes, keyID)
	if v != nil && v.stalled {
		return Trip{Stalled: true}
	}
	if v != nil && v.lost && (connection != p.connections.Load() || !dialer.connected() || dialer.failure() != nil) {
		return Trip{} // the connection was lost or closed during it, which the next probe reports
	}
	t := Trip{Made: made, Status: health.Healthy, Took: time.Since(began)}
	if v != nil {
		t.Status, t.Reason, t.Detail = v.status, v.reason, health.CleanDetail(v.detail)
	}
	return t
}

func (p *Plugin) roundTrip(ctx context.Context, kms kmsapi.KeyManagementServiceClient, writes bool, keyID string) (made bool, v *verdict) {
	var of *keySamples
	if writes {
		sealed, v := seal(ctx, kms, keyID)
		if v != nil {
			return true, v
		}
		of = p.samples.add(sealed)
	} else if of = p.readerSamples(ctx, kms, keyID); of == nil {
		return false, nil
	}
	if v := open(ctx, kms, of.last); v != nil {
		return true, v
	}
	if of.first == of.last {
		return true, nil
	}
	v = open(ctx, kms, of.first)
	if v == nil || v.status != health.Unhealthy {
		return true, v
	}
	if v.reason == health.ReportedUnhealthy { // no other cause, since new data can be decrypted
		v.reason = health.RoundTripMismatch
	}
	v.detail = fmt.Sprintf("what was encrypted at %s under the same key_id can no longer be decrypted: %s", of.first.at.UTC().Format(time.RFC3339), v.detail)
	return true, v
}

// readerSamples returns the samples that a Read plugin has to decrypt, if any.
func (p *Plugin) readerSamples(ctx context.Context, kms kmsapi.KeyManagementServiceClient, keyID string) *keySamples {
	if p.samples.byKey[keyID] == nil && keyID != "" && p.samples.rejected != keyID {
		if sealed, v := seal(ctx, kms, keyID); v == nil {
			p.samples.add(sealed)
		} else if v.status == health.Unhealthy && v.reason != health.Timeout && !v.lost {
			p.samples.rejected = keyID
		}
	}
	return p.samples.latest(keyID)
}

// seal lets the plugin encrypt a new sample.
func seal(ctx context.Context, kms kmsapi.KeyManagementServiceClient, keyID string) (*ciphertext, *verdict) {
	plain := make([]byte, sampleSize)
	_, _ = rand.Read(plain) // never fails, according to its documentation
	answer, err := kms.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: plain, Uid: newUID()})
	if err != nil {
		return nil, refusal(err)
	}
	if size := len(answer.Ciphertext); size == 0 || size > maxCiphertext {
		return nil, unhealthy(health.ProtocolViolation, fmt.Sprintf("the answer to Encrypt is %d bytes, must be 1 to %d", size, maxCiphertext))
	}
	if size := len(answer.KeyId); size == 0 || size > maxKeyID {
		return nil, unhealthy(health.ProtocolViolation, fmt.Sprintf("the answer to Encrypt has a key_id of %d bytes, must be 1 to %d", size, maxKeyID))
	}
	if v := checkAnnotations(answer.Annotations); v != nil {
		return nil, v
	}
	if keyID != "" && answer.KeyId != keyID {
		// The key may have been rotated since; and some plugins' Status returns the former
		// key once more.
		if keyID, err = statusKeyID(ctx, kms, keyID); err != nil {
			return nil, refusal(err)
		}
		if answer.KeyId != keyID {
			return nil, unhealthy(health.RoundTripMismatch, fmt.Sprintf("the answer to Encrypt names key_id %q, that to Status %q", excerpt(answer.KeyId), excerpt(keyID)))
		}
	}
	return &ciphertext{
		plain:   plain,
		at:      time.Now(),
		request: &kmsapi.DecryptRequest{Ciphertext: answer.Ciphertext, KeyId: answer.KeyId, Annotations: answer.Annotations},
	}, nil
}

// statusKeyID calls Status once more for its key id, and returns the former one if there
// is no valid one.
func statusKeyID(ctx context.Context, kms kmsapi.KeyManagementServiceClient, former string) (string, error) {
	answer, err := kms.Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return "", err
	}
	if answer.KeyId == "" || len(answer.KeyId) > maxKeyID {
		return former, nil
	}
	return answer.KeyId, nil
}

// open lets the plugin decrypt a sample, and compares the result.
func open(ctx context.Context, kms kmsapi.KeyManagementServiceClient, sealed *ciphertext) *verdict {
	sealed.request.Uid = newUID()
	answer, err := kms.Decrypt(ctx, sealed.request)
	if err != nil {
		return refusal(err)
	}
	if !bytes.Equal(answer.Plaintext, sealed.plain) {
		return unhealthy(health.RoundTripMismatch, fmt.Sprintf("the answer to Decrypt is %d bytes that differ from the %d that were encrypted", len(answer.Plaintext), len(sealed.plain)))
	}
	return nil
}

// checkAnnotations: names are fully qualified domain names.
func checkAnnotations(annotations map[string][]byte) *verdict {
	size := 0
	for name, value := range annotations {
		if why := validation.IsFullyQualifiedDomainName(nil, name); len(why) > 0 {
			return unhealthy(health.ProtocolViolation, fmt.Sprintf("the answer to Encrypt has an annotation %q, which is not a fully qualified domain name", excerpt(name)))
		}
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return unhealthy(health.ProtocolViolation, fmt.Sprintf("the answer to Encrypt has annotations of %d bytes, the bound is %d", size, maxAnnotations))
	}
	return nil
}

// newUID returns the UID of a call, by which it can be found in the plugin's log.
func newUID() string { return "kms-health-" + rand.Text() }

// refusal returns the verdict on a failed call that follows an answer to Status: since
// the plugin answers, an error or a timeout means that it is unhealthy. If its backend is
// unavailable, the verdict is an error.
func refusal(err error) *verdict {
	v := unhealthy(health.ReportedUnhealthy, err.Error())
	var call *callError
	if errors.As(err, &call) {
		v.reason, v.stalled = call.reason(), call.stalled
	}
	switch code := status.Code(err); code {
	case codes.Unavailable:
		v.status, v.lost = health.Error, true
	case codes.Canceled:
		v.lost = true // or the plugin itself returned that code
	}
	return v
}
