#!/usr/bin/env bash
# k8s.io/apiserver v0.36.3: a failed read of a value that a removed provider encrypted is not counted for its prefix.
#
# apiserver_storage_transformation_operations_total has a label transformer_prefix, and its help says to alert on failed
# reads by it. If the provider of a stored value was removed from the encryption config, the read fails, and is counted
# as "unknown". So an alert that selects the prefixes of KMS never fires for this failure, the only one that the repair
# of a plugin does not end. And two providers of the same kind in one list, such as aescbc, have the same prefix: each
# read by the second is also counted as a failure of the first, though nothing is lost.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/component-base/metrics/legacyregistry"
)

// provider reads its own values: those that end with its key.
type provider struct{ key byte }

func (p provider) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if data[len(data)-1] != p.key {
		return nil, false, errors.New("not my key")
	}
	return data, false, nil
}

func (p provider) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return append(data, p.key), nil
}

func main() {
	value.RegisterMetrics()
	all := value.NewPrefixTransformers(errors.New("no matching prefix found"),
		value.PrefixTransformer{Prefix: []byte("k8s:enc:kms:v2:new:"), Transformer: provider{'n'}},
		value.PrefixTransformer{Prefix: []byte("k8s:enc:aescbc:v1:"), Transformer: provider{'2'}},
		value.PrefixTransformer{Prefix: []byte("k8s:enc:aescbc:v1:"), Transformer: provider{'1'}},
		value.PrefixTransformer{Transformer: identity.NewEncryptCheckTransformer()},
	)
	for _, stored := range []string{"k8s:enc:kms:v2:old:data", "k8s:enc:aescbc:v1:data1"} {
		_, _, err := all.TransformFromStorage(context.Background(), []byte(stored), value.DefaultContext("key"))
		fmt.Printf("%s: read: %t\n", stored, err == nil)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_storage_transformation_operations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			fmt.Printf("counted: %s %s: %v\n", labels["transformer_prefix"], labels["status"], m.GetCounter().GetValue())
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apiserver@v0.36.3 k8s.io/component-base@v0.36.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
got=$(go run . 2>/dev/null)
want='k8s:enc:kms:v2:old:data: read: false
k8s:enc:aescbc:v1:data1: read: true
counted: k8s:enc:aescbc:v1: OK: 1
counted: k8s:enc:aescbc:v1: unknown-non-grpc: 1
counted: unknown unknown-non-grpc: 1'
if [[ $got != "$want" ]]; then
	printf 'changed: got\n%s\nwant\n%s\n' "$got" "$want" >&2
	exit 1
fi
echo "as described: $got"
