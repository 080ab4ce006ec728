package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	kmsapi "k8s.io/kms/apis/v2"
)

// checkHealthService asks the standard gRPC health service about the whole
// server. A plugin without that service does not say, which is no illness.
func checkHealthService(ctx context.Context, conn grpc.ClientConnInterface) error {
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return answered(err)
	case answer.Status != grpc_health_v1.HealthCheckResponse_SERVING:
		return verdictError{fmt.Errorf("gRPC health is %s, not SERVING", answer.Status)}
	}
	return nil
}

// sampleSize is what is encrypted in a round trip, in bytes: the size of the
// seed that kube-apiserver has encrypted.
const sampleSize = 32

// What kube-apiserver demands of the answer to such an Encrypt, in bytes
// (k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2).
const (
	maxCiphertext  = 1024
	maxAnnotations = 32 << 10 // names and values together
)

// validateAnnotations: names are fully qualified domain names.
func validateAnnotations(annotations map[string][]byte) error {
	size := 0
	for name, value := range annotations {
		if why := validation.IsFullyQualifiedDomainName(nil, name); len(why) > 0 {
			return fmt.Errorf("the answer to Encrypt has an annotation %q, which is not a fully qualified domain name", excerpt(name))
		}
		size += len(name) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Errorf("the answer to Encrypt has annotations of %d bytes, the bound is %d", size, maxAnnotations)
	}
	return nil
}

// ciphertext is a sample that a plugin encrypted, with what it takes to check
// its decryption.
type ciphertext struct {
	plain   []byte
	request *kmsapi.DecryptRequest
}

// roundTrip encrypts a new sample with a plugin that writes, has it decrypted,
// and compares. What kube-apiserver demands of an Encrypt answer is demanded
// here: 1 to 1,024 bytes, under the key that Status named, and its rules for
// annotations. A plugin that only reads may lawfully refuse to encrypt: it is
// asked for the last sample that it encrypted while it was a writer, and for
// nothing if there is none.
func (p *Plugin) roundTrip(ctx context.Context, kms kmsapi.KeyManagementServiceClient, writes bool, keyID string) error {
	if writes {
		sealed, err := seal(ctx, kms, keyID)
		if err != nil {
			return err
		}
		p.sealed = sealed
	}
	if p.sealed == nil {
		return nil
	}
	p.sealed.request.Uid = newUID()
	answer, err := kms.Decrypt(ctx, p.sealed.request)
	if err != nil {
		return answered(err)
	}
	if !bytes.Equal(answer.Plaintext, p.sealed.plain) {
		return verdictError{errors.New("the answer to Decrypt is other bytes than were encrypted")}
	}
	return nil
}

func seal(ctx context.Context, kms kmsapi.KeyManagementServiceClient, keyID string) (*ciphertext, error) {
	plain := make([]byte, sampleSize)
	_, _ = rand.Read(plain) // never fails, says its documentation
	answer, err := kms.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: plain, Uid: newUID()})
	if err != nil {
		return nil, answered(err)
	}
	if size := len(answer.Ciphertext); size == 0 || size > maxCiphertext {
		return nil, verdictError{fmt.Errorf("the answer to Encrypt is %d bytes, must be 1 to %d", size, maxCiphertext)}
	}
	if err := validateAnnotations(answer.Annotations); err != nil {
		return nil, verdictError{err}
	}
	if answer.KeyId != keyID {
		return nil, verdictError{fmt.Errorf("the answer to Encrypt names key_id %q, that to Status %q", excerpt(answer.KeyId), excerpt(keyID))}
	}
	return &ciphertext{
		plain:   plain,
		request: &kmsapi.DecryptRequest{Ciphertext: answer.Ciphertext, KeyId: answer.KeyId, Annotations: answer.Annotations},
	}, nil
}

// newUID names a call, so that it can be found in the plugin's log.
func newUID() string { return "kms-health-" + rand.Text() }

// answered judges a failed call that follows a good Status: the plugin is there
// and answers, so a refusal or a silence is a verdict on it. Only a lost
// connection is no answer at all.
func answered(err error) error {
	if status.Code(err) == codes.Unavailable {
		return err
	}
	return verdictError{err}
}
