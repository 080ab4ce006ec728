package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

const sampleSize = 32 // bytes, as of the seed that kube-apiserver has encrypted

// kube-apiserver's limits for the answer to such an Encrypt, in bytes
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2).
const (
	maxCiphertext  = 1024
	maxAnnotations = 32 << 10 // names and values together
)

// Trip is the result of one round trip.
type Trip struct {
	// Made is false when no verdict is possible: there was no connection, or it was lost meanwhile
	// (Detail has the error), or the reporter itself did not run (Stalled).
	Made    bool
	Stalled bool
	Status  contract.Status // the verdict on the new sample, as in the contract
	Reason  contract.Reason
	Detail  string
	KEKID   string  // the key_id that Status named last
	Named   bool    // Status named it during the round trip, not before
	Sealed  *Sample // the new sample; nil if it could not be decrypted
	Kept    []Opened
	Took    time.Duration // all its calls
}

// Sample is a plaintext that a plugin encrypted and could decrypt, with what Decrypt needs. It does not change.
type Sample struct {
	KeyID       string            `json:"keyID"`
	Plain       []byte            `json:"plain"`
	Ciphertext  []byte            `json:"ciphertext"`
	Annotations map[string][]byte `json:"annotations,omitempty"`
	At          time.Time         `json:"at"`
}

// Opened is the result of decrypting a kept sample.
type Opened struct {
	Sample *Sample
	Ended  bool // the connection broke, as when the plugin ends at this call
	Reason contract.Reason
	Detail string // why it was not decrypted; empty if it was
}

// Failed reports whether the plugin failed it.
func (t *Trip) Failed() bool { return t.Made && t.Status != contract.Healthy }

// Ended reports whether the connection broke at a kept sample.
func (t *Trip) Ended() bool {
	return slices.ContainsFunc(t.Kept, func(o Opened) bool { return o.Ended })
}

// RoundTrip lets a plugin encrypt a new sample and decrypt it, and then decrypt kept ones, if any: that detects a key
// that was replaced under the same key ID, and a plugin that no longer has a former key. RoundTrip is the same for
// every role: kube-apiserver has each KMS v2 provider of its list encrypt, too, and otherwise neither becomes ready nor
// decrypts with it (rotateDEKOnKeyIDChange, k8s.io/apiserver/pkg/server/options/encryptionconfig).
//
// kube-apiserver's rules for an Encrypt answer apply: 1 to 1,024 bytes, under the key that Status
// returned (keyID, empty if none), and its rules for annotations. RoundTrip makes at most three
// calls, and one for each kept sample while there is time for it by the Bound. Each is bounded by the Timeout.
func (p *Plugin) RoundTrip(ctx context.Context, s Settings, keyID string, kept []*Sample) Trip {
	p.mu.Lock()
	conn, dialer := p.conn, p.dialer
	p.mu.Unlock()
	if conn == nil {
		return Trip{Detail: "there is no connection"}
	}
	before, began := p.connections.Load(), time.Now()
	kms := kmsapi.NewKeyManagementServiceClient(conn)
	broke := func(v *verdict) bool {
		return v.lost && (before != p.connections.Load() || !dialer.state().connected)
	}
	sealed, named, v := seal(ctx, kms, s.Timeout, keyID)
	if v == nil {
		v = open(ctx, kms, s.Timeout, sealed)
	}
	t := Trip{Made: true, Status: contract.Healthy, KEKID: cmp.Or(named, keyID), Named: named != ""}
	switch {
	case v == nil:
		t.Sealed = sealed
	case v.stalled:
		return Trip{Stalled: true}
	case broke(v): // the next probe reports what became of it
		return Trip{Detail: contract.CleanDetail(v.detail)}
	default:
		t.Status, t.Reason, t.Detail = v.status, v.reason, contract.CleanDetail(v.detail)
	}
	for i := 0; v == nil && i < len(kept) && time.Since(began) <= s.Bound-s.Timeout && !t.Ended(); i++ {
		opened := Opened{Sample: kept[i]}
		if v := open(ctx, kms, s.Timeout, kept[i]); v != nil {
			if v.stalled {
				return Trip{Stalled: true}
			}
			opened.Ended, opened.Reason, opened.Detail = broke(v), v.reason, contract.CleanDetail(v.detail)
		}
		t.Kept = append(t.Kept, opened)
	}
	t.Took = time.Since(began)
	return t
}

// seal lets the plugin encrypt a new sample. named is the key_id of Status if that was called again, else empty.
func seal(ctx context.Context, kms kmsapi.KeyManagementServiceClient, timeout time.Duration, keyID string) (
	sealed *Sample, named string, v *verdict) {
	plain := make([]byte, sampleSize)
	_, _ = rand.Read(plain) // never fails, according to its documentation
	request := &kmsapi.EncryptRequest{Plaintext: plain, Uid: newUID()}
	answer, v := call(ctx, timeout, "Encrypt", kms.Encrypt, request)
	if v != nil {
		return nil, "", v
	}
	if broken := checkSealed(answer); broken != "" {
		return nil, "", unhealthy(contract.ProtocolViolation, "the answer to Encrypt "+broken)
	}
	if keyID != "" && answer.KeyId != keyID {
		// The key may have been rotated since; and some plugins' Status returns the former key once more.
		again, v := call(ctx, timeout, "Status", kms.Status, &kmsapi.StatusRequest{})
		if v != nil {
			return nil, "", v
		}
		if named = keyID; again.KeyId != "" && len(again.KeyId) <= maxKeyID {
			named = again.KeyId
		}
		if answer.KeyId != named {
			return nil, named, unhealthy(contract.ProtocolViolation,
				fmt.Sprintf("the answer to Encrypt names key_id %q, that to Status %q", excerpt(answer.KeyId), excerpt(named)))
		}
	}
	return &Sample{KeyID: answer.KeyId, Plain: plain, Ciphertext: answer.Ciphertext, Annotations: answer.Annotations,
		At: time.Now()}, named, nil
}

// open lets the plugin decrypt a sample, and compares the result.
func open(ctx context.Context, kms kmsapi.KeyManagementServiceClient, timeout time.Duration, sealed *Sample) *verdict {
	answer, v := call(ctx, timeout, "Decrypt", kms.Decrypt, &kmsapi.DecryptRequest{Uid: newUID(),
		Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyID, Annotations: sealed.Annotations})
	if v == nil && !bytes.Equal(answer.Plaintext, sealed.Plain) {
		v = unhealthy(contract.RoundTripMismatch,
			fmt.Sprintf("the answer to Decrypt is %d bytes that differ from the %d that were encrypted",
				len(answer.Plaintext), len(sealed.Plain)))
	}
	return v
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
