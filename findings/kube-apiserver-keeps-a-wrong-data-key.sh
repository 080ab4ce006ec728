#!/usr/bin/env bash
# k8s.io/apiserver v0.36.3: one wrong answer to Decrypt makes data unreadable until the API server restarts.
#
# A KMS v2 plugin answers Decrypt once with wrong bytes of the right length, and later correctly. The transformer caches
# the data key of that answer for 24 hours, without a test: each later read fails to authenticate, and does not call the
# plugin again. A new transformer, as after a restart of the API server, reads the data.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	"k8s.io/kms/pkg/service"
)

// kms encrypts by reversing bytes. Its first Decrypt returns others.
type kms struct{ decrypts int }

func reversed(in []byte) []byte {
	out := bytes.Clone(in)
	slices.Reverse(out)
	return out
}

func (k *kms) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "key-1"}, nil
}

func (k *kms) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: reversed(data), KeyID: "key-1"}, nil
}

func (k *kms) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	if k.decrypts++; k.decrypts == 1 {
		return make([]byte, len(r.Ciphertext)), nil
	}
	return reversed(r.Ciphertext), nil
}

// transformer is as of an API server that has just started.
func transformer(k *kms) value.Transformer {
	dek, encrypted, cacheKey, err := kmsv2.GenerateTransformer(context.Background(), "uid", k, true)
	if err != nil {
		panic(err)
	}
	state := kmsv2.State{Transformer: dek, EncryptedObjectKeyID: encrypted.KeyID,
		EncryptedObjectEncryptedDEKSource:     encrypted.EncryptedDEKSource,
		EncryptedObjectEncryptedDEKSourceType: encrypted.EncryptedDEKSourceType,
		ExpirationTimestamp:                   time.Now().Add(time.Hour), CacheKey: cacheKey}
	return kmsv2.NewEnvelopeTransformer(k, "kms", func() (kmsv2.State, error) { return state, nil }, "id")
}

func main() {
	ctx, of, k := context.Background(), value.DefaultContext("/registry/secrets/ns/name"), &kms{}
	stored, err := transformer(k).TransformToStorage(ctx, []byte("data"), of)
	if err != nil {
		panic(err)
	}
	server := transformer(k)
	for _, read := range []string{"first read", "second read"} {
		_, _, err = server.TransformFromStorage(ctx, stored, of)
		fmt.Printf("%s: %v, after %d Decrypt; ", read, err, k.decrypts)
	}
	data, _, err := transformer(k).TransformFromStorage(ctx, stored, of)
	fmt.Printf("restarted: %s, %v\n", data, err)
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apiserver@v0.36.3 k8s.io/kms@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run .)
failed='cipher: message authentication failed, after 1 Decrypt'
want="first read: $failed; second read: $failed; restarted: data, <nil>"
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
