package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/contract"
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
	// Made is false when no verdict is possible: without a connection, or when it was lost
	// meanwhile, of which Detail is the error; or when the reporter itself did not run (Stalled).
	Made    bool
	Stalled bool
	Status  contract.Status // the verdict, as in the contract
	Reason  contract.Reason
	Detail  string
	KEKID   string        // the key id of Status during it, where it was asked again; else empty
	Took    time.Duration // all its calls
}

// ciphertext is a sample that a plugin encrypted, with the data needed to check its
// decryption.
type ciphertext struct {
	plain   []byte
	at      time.Time
	request *kmsapi.DecryptRequest
}

// RoundTrip lets a plugin encrypt a new sample, decrypt it, and decrypt the first sample that could
// be decrypted under the same key id, or the former one: that detects a key that was replaced under
// the same key id, and a plugin that no longer has the key of what is stored. A rotation must keep
// the former key until everything is encrypted again, which nothing can be when the key id
// changes. RoundTrip is the same for every role: kube-apiserver has each KMS v2 provider of its list
// encrypt, too, and otherwise neither becomes ready nor decrypts with it
// (rotateDEKOnKeyIDChange, k8s.io/apiserver/pkg/server/options/encryptionconfig).
//
// kube-apiserver's rules for an Encrypt answer apply: 1 to 1,024 bytes, under the key that Status
// returned (keyID, empty if none), and its rules for annotations. RoundTrip makes at most four
// calls, each bounded by the Timeout.
func (p *Plugin) RoundTrip(ctx context.Context, s Settings, keyID string) Trip {
	p.mu.Lock()
	conn, dialer := p.conn, p.dialer
	p.mu.Unlock()
	if conn == nil {
		return Trip{Detail: "there is no connection"}
	}
	before, began := p.connections.Load(), time.Now()
	kms := kmsapi.NewKeyManagementServiceClient(conn)
	named, v := p.roundTrip(ctx, s.Timeout, kms, keyID)
	if v != nil && v.stalled {
		return Trip{Stalled: true}
	}
	after := dialer.state()
	if v != nil && v.lost && (before != p.connections.Load() || !after.connected || after.failed != nil) {
		return Trip{Detail: contract.CleanDetail(v.detail)} // the next probe reports what became of it
	}
	t := Trip{Made: true, Status: contract.Healthy, KEKID: named, Took: time.Since(began)}
	if v != nil {
		t.Status, t.Reason, t.Detail = v.status, v.reason, contract.CleanDetail(v.detail)
	}
	return t
}

func (p *Plugin) roundTrip(ctx context.Context, timeout time.Duration, kms kmsapi.KeyManagementServiceClient,
	keyID string) (named string, v *verdict) {
	sealed, named, v := seal(ctx, timeout, kms, keyID)
	if v != nil {
		return named, v
	}
	if v := open(ctx, timeout, kms, sealed); v != nil {
		return named, v
	}
	first := p.first
	if first == nil {
		p.first = sealed
		return named, nil
	}
	v = open(ctx, timeout, kms, first)
	former := first.request.KeyId != sealed.request.KeyId
	if v == nil && former {
		p.first = sealed
	}
	if v == nil || v.status != contract.Unhealthy {
		return named, v
	}
	if v.reason == contract.ReportedUnhealthy { // no other cause, since new data can be decrypted
		v.reason = contract.RoundTripMismatch
	}
	under := "the same key_id"
	if former {
		under = fmt.Sprintf("the former key_id %q", excerpt(first.request.KeyId))
	}
	v.detail = fmt.Sprintf("what was encrypted at %s under %s can no longer be decrypted: %s",
		first.at.UTC().Format(time.RFC3339), under, v.detail)
	return named, v
}

// seal lets the plugin encrypt a new sample. named is the key id of Status, where it was asked
// again.
func seal(ctx context.Context, timeout time.Duration, kms kmsapi.KeyManagementServiceClient, keyID string) (
	sealed *ciphertext, named string, v *verdict) {
	plain := make([]byte, sampleSize)
	_, _ = rand.Read(plain) // never fails, according to its documentation
	answer, err := call(ctx, timeout, "Encrypt", kms.Encrypt, &kmsapi.EncryptRequest{Plaintext: plain, Uid: newUID()})
	if err != nil {
		return nil, "", refusal(err)
	}
	if broken := checkSealed(answer); broken != "" {
		return nil, "", unhealthy(contract.ProtocolViolation, "the answer to Encrypt "+broken)
	}
	if keyID != "" && answer.KeyId != keyID {
		// The key may have been rotated since; and some plugins' Status returns the former
		// key once more.
		again, err := call(ctx, timeout, "Status", kms.Status, &kmsapi.StatusRequest{})
		if err != nil {
			return nil, "", refusal(err)
		}
		if named = keyID; again.KeyId != "" && len(again.KeyId) <= maxKeyID {
			named = again.KeyId
		}
		if answer.KeyId != named {
			return nil, named, unhealthy(contract.RoundTripMismatch,
				fmt.Sprintf("the answer to Encrypt names key_id %q, that to Status %q", excerpt(answer.KeyId), excerpt(named)))
		}
	}
	return &ciphertext{
		plain:   plain,
		at:      time.Now(),
		request: &kmsapi.DecryptRequest{Ciphertext: answer.Ciphertext, KeyId: answer.KeyId, Annotations: answer.Annotations},
	}, named, nil
}

// open lets the plugin decrypt a sample, and compares the result.
func open(ctx context.Context, timeout time.Duration, kms kmsapi.KeyManagementServiceClient,
	sealed *ciphertext) *verdict {
	sealed.request.Uid = newUID()
	answer, err := call(ctx, timeout, "Decrypt", kms.Decrypt, sealed.request)
	if err != nil {
		return refusal(err)
	}
	if !bytes.Equal(answer.Plaintext, sealed.plain) {
		return unhealthy(contract.RoundTripMismatch,
			fmt.Sprintf("the answer to Decrypt is %d bytes that differ from the %d that were encrypted",
				len(answer.Plaintext), len(sealed.plain)))
	}
	return nil
}

// checkSealed returns which of kube-apiserver's rules an answer to Encrypt breaks.
func checkSealed(answer *kmsapi.EncryptResponse) string {
	if size := len(answer.Ciphertext); size == 0 || size > maxCiphertext {
		return fmt.Sprintf("is %d bytes, must be 1 to %d", size, maxCiphertext)
	}
	if size := len(answer.KeyId); size == 0 || size > maxKeyID {
		return fmt.Sprintf("has a key_id of %d bytes, must be 1 to %d", size, maxKeyID)
	}
	size := 0
	for name, value := range answer.Annotations {
		if len(validation.IsFullyQualifiedDomainName(nil, name)) > 0 {
			return fmt.Sprintf("has an annotation %q, which is not a fully qualified domain name", excerpt(name))
		}
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Sprintf("has annotations of %d bytes, the bound is %d", size, maxAnnotations)
	}
	return ""
}

// newUID returns the UID of a call, by which it can be found in the plugin's log.
func newUID() string { return "kms-health-" + rand.Text() }

// refusal returns the verdict on a failed call that follows an answer to Status: since
// the plugin answers, an error or a timeout means that it is unhealthy. If its backend is
// unavailable, the verdict is an error.
func refusal(err error) *verdict {
	v := unhealthy(contract.ReportedUnhealthy, err.Error())
	if failed := failureOf(err); failed.err != nil {
		v.reason, v.stalled = failed.reason(), failed.stalled
	}
	switch code := status.Code(err); code {
	case codes.Unavailable:
		v.status, v.lost = contract.Error, true
	case codes.Canceled:
		v.lost = true // or the plugin itself returned that code
	}
	return v
}
